"""Version control: the branch of the directory, and what is not committed yet."""

from typing import Annotated

import msgspec

from kedge.engine.files.git_status import Branches, CheckoutChange, CheckoutChanges, Mode
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, incomplete, json
from kedge.server.router import Routes

routes = Routes(reads_files=True)

_DIFF = "text/x-diff; charset=utf-8"


class VcsDiffQuery(msgspec.Struct, frozen=True):
    """What to compare the directory with: the last commit, or the default branch."""

    mode: Mode
    context: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 3
    """Lines around each change."""


@routes.get("/vcs", "vcs.get", answer=Branches)
async def get_branches(request: Request[NoQuery, NoBody]) -> Response:
    """The branch that is checked out, and the one that others begin with."""
    directory = request.directory
    found = await request.backend.engine.files.branches(directory)
    request.backend.streams.branches.was_told(directory, found.branch)
    return json(found)


@routes.get("/vcs/status", "vcs.status", answer=list[CheckoutChange])
async def get_status(request: Request[NoQuery, NoBody]) -> Response:
    """The files that differ from the last commit."""
    return _told(await request.backend.engine.files.status(request.directory))


@routes.get("/vcs/diff", "vcs.diff", query=VcsDiffQuery, answer=list[CheckoutChange])
async def get_diff(request: Request[VcsDiffQuery, NoBody]) -> Response:
    """What differs from the last commit or the default branch, as a patch for each file."""
    query, files = request.query, request.backend.engine.files
    found = await files.diff(query.mode, context=query.context, directory=request.directory)
    return _told(found)


@routes.get("/vcs/diff/raw", "vcs.diff.raw", answer=bytes, media_type=_DIFF)
async def get_raw_diff(request: Request[NoQuery, NoBody]) -> Response:
    """What differs from the last commit, as one patch."""
    files = request.backend.engine.files
    patch, is_incomplete = await files.raw_diff(request.directory)
    headers = tuple((name.encode(), value.encode()) for name, value in incomplete(is_incomplete))
    return Response(patch, type=_DIFF.encode(), headers=headers)


def _told(found: CheckoutChanges) -> Response:
    return json(found.files, headers=incomplete(found.is_incomplete))
