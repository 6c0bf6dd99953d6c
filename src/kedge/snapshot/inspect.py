"""Reads what is on disk at paths now: always hashed, and stored if a plan may replace it."""

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from kedge.domain.errors import PathRefused
from kedge.domain.file_states import Absent, Outcome, Present, Reason, State, Uncovered
from kedge.snapshot.files.reader import (
    OBSTACLES,
    Blocked,
    Content,
    Disk,
    Folder,
    Obstacle,
    ReadFailure,
    born,
    hash_file,
    read_file,
)
from kedge.snapshot.files.root import (
    FolderAbsent,
    FolderBlocked,
    Root,
    components,
    writable_components,
)
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.values import MEBIBYTE
from kedge.snapshot.worktree.covered_files import REASONS

MOST_ENTRIES = 10_000
"""The entries of a folder with more files and folders than this are not listed one by one."""

_UNREADABLE = {errno.EACCES, errno.EPERM, errno.EIO}
# Nothing can exist under a name that the file system cannot hold.
_IMPOSSIBLE = {errno.ENAMETOOLONG, errno.EILSEQ}


def look(
    root: Root, store: ObjectStore, paths: Iterable[bytes], *, session: str | None, limit: int
) -> dict[bytes, Disk]:
    """The state of each path; contents are durable, and kept for a session or for a while."""
    found: dict[bytes, Disk] = {}
    for folder, group in groupby(sorted(set(paths), key=_parts), lambda path: _parts(path)[0]):
        found |= _look_in(root, folder, list(group), lambda data: store.put(BLOB, data), limit)
    present = (disk.blob for disk in found.values() if isinstance(disk, Present))
    store.hold(session, [bytes.fromhex(blob) for blob in present])
    store.flush()
    return found


def _parts(path: bytes) -> tuple[bytes, bytes]:
    folder, _, name = path.rpartition(b"/")
    return folder, name


def _look_in(
    root: Root, folder: bytes, paths: list[bytes], put: Callable[[bytes], bytes], limit: int
) -> dict[bytes, Disk]:
    """The states of some paths in one folder."""
    try:
        fd = root.open_folder(folder)
    except (PathRefused, OSError) as error:
        return dict.fromkeys(paths, _without(error))
    try:
        return {path: _look_at(root, fd, path, put, limit) for path in paths}
    finally:
        os.close(fd)


def _without(error: PathRefused | OSError) -> Disk:
    """The state of a path whose folder cannot be opened."""
    if isinstance(error, PathRefused):
        return Obstacle(Outcome.SKIPPED, str(error))
    if isinstance(error, FolderBlocked):
        return Blocked(error.at)
    if isinstance(error, FolderAbsent) or error.errno in _IMPOSSIBLE:
        return Absent()
    if error.errno in _UNREADABLE:
        return Obstacle(Outcome.SKIPPED, "its folder cannot be read")
    raise error


def _look_at(root: Root, fd: int, path: bytes, put: Callable[[bytes], bytes], limit: int) -> Disk:
    try:
        name = writable_components(path)[-1]
    except PathRefused as error:
        return Obstacle(Outcome.SKIPPED, str(error))
    found = read_file(fd, name, limit)
    if isinstance(found, Content):
        return Present(put(found.data).hex(), found.mode)
    if found is ReadFailure.ABSENT:
        return Absent()
    if found is ReadFailure.FOLDER:
        return _folder(root, path)
    if found is ReadFailure.TOO_LARGE:
        return Obstacle(Outcome.SKIPPED, f"it is larger than {_size(limit)}")
    return OBSTACLES[found]


def _folder(root: Root, path: bytes) -> Folder | Obstacle:
    """All files in a folder, at any depth."""
    entries: set[bytes] = set()
    folders = [path]
    for folder in folders:
        try:
            with root.folder(folder) as fd, os.scandir(fd) as listing:
                for entry in listing:
                    below = folder + b"/" + os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(below)
                    else:
                        entries.add(below)
                    if len(entries) + len(folders) > MOST_ENTRIES:
                        return Obstacle(Outcome.CONFLICT, "there is a folder that holds a lot")
        except (FolderAbsent, FolderBlocked):
            return OBSTACLES[ReadFailure.UNSTABLE]
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            return Obstacle(Outcome.SKIPPED, "there is a folder that cannot be read")
    return Folder(frozenset(entries))


def _size(limit: int) -> str:
    return f"{limit} bytes" if limit % MEBIBYTE else f"{limit // MEBIBYTE} MiB"


def identify(root: Root, path: bytes) -> State:
    """The state of a path, with only its blob's id computed: nothing is stored."""
    *above, name = components(path)
    try:
        with root.folder(b"/".join(above)) as fd:
            found = hash_file(fd, name)
    except (FolderAbsent, FolderBlocked):
        return Absent()
    except PermissionError:
        return Uncovered(Reason.UNREADABLE)
    if not isinstance(found, ReadFailure):
        mode, blob = found
        return Present(blob.hex(), mode)
    return _without_content(found)


def capture(root: Root, store: ObjectStore, path: bytes, limit: int) -> State:
    """Store the content of a path; it is durable after the store's next flush."""
    *above, name = components(path)
    try:
        with root.folder(b"/".join(above)) as fd:
            found = read_file(fd, name, limit)
    except (FolderAbsent, FolderBlocked):
        return Absent()
    except PermissionError:
        return Uncovered(Reason.UNREADABLE)
    if isinstance(found, Content):
        return Present(store.put(BLOB, found.data).hex(), found.mode)
    return _without_content(found)


@dataclass(frozen=True, slots=True)
class Times:
    """When a file was made and written last, by the file clock."""

    made: int
    written: int


def older_than(root: Root, paths: Iterable[bytes], since: int) -> dict[bytes, Times]:
    """Those of the paths whose file was made before a time of the file clock."""
    older: dict[bytes, Times] = {}
    for folder, group in groupby(sorted(paths, key=_parts), lambda path: _parts(path)[0]):
        try:
            with root.folder(folder) as fd:
                times = ((path, _times(fd, _parts(path)[1])) for path in group)
                older.update((path, each) for path, each in times if each and each.made < since)
        except OSError:
            continue  # gone since it was examined
    return older


def _times(fd: int, name: bytes) -> Times | None:
    made = born(fd, name)
    if made is None:
        return None
    try:
        return Times(made, os.lstat(name, dir_fd=fd).st_mtime_ns)
    except FileNotFoundError:
        return None


def _without_content(found: ReadFailure) -> State:
    # A folder is not a file: the path itself holds nothing.
    if found is ReadFailure.ABSENT or found is ReadFailure.FOLDER:
        return Absent()
    return Uncovered(REASONS[found])
