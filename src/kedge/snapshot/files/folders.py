"""Folders made on the way to a file, and removed once they are empty."""

import errno
import os
from collections.abc import Iterator

from kedge.domain.errors import PathRefused
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root, writable_components

# It is in use, not ours to change, or something else by now: it stays.
_STAYS = {
    errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES,
    errno.EPERM, errno.EROFS,
}  # fmt: skip


def make_folders(root: Root, path: bytes) -> Iterator[bytes]:
    """Make the folder and those above it that do not exist; each one that was made, from the top.

    Raises `FolderBlocked` where a symlink or a file is in the way.
    """
    names = writable_components(path)
    for count, name in enumerate(names):
        with root.folder(b"/".join(names[:count])) as parent:
            try:
                os.mkdir(name, 0o777, dir_fd=parent)
            except FileExistsError:
                continue
        yield b"/".join(names[: count + 1])


def remove_if_empty(root: Root, path: bytes) -> bool:
    """Remove a folder, never what is in it; whether it is gone by this."""
    parent, _, name = path.rpartition(b"/")
    try:
        writable_components(path)
        with root.folder(parent) as dir_fd:
            os.rmdir(name, dir_fd=dir_fd)
    except (FolderAbsent, FolderBlocked, PathRefused):
        return False
    except OSError as error:
        if error.errno in _STAYS:
            return False
        raise
    return True


def hollow(root: Root, path: bytes) -> list[bytes]:
    """A folder that holds nothing but folders, and all of them, the deepest first; else nothing."""
    found = [path]
    for folder in found:
        try:
            with root.folder(folder) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False) or entry.name == ".git":
                        return []
                    found.append(folder + b"/" + os.fsencode(entry.name))
        except (FolderAbsent, FolderBlocked, PermissionError):
            return []
    return found[::-1]
