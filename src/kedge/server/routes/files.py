"""Files of the directory: listed, read, and found by name or by what is in them."""

from typing import Annotated, Any, Literal

import msgspec

from kedge.engine.files.browse import FileContent, FileNode
from kedge.engine.files.find import Kind, Match
from kedge.engine.files.git_status import Status, Uncounted
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, incomplete, json
from kedge.server.router import Routes

routes = Routes(reads_files=True)

_USUAL = 10


class PathQuery(msgspec.Struct, frozen=True):
    """A path from the directory, or an absolute one inside of it."""

    path: str


class PatternQuery(msgspec.Struct, frozen=True):
    """A regular expression in the syntax of Rust."""

    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


class FilesQuery(msgspec.Struct, frozen=True):
    """What names shall be like."""

    query: str
    dirs: Literal["true", "false"] = "true"
    """Whether folders are found too."""
    type: Kind | None = None
    """Only files, or only folders."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = _USUAL


class SymbolQuery(msgspec.Struct, frozen=True):
    """What the names of symbols shall be like."""

    query: str


class FileStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How a file differs from the last commit."""

    path: str
    added: int
    removed: int
    status: Status
    uncounted: Uncounted | None = None
    """Why the lines could not be compared."""
    path_base64: str | None = None
    """The very bytes of a name that is not UTF-8."""


@routes.get("/file", "file.list", query=PathQuery, answer=list[FileNode])
async def list_files(request: Request[PathQuery, NoBody]) -> Response:
    """The files and folders in a folder."""
    files, path = request.backend.engine.files, request.query.path
    return json(await files.list_folder(path, directory=request.directory))


@routes.get("/file/content", "file.read", query=PathQuery, answer=FileContent)
async def read_file(request: Request[PathQuery, NoBody]) -> Response:
    """What is in a file."""
    files, path = request.backend.engine.files, request.query.path
    return json(await files.read(path, directory=request.directory))


@routes.get("/file/status", "file.status", answer=list[FileStatus])
async def file_status(request: Request[NoQuery, NoBody]) -> Response:
    """The files that differ from the last commit."""
    found = await request.backend.engine.files.status(request.directory)
    files = [
        FileStatus(
            each.file,
            each.additions,
            each.deletions,
            each.status,
            each.uncounted,
            each.path_base64,
        )
        for each in found.files
    ]
    return json(files, headers=incomplete(found.is_incomplete))


@routes.get("/find", "find.text", query=PatternQuery, answer=list[Match])
async def find_lines(request: Request[PatternQuery, NoBody]) -> Response:
    """Lines of files that match a regular expression."""
    files, pattern = request.backend.engine.files, request.query.pattern
    return json(await files.find_text(pattern, directory=request.directory))


@routes.get("/find/file", "find.files", query=FilesQuery, answer=list[str])
async def find_names(request: Request[FilesQuery, NoBody]) -> Response:
    """Files and folders whose paths are like the query, the best first."""
    query = request.query
    kinds: list[Kind] = ["file", "directory"] if query.dirs == "true" else ["file"]
    if query.type is not None:
        kinds = [query.type]
    found = await request.backend.engine.files.find_files(
        query.query, limit=query.limit, kinds=kinds, directory=request.directory
    )
    return json(found)


@routes.get("/find/symbol", "find.symbols", query=SymbolQuery, answer=list[dict[str, Any]])
async def find_symbols(request: Request[SymbolQuery, NoBody]) -> Response:
    """Symbols of the code: none, as kedge runs no language server."""
    return json([])
