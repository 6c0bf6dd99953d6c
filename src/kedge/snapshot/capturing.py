"""Single paths as they are on disk, for tools that say themselves what they read and write."""

import os
from collections.abc import Iterable
from itertools import groupby

from kedge.snapshot.files.birth import born
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root, components
from kedge.snapshot.files.reading import Content, Failure, hash_file, read_file
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.values import Absent, Present, Reason, State, Uncovered
from kedge.snapshot.worktree.keeping import REASONS


def identify(root: Root, path: bytes) -> State:
    """What is at a path, known by its blob's id alone: nothing of it is stored."""
    *above, name = components(path)
    try:
        with root.folder(b"/".join(above)) as fd:
            found = hash_file(fd, name)
    except (FolderAbsent, FolderBlocked):
        return Absent()
    except PermissionError:
        return Uncovered(Reason.UNREADABLE)
    if not isinstance(found, Failure):
        mode, blob = found
        return Present(blob.hex(), mode)
    return _without_content(found)


def capture(root: Root, store: ObjectStore, path: bytes, limit: int) -> State:
    """Put what is at a path into the store; it is durable after the store's next flush."""
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


def older_than(root: Root, paths: Iterable[bytes], since: int) -> set[bytes]:
    """Those of the paths whose file was made, and written last, before a time of the file clock."""
    older: set[bytes] = set()
    for folder, group in groupby(sorted(paths, key=_parts), lambda path: _parts(path)[0]):
        try:
            with root.folder(folder) as fd:
                older.update(path for path in group if _is_older(fd, _parts(path)[1], since))
        except OSError:
            continue  # gone since it was looked at
    return older


def _is_older(fd: int, name: bytes, since: int) -> bool:
    made = born(fd, name)
    if made is None or made >= since:
        return False
    try:
        return os.lstat(name, dir_fd=fd).st_mtime_ns < since
    except FileNotFoundError:
        return False


def _parts(path: bytes) -> tuple[bytes, bytes]:
    folder, _, name = path.rpartition(b"/")
    return folder, name


def _without_content(found: Failure) -> State:
    # A folder is no file: at the path itself, nothing is held.
    if found is Failure.ABSENT or found is Failure.FOLDER:
        return Absent()
    return Uncovered(REASONS[found])
