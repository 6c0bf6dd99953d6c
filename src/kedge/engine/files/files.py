"""The files of a directory as they are now: found, listed, read, and compared with git.

What they were at some message is in `kedge.engine.diffs`.
"""

import os
from collections.abc import Callable, Collection
from functools import partial

from kedge.engine.files import browse, find, git_status
from kedge.engine.files.browse import FileContent, FileNode
from kedge.engine.files.file_names import FileNames
from kedge.engine.files.find import Kind, Match
from kedge.engine.files.git_status import Branches, CheckoutChanges, CheckoutSummary, Mode
from kedge.engine.worktrees import real_path
from kedge.snapshot.repository.git_cli import aside

_USUAL = 10
_CONTEXT = 3


class Files:
    """The files below a directory; without one, below that of the engine.

    Every method can be cancelled: git and ripgrep are gone before it returns.
    """

    def __init__(self, default: Callable[[], str]) -> None:
        self._default = default
        self._names = FileNames()

    async def branches(self, directory: str | os.PathLike[str] | None = None) -> Branches:
        """The branch that is checked out, and the one that others begin with."""
        return await aside(partial(git_status.branches, self._at(directory)))

    async def status(self, directory: str | os.PathLike[str] | None = None) -> CheckoutChanges:
        """The files that differ from the last commit, without patches."""
        return await aside(partial(git_status.changes, self._at(directory)))

    async def diff(
        self,
        mode: Mode = "git",
        *,
        context: int = _CONTEXT,
        directory: str | os.PathLike[str] | None = None,
    ) -> CheckoutChanges:
        """What differs from the last commit, or with "branch" from where the branch left the
        default one: a patch for each file, with so many lines around each change."""
        return await aside(partial(git_status.patches, self._at(directory), mode, context))

    async def raw_diff(self, directory: str | os.PathLike[str] | None = None) -> tuple[bytes, bool]:
        """What differs from the last commit as one patch, and whether something is left out of
        it."""
        return await aside(partial(git_status.raw_patch, self._at(directory)))

    async def summary(
        self, directory: str | os.PathLike[str] | None = None, *, most: int, patience: float
    ) -> CheckoutSummary | None:
        """Branch, last commit and the first changes; None where there is no repository.

        `patience` is how many seconds git may take.
        """
        ask = partial(git_status.summary, self._at(directory), most=most, patience=patience)
        return await aside(ask)

    async def find_files(
        self,
        query: str,
        *,
        limit: int = _USUAL,
        kinds: Collection[Kind] = ("file", "directory"),
        directory: str | os.PathLike[str] | None = None,
    ) -> list[str]:
        """Paths that are like the query, the best first; those of folders end with a slash."""
        return await find.find_files(self._names, self._at(directory), query, limit, kinds)

    async def find_text(
        self, pattern: str, *, directory: str | os.PathLike[str] | None = None
    ) -> list[Match]:
        """The first lines that match a regular expression in the syntax of Rust, by file."""
        return await find.find_text(self._at(directory), pattern)

    async def list_folder(
        self, path: str = "", *, directory: str | os.PathLike[str] | None = None
    ) -> list[FileNode]:
        """The files and folders in a folder, folders first; symlinks and pipes are left out."""
        return await aside(partial(browse.list_folder, self._at(directory), path))

    async def read(
        self, path: str, *, directory: str | os.PathLike[str] | None = None
    ) -> FileContent:
        """What is in a file of at most 10 MiB."""
        return await aside(partial(browse.read_content, self._at(directory), path))

    def _at(self, directory: str | os.PathLike[str] | None) -> str:
        return self._default() if directory is None else real_path(directory)
