"""The file that a path in a call's arguments means, resolved once and kept.

The place that permission was asked for is the one opened later, even if symlinks change in between.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.agent.tools.tool import ToolFailure
from kedge.domain.text import mend_text, printable

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call

_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A path, with the folder from which it is opened component by component."""

    path: Path
    """As the model means it; symlinks on its way are not resolved."""
    real: Path
    """With all symlinks resolved."""
    root: Path
    """A folder above it: the worktree or, outside of that, the nearest existing one."""
    shown: str
    """For titles: relative to the worktree."""
    patterns: tuple[str, ...]
    """The texts that rules match: the path as given, and its target if that is elsewhere."""
    is_own: bool
    """Whether a symlink at the path itself is meant, and not its target."""
    is_inside_git: bool
    """Whether it is one of git's own files, which no tool of kedge writes."""

    @property
    def below(self) -> bytes:
        """The path relative to the root; empty for the root itself."""
        relative = os.path.relpath(self.real, self.root)
        return b"" if relative == "." else os.fsencode(relative)

    @property
    def plain_patterns(self) -> tuple[str, ...]:
        """Patterns that match this place and no other, for rules that are kept."""
        return tuple(each for each in self.patterns if not set("*?") & set(each))


def place_of(call: "Call", given: str) -> FilePlace:
    """The place that a path leads to, with all symlinks resolved."""
    path = _meant(call, given)
    return _place(call, path, Path(os.path.realpath(path)), is_own=False)


def own_place_of(call: "Call", given: str) -> FilePlace:
    """The path itself, even if it is a symlink: that is what a deletion deletes."""
    path = _meant(call, given)
    return _place(call, path, _own(path), is_own=True)


def is_same_place(place: FilePlace) -> bool:
    """Whether the path still leads to the same place."""
    path = place.path
    return place.real == (_own(path) if place.is_own else Path(os.path.realpath(path)))


def check_same(place: FilePlace) -> None:
    """Raise if the path no longer leads to the place that permission was asked for."""
    if not is_same_place(place):
        raise ToolFailure(
            f"{printable(place.path)} leads elsewhere now than when it was asked for. Try again."
        )


def check_folder(place: FilePlace) -> None:
    """Raise unless the folder to search exists and is the one that was asked for."""
    check_same(place)
    if not place.real.is_dir():
        raise ToolFailure(f"{printable(place.path)} is no folder. Name one that exists.")


def _meant(call: "Call", given: str) -> Path:
    if not given.strip():
        raise ToolFailure("The path is empty. Name a file or a folder.")
    if "\0" in given or len(given) > _LONGEST:
        raise ToolFailure("No file can have this path: it is too long or holds a NUL character.")
    return call.path(mend_text(given))


def _own(path: Path) -> Path:
    return Path(os.path.realpath(path.parent)) / path.name


def _place(call: "Call", path: Path, real: Path, *, is_own: bool) -> FilePlace:
    leads_to = printable(_from_worktree(real, *_roots(call)))
    is_below = path.is_relative_to(call.worktree)
    shown = printable(_from_worktree(path, call.worktree)) if is_below else leads_to
    patterns = dict.fromkeys((shown, leads_to))
    roots = [root for root in _roots(call) if real.is_relative_to(root)]
    is_inside_git = _is_inside_git(real, max(roots, key=_depth, default=Path("/")))
    root = roots[0] if roots else _nearest(real)
    return FilePlace(path, real, root, shown, tuple(patterns), is_own, is_inside_git)


def _from_worktree(path: Path, *roots: Path) -> str:
    """Relative to the first of these folders that contains it."""
    for root in roots:
        if path.is_relative_to(root):
            return os.path.relpath(path, root)
    return str(path)


def _roots(call: "Call") -> Iterator[Path]:
    return (Path(os.path.realpath(root)) for root in (call.worktree, call.directory))


def _depth(path: Path) -> int:
    return len(path.parts)


def _nearest(real: Path) -> Path:
    return next((folder for folder in real.parents if folder.is_dir()), Path("/"))


def _is_inside_git(real: Path, root: Path) -> bool:
    """Whether a path is in a folder `.git`, or in one that a file of this name points to, below a
    root: a worktree may itself be in a repository."""
    if any(name.lower() == ".git" for name in real.relative_to(root).parts):
        return True
    above = (each for each in (real, *real.parents) if each != root and each.is_relative_to(root))
    return any(map(_is_repository, above))


def _is_repository(folder: Path) -> bool:
    """Whether it is git's own folder of a repository, a worktree or a submodule."""
    return os.path.isfile(folder / "HEAD") and (
        os.path.isfile(folder / "commondir")
        or (os.path.isdir(folder / "objects") and os.path.isdir(folder / "refs"))
    )
