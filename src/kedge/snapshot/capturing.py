"""Single paths as they are on disk, for tools that say themselves what they read and write."""

import os

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


def is_moved(root: Root, path: bytes, since: int, *, replaces: bool) -> bool:
    """Whether the file at a path is older than a time of the file clock, so that it was not made
    since but moved there. With `replaces`, there was another one before, which may have been
    written over: then its content must be that old, too."""
    *above, name = components(path)
    try:
        with root.folder(b"/".join(above)) as fd:
            status = os.lstat(name, dir_fd=fd)
            made = born(fd, name)
    except OSError:
        return False
    # What has another name is there as well.
    if made is None or made >= since or status.st_nlink > 1:
        return False
    return not replaces or status.st_mtime_ns < since


def _without_content(found: Failure) -> State:
    # A folder is no file: at the path itself, nothing is held.
    if found is Failure.ABSENT or found is Failure.FOLDER:
        return Absent()
    return Uncovered(REASONS[found])
