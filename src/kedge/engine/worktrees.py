"""Finds the worktree of a directory, and its identity.

A git worktree is identified by its first root commit, so that two clones are one project; any other
folder by its path. Only the repository's own files and `git rev-list` are read; nothing is written
there.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from kedge.domain.errors import DirectoryNotFound, InvalidInput
from kedge.snapshot.repository.discover import Repository, find_repository
from kedge.snapshot.repository.git_cli import ask_git, without_configuration
from kedge.snapshot.repository.signatures import read_small

_LONGEST_PATH = 2048
_LONGEST_SHALLOW = 64 * 1024 * 1024
_GIT_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Worktree:
    """A checkout on disk, or a folder that is not under version control."""

    root: str
    vcs: str | None
    repository: Repository | None = None

    def fingerprint(self) -> str:
        """A value that changes whenever the identity may have; cheap for histories of any
        length."""
        if self.repository is None:
            return ""
        head = _git(self.repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return f"{head or ''}:{_digest(self.repository.common_folder + b'/shallow')}"

    def holds(self, identity: str) -> bool:
        """Whether a former identity still belongs to this worktree."""
        if identity.startswith("dir_") or self.repository is None:
            return True
        return _git(self.repository, "cat-file", "-e", f"{identity}^{{commit}}") is not None

    def identity(self) -> str:
        """The first root commit, or a `dir_` id made from the path; walks the whole history."""
        if self.repository is not None:
            shown = _git(self.repository, "rev-list", "--max-parents=0", "HEAD", "--")
            if shown:
                return min(shown.split())
        return folder_identity(self.root)


def find_directory(directory: str | os.PathLike[str]) -> str:
    """The real path of an existing directory."""
    if directory == "":
        raise InvalidInput("the directory is an empty text; this folder is '.'", field="directory")
    real = real_path(directory)
    if not os.path.isdir(real):
        raise DirectoryNotFound(os.fspath(directory))
    return real


def real_path(path: str | os.PathLike[str]) -> str:
    """The path without links, whether it exists or not, if it can be stored and sent."""
    if not isinstance(path, str | os.PathLike):
        raise InvalidInput("a directory must be a string or a path", field="directory")
    given = os.fsdecode(path)
    if "\0" in given:
        raise InvalidInput("a path cannot hold a NUL character", field="directory")
    try:
        real = os.path.realpath(given)
        length = len(real.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            f"the folder {given!a} has a name that is not UTF-8; rename it", field="directory"
        ) from None
    if length > _LONGEST_PATH:
        raise InvalidInput(f"a path of over {_LONGEST_PATH} bytes is too long", field="directory")
    return real


def find_worktree(directory: str) -> Worktree:
    """The worktree that contains a directory: the nearest folder with a repository, else itself."""
    for folder in (Path(directory), *Path(directory).parents):
        if repository := find_repository(folder):
            return Worktree(str(folder), "git", repository)
    return Worktree(directory, None)


def folder_identity(path: str) -> str:
    """The id of a folder that has no commits."""
    return f"dir_{hashlib.sha256(path.encode()).hexdigest()[:40]}"


def _digest(path: bytes) -> str:
    content = read_small(path, _LONGEST_SHALLOW)
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _git(repository: Repository, *arguments: str) -> str | None:
    """The output of git for a repository, or None if it fails.

    Without git a folder is identified by its path for now; the commit becomes another name of it
    later.
    """
    shown = ask_git(
        repository.git_folder,
        *arguments,
        environment=without_configuration(),
        patience=_GIT_PATIENCE,
    )
    return None if shown is None else shown.decode("ascii", "replace").strip()
