"""Files and folders that clients name: only what really lies below their directory is looked at.

A path is followed once, to where it leads; from there on every component is opened without
following anything, so that whoever exchanges a folder for a symlink meanwhile gains nothing.
"""

import base64
import mimetypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from kedge.domain.errors import InvalidPath, PathNotFound, PathRefused, TooLarge
from kedge.engine.worktrees import find_worktree
from kedge.snapshot.files.reader import ReadFailure, read_file
from kedge.snapshot.files.root import Root
from kedge.snapshot.ignore.folders import Ignore
from kedge.snapshot.repository.config import read_config
from kedge.snapshot.repository.discover import Repository
from kedge.snapshot.repository.signatures import LARGEST_RULES, read_small

LARGEST_FILE = 10 * 1024 * 1024
"""Of a larger one nobody wants the whole in one answer."""
_MOST_ENTRIES = 20_000
_LONGEST_PATH = 4096
_BINARY_LOOK = 8192


class FileNode(msgspec.Struct, frozen=True):
    """A file or folder in a folder."""

    name: str
    path: str
    """From the client's directory; that of a folder ends with a slash."""
    absolute: str
    type: Literal["file", "directory"]
    ignored: bool


class FileContent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is in a file."""

    type: Literal["text", "binary"]
    content: str
    encoding: Literal["base64"] | None = None
    mimeType: str | None = None


def list_folder(directory: str, path: str) -> list[FileNode]:
    """The files and folders in a folder, folders first; symlinks and pipes are left out."""
    below = _below(directory, path)
    try:
        with Root(os.fsencode(directory)) as root, root.folder(below) as fd:
            found = sorted(islice(_entries(fd), _MOST_ENTRIES))
    except NotADirectoryError:
        raise InvalidPath(f"{path} is no folder") from None
    except OSError as error:
        raise _refusal(path, error) from None
    asked = os.fsencode(os.path.relpath(os.path.join(directory, path), directory))
    ignore = _ignore(os.path.join(os.fsencode(directory), below))
    return [_node(directory, asked, ignore, is_file, name) for is_file, _, name in found]


def read_content(directory: str, path: str) -> FileContent:
    """What is in a file."""
    folder, _, name = _below(directory, path).rpartition(b"/")
    try:
        with Root(os.fsencode(directory)) as root, root.folder(folder) as fd:
            found = read_file(fd, name or b".", LARGEST_FILE)
    except OSError as error:
        raise _refusal(path, error) from None
    match found:
        case ReadFailure.ABSENT:
            raise PathNotFound(path)
        case ReadFailure.TOO_LARGE:
            raise TooLarge(f"{path} is larger than {LARGEST_FILE} bytes")
        case ReadFailure.FOLDER | ReadFailure.SPECIAL:
            raise InvalidPath(f"{path} is no file")
        case ReadFailure():
            raise PathRefused(f"{path} cannot be read")
    if stat.S_ISLNK(found.mode):
        raise PathRefused(f"{path} has become a symlink")
    return content_of(os.fsdecode(name), found.data)


@contextmanager
def open_folder(root: Path, below: bytes) -> Iterator[int]:
    """A folder below a root, opened component by component: no symlink is followed below it."""
    with Root(os.fsencode(root)) as opened, opened.folder(below) as fd:
        yield fd


def content_of(name: str, data: bytes) -> FileContent:
    """A file's bytes as clients get them: text if it is UTF-8, else in base64."""
    if b"\0" not in data[:_BINARY_LOOK]:
        try:
            return FileContent("text", data.decode())
        except UnicodeDecodeError:
            pass
    mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return FileContent("binary", base64.b64encode(data).decode(), "base64", mime)


def _below(directory: str, path: str) -> bytes:
    """Where a path leads, from the directory; empty if that is the directory itself."""
    if "\0" in path or len(path) > _LONGEST_PATH:
        raise InvalidPath("no file can have this path")
    try:
        real = os.path.realpath(os.path.join(directory, path))
        relative = os.path.relpath(real, directory)
        encoded = os.fsencode(relative)
    except (OSError, ValueError) as error:
        raise InvalidPath(f"no file can have this path: {error}") from None
    if relative == ".." or relative.startswith("../"):
        raise PathRefused(f"{path} is outside of {directory}")
    return b"" if relative == "." else encoded


def _refusal(path: str, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return PathNotFound(path)
    return PathRefused(f"{path} cannot be opened: {error.strerror}")


def _entries(fd: int) -> Iterator[tuple[bool, str, bytes]]:
    """Whether it is a file, how it is ordered by name, and its name."""
    with os.scandir(fd) as found:
        for entry in found:
            is_file = entry.is_file(follow_symlinks=False)
            if is_file or entry.is_dir(follow_symlinks=False):
                yield is_file, entry.name.lower(), os.fsencode(entry.name)


def _node(directory: str, folder: bytes, ignore: Ignore, is_file: bool, name: bytes) -> FileNode:
    path = name if folder == b"." else folder + b"/" + name
    return FileNode(
        name=_shown(name),
        path=_shown(path if is_file else path + b"/"),
        absolute=os.path.join(directory, _shown(path)),
        type="file" if is_file else "directory",
        ignored=ignore.excludes(name, not is_file),
    )


def _shown(name: bytes) -> str:
    return name.decode(errors="replace")


def _ignore(folder: bytes) -> Ignore:
    """The rules of the folder's worktree that hold in it; inside of an ignored one, all is."""
    worktree = find_worktree(os.fsdecode(folder))
    here = os.fsencode(worktree.root)
    ignore = _at_root(worktree.repository, here)
    for name in os.path.relpath(folder, here).split(b"/"):
        if name == b".":
            continue
        if ignore.excludes(name, True):
            return Ignore.at_root(own=b"*")
        here += b"/" + name
        ignore = ignore.below(name, _rules(here))
    return ignore


def _at_root(repository: Repository | None, root: bytes) -> Ignore:
    if repository is None:
        return Ignore.at_root(own=_rules(root))
    config = read_config(repository)
    return Ignore.at_root(
        excludes_file=read_small(config.excludes_file or b"", LARGEST_RULES) or b"",
        info_exclude=read_small(repository.excludes_file, LARGEST_RULES) or b"",
        own=_rules(root),
        ignore_case=config.ignore_case,
    )


def _rules(folder: bytes) -> bytes:
    return read_small(folder + b"/.gitignore", LARGEST_RULES) or b""
