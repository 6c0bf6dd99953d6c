"""The independent full read that snapshots are compared with; shares no code with kedge.snapshot.

It reads every file, hashes it itself, encodes git's trees itself and asks the real git about rules.
"""

import os
import stat
from collections.abc import Set
from dataclasses import dataclass, field
from enum import Enum

from tests.snapshot_fuzz.disk import Entry, Leaf, object_id, read_leaf, walk
from tests.snapshot_fuzz.rules import ruled_by_git

_OWN_PREFIX, _OWN_SUFFIX = b".kedge-", b"~"


class Standing(Enum):
    """What a snapshot has to say of a path."""

    PRESENT = "present"
    ABSENT = "absent"
    UNCOVERED = "uncovered"
    UNKNOWN = "absent or uncovered"
    """No file, but an uncovered folder or below something uncovered: some are looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A worktree as the oracle read it."""

    tree: str
    """The id of the git tree of everything that is covered."""
    files: dict[bytes, Leaf]
    """Everything that is covered."""
    uncovered: dict[bytes, str]
    """Everything else on disk, and why."""
    uncovered_folders: Set[bytes]
    """The folders among them."""

    def standing(self, path: bytes) -> Standing:
        """What a snapshot of this worktree has to say of a path."""
        if path in self.files:
            return Standing.PRESENT
        is_file = path in self.uncovered and path not in self.uncovered_folders
        if is_file and not is_own(path):
            return Standing.UNCOVERED
        hidden = is_own(path) or _is_within(path, self.uncovered.keys())
        return Standing.UNKNOWN if hidden else Standing.ABSENT

    def lines(self) -> list[str]:
        """The listing for people, one line for each path."""
        covered = {
            path: f"{leaf.mode:06o} {leaf.blob[:12]} {path!r}" for path, leaf in self.files.items()
        }
        others = {path: f"{why:>19} {path!r}" for path, why in self.uncovered.items()}
        return [line for _, line in sorted({**covered, **others}.items())]


def is_own(path: bytes) -> bool:
    """Whether a path has a name that kedge gives to its own files; none of them is covered."""
    names = path.split(b"/")
    return any(name.startswith(_OWN_PREFIX) and name.endswith(_OWN_SUFFIX) for name in names)


def read_worktree(root: bytes, limit: int) -> Listing:
    """Read a whole worktree; files of more than `limit` bytes are not covered."""
    reading = _Reading(root, limit)
    reading.read_space(b"")
    return Listing(
        tree=tree_id(reading.files),
        files=reading.files,
        uncovered=reading.uncovered,
        uncovered_folders=reading.uncovered_folders,
    )


def tree_id(files: dict[bytes, Leaf]) -> str:
    """The id of the git tree that holds these files."""
    top: dict[bytes, object] = {}
    for path, leaf in files.items():
        *folders, name = path.split(b"/")
        place = top
        for folder in folders:
            place = place.setdefault(folder, {})  # type: ignore[assignment]
        place[name] = leaf
    return _encode(top)


def _encode(folder: dict[bytes, object]) -> str:
    entries = []
    for name, value in folder.items():
        if isinstance(value, dict):
            entries.append((name + b"/", b"40000 " + name, _encode(value)))
        elif isinstance(value, Leaf):
            entries.append((name, _git_mode(value.mode) + b" " + name, value.blob))
    encoded = [start + b"\0" + bytes.fromhex(id) for _, start, id in sorted(entries)]
    return object_id(b"tree", b"".join(encoded))


def _git_mode(mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return b"120000"
    return b"100755" if mode & 0o100 else b"100644"


@dataclass(slots=True)
class _Reading:
    root: bytes
    limit: int
    files: dict[bytes, Leaf] = field(default_factory=dict)
    uncovered: dict[bytes, str] = field(default_factory=dict)
    uncovered_folders: set[bytes] = field(default_factory=set)

    def read_space(self, prefix: bytes, tracked: Set[bytes] = frozenset()) -> None:
        """Read one space of rules: the worktree itself, or a repository nested in it.

        `tracked` is what repositories around it track in it.
        """
        top = os.path.join(self.root, prefix).rstrip(b"/")
        entries = list(walk(top))
        nested = _nested_roots(top, entries)
        folders = [each.path for each in entries if _may_ask(each, nested)]
        ruled = ruled_by_git(top, git_folder_of(top), folders)
        tracked |= ruled.tracked
        ignored = ruled.ignored_folders - ruled.modules
        visible = {path for path in nested if not _is_within(path, ignored) and not is_own(path)}
        for each in entries:
            if each.path in visible:
                self.read_space(os.path.join(prefix, each.path), _below(each.path, tracked))
            elif not _is_within(each.path, visible):
                is_in = _is_let_in(each, ruled.files | tracked, ignored)
                self._read_entry(prefix, top, each, is_in)

    def _read_entry(self, prefix: bytes, top: bytes, entry: Entry, is_let_in: bool) -> None:
        path = os.path.join(prefix, entry.path)
        why = self._reason(top, entry, is_let_in)
        if why is not None:
            self.uncovered[path] = why
            if entry.is_folder:
                self.uncovered_folders.add(path)
        elif not entry.is_folder:
            leaf = read_leaf(top, entry)
            if leaf is None:
                self.uncovered[path] = "unreadable"
            else:
                self.files[path] = leaf

    def _reason(self, top: bytes, entry: Entry, is_let_in: bool) -> str | None:
        """Why an entry is not covered, as far as that is known before reading it."""
        if _is_git(entry.path):
            return "repository"
        if is_own(entry.path):
            return "own"
        if entry.is_special:
            return "special"
        if not is_let_in:
            return "ignored"
        if stat.S_ISREG(entry.mode) and entry.size > self.limit:
            return "large"
        if entry.is_folder and not os.access(os.path.join(top, entry.path), os.R_OK | os.X_OK):
            return "unreadable"
        return None


def git_folder_of(folder: bytes) -> bytes | None:
    """The git folder of the repository whose worktree is exactly this folder, if it is one."""
    found = os.path.join(folder, b".git")
    if os.path.isfile(found):
        with open(found, "rb") as file:
            said = file.read(4096)
        if not said.startswith(b"gitdir: "):
            return None
        found = os.path.join(folder, said.removeprefix(b"gitdir: ").rstrip(b"\r\n"))
    is_linked = os.path.isfile(os.path.join(found, b"commondir"))
    needed = [b"HEAD"] if is_linked else [b"HEAD", b"objects", b"refs"]
    return found if all(os.path.exists(os.path.join(found, name)) for name in needed) else None


def _is_let_in(entry: Entry, files: Set[bytes], ignored: Set[bytes]) -> bool:
    return not _is_within(entry.path, ignored) if entry.is_folder else entry.path in files


def _nested_roots(top: bytes, entries: list[Entry]) -> set[bytes]:
    """The outermost repositories inside this one."""
    holders = [each.path[:-5] for each in entries if each.path.endswith(b"/.git")]
    roots = {path for path in holders if git_folder_of(os.path.join(top, path)) is not None}
    return {path for path in roots if not any(each in roots for each in _ancestors(path))}


def _may_ask(entry: Entry, nested: Set[bytes]) -> bool:
    """Whether git answers questions about this folder: not of what lies in another repository."""
    inside = any(each in nested for each in _ancestors(entry.path))
    return entry.is_folder and not _is_git(entry.path) and not inside


def _below(folder: bytes, paths: Set[bytes]) -> Set[bytes]:
    start = folder + b"/"
    return {path.removeprefix(start) for path in paths if path.startswith(start)}


def _is_git(path: bytes) -> bool:
    return path.rsplit(b"/", 1)[-1] == b".git"


def _is_within(path: bytes, folders: Set[bytes]) -> bool:
    return path in folders or any(each in folders for each in _ancestors(path))


def _ancestors(path: bytes) -> list[bytes]:
    """The folders above a path, innermost first."""
    parts = path.split(b"/")
    return [b"/".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
