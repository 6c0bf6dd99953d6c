"""Finds the git repository whose worktree is a given folder.

A `.git` that is a link is followed, as git does: it decides what is read, never what is written.
"""

import os
import stat
from dataclasses import dataclass

from kedge.snapshot.repository.signatures import read_regular, read_small

_LONGEST_NAME = 8192
_GITDIR = b"gitdir: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The paths of a repository's parts; any of them may be missing or unreadable."""

    root: bytes
    """The worktree."""
    git_folder: bytes
    """The files of this worktree only: HEAD, the index."""
    common_folder: bytes
    """The files that linked worktrees share; for the main worktree the git folder itself."""

    @property
    def objects_folder(self) -> bytes:
        return self.common_folder + b"/objects"

    @property
    def index_file(self) -> bytes:
        return self.git_folder + b"/index"

    @property
    def excludes_file(self) -> bytes:
        return self.common_folder + b"/info/exclude"

    @property
    def attributes_file(self) -> bytes:
        return self.common_folder + b"/info/attributes"


def find_repository(folder: str | bytes | os.PathLike[str]) -> Repository | None:
    """The repository whose worktree is exactly this folder; None if there is none.

    git requires more of a repository than a HEAD. A damaged repository still counts here: the
    repository of a parent folder must not take over.
    """
    named = os.fsencode(folder)
    root = named if os.path.isabs(named) else os.path.join(os.getcwdb(), named)
    try:
        git_folder = _git_folder(root, os.path.join(root, b".git"))
    except (OSError, ValueError):
        # Nothing there, a loop of links, or a name that no file system can hold.
        return None
    if git_folder is None:
        return None
    return Repository(root=root, git_folder=git_folder, common_folder=common_folder(git_folder))


def _git_folder(root: bytes, entry: bytes) -> bytes | None:
    if stat.S_ISDIR(os.stat(entry).st_mode):
        return entry if _has_head(entry) else None
    try:
        found = read_regular(entry, _LONGEST_NAME)
    except PermissionError:
        # There is one, though it is unknown where.
        return entry
    # A linked worktree or a submodule has a file that names its folder.
    if found is None or not found[0].startswith(_GITDIR):
        return None
    named = os.path.join(root, found[0].removeprefix(_GITDIR).rstrip(b"\r\n"))
    return named if _has_head(named) else None


def _has_head(git_folder: bytes) -> bool:
    head = git_folder + b"/HEAD"
    try:
        mode = os.lstat(head).st_mode
        # Old repositories link to the branch, which need not exist before the first commit.
        if stat.S_ISLNK(mode) and os.readlink(head).startswith(b"refs/"):
            return True
        return stat.S_ISREG(os.stat(head).st_mode)
    except PermissionError:
        # Not readable for us; that git cannot read it either shows when it is asked.
        return True


def common_folder(git_folder: bytes) -> bytes:
    """The folder that a git folder shares with other worktrees of its repository; else itself."""
    named = read_small(git_folder + b"/commondir", _LONGEST_NAME)
    if named is None or b"\0" in named:
        return git_folder
    return os.path.join(git_folder, named.rstrip(b"\r\n"))
