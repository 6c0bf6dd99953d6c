"""Which worktree a directory lies in, and who that worktree says it is.

A git worktree is named by its first root commit, so that two clones are one project; any other
folder by its path. Only the repository's own files and `git rev-list` are read; nothing is written
there.
"""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kedge.domain.errors import DirectoryNotFound, InvalidInput

_LONGEST_PATH = 2048
_GIT_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Worktree:
    """A checkout on disk, or a folder that is not under version control."""

    root: str
    vcs: str | None
    git_folder: Path | None = None

    def fingerprint(self) -> str:
        """Changes whenever the identity may have; costs little however long the history is."""
        if self.git_folder is None:
            return ""
        head = _git(self.git_folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return f"{head or ''}:{_digest(_common_folder(self.git_folder) / 'shallow')}"

    def holds(self, identity: str) -> bool:
        """Whether a former identity still has to do with this worktree."""
        if identity.startswith("dir_") or self.git_folder is None:
            return True
        return _git(self.git_folder, "cat-file", "-e", f"{identity}^{{commit}}") is not None

    def identity(self) -> str:
        """The first root commit, or a `dir_` id made from the path; walks the whole history."""
        if self.git_folder is not None:
            shown = _git(self.git_folder, "rev-list", "--max-parents=0", "HEAD", "--")
            if shown:
                return min(shown.split())
        return folder_identity(self.root)


def find_directory(directory: str | os.PathLike[str]) -> str:
    """The real path of an existing directory."""
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
    """The worktree that holds a directory: the nearest folder with a repository, else itself."""
    for folder in (Path(directory), *Path(directory).parents):
        if git_folder := _git_folder(folder):
            return Worktree(str(folder), "git", git_folder)
    return Worktree(directory, None)


def folder_identity(path: str) -> str:
    """The id of a folder that has no commits."""
    return f"dir_{hashlib.sha256(path.encode()).hexdigest()[:40]}"


def _git_folder(folder: Path) -> Path | None:
    entry = folder / ".git"
    try:
        return _named_git_folder(entry)
    except PermissionError:
        # There is one; that git cannot read it either shows when the commits are asked for.
        return entry
    except OSError:
        # It names something that no file system can hold.
        return None


def _named_git_folder(entry: Path) -> Path | None:
    if entry.is_dir():
        return entry if (entry / "HEAD").is_file() else None
    if not entry.is_file():
        return None
    # A linked worktree or a submodule names its folder in a file.
    with entry.open("rb") as file:
        text = file.read(4096)
    if not text.startswith(b"gitdir: "):
        return None
    target = entry.parent / os.fsdecode(text.removeprefix(b"gitdir: ").rstrip(b"\r\n"))
    return target if (target / "HEAD").is_file() else None


def _common_folder(git_folder: Path) -> Path:
    # A linked worktree shares what it does not have itself.
    try:
        with (git_folder / "commondir").open("rb") as file:
            named = os.fsdecode(file.read(4096).strip())
    except OSError:
        return git_folder
    return git_folder / named


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:
        return ""


def _git(git_folder: Path, *arguments: str) -> str | None:
    """What git says of a repository, or None if it cannot tell."""
    try:
        done = subprocess.run(
            ["git", f"--git-dir={git_folder}", *arguments],
            env=_git_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_PATIENCE,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        # Named by its path for now; the commit becomes one more name when it can be read.
        return None
    return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else None


def _git_environment() -> dict[str, str]:
    # What the caller set for git, and what the repository configures, must not matter here.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        # A repository that lacks objects must not make git run what its configuration says.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }
