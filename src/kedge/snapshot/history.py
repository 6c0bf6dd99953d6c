"""Queries on kept snapshots: the state of a path in one, and the changes between two."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from stat import S_IFLNK, S_IFREG, S_ISLNK

from kedge.domain.file_states import Absent, Present, Reason, State, Uncovered
from kedge.snapshot.diffs.trees import TreeChange, compare
from kedge.snapshot.objects.formats import EMPTY_TREE, parse_tree
from kedge.snapshot.values import Change, Snapshot

_EXECUTABLE = 0o100755
_FOLDER = 0o40000
_LINK = S_IFLNK | 0o777
# Parsed trees to cache: one walk visits the parents of a path again and again.
_TREES = 4096

_TOLD = {Reason.LARGE, Reason.SPECIAL, Reason.UNREADABLE, Reason.UNSTABLE}

ReadObject = Callable[[bytes], bytes]


class View:
    """A snapshot that can be queried by path."""

    def __init__(self, read: ReadObject, snapshot: Snapshot) -> None:
        self._read = read
        self.snapshot = snapshot
        self.files = bytes.fromhex(snapshot.id)
        self._notes = bytes.fromhex(snapshot.notes)
        self._words = lru_cache(_TREES)(self._word)
        self._trees = lru_cache(_TREES)(self._tree)

    def state(self, path: bytes) -> State:
        """The state of a path in the snapshot."""
        entry: tuple[int, bytes] | None = (_FOLDER, self.files)
        for name in path.split(b"/"):
            if entry is None or entry[0] != _FOLDER:
                return self.state_of(path, None)
            entry = self._trees(entry[1]).get(name)
        return self.state_of(path, entry)

    def covers(self, path: bytes, entry: tuple[int, bytes] | None) -> bool:
        """Whether the state of a path is known, given its entry in the files' tree."""
        return entry is not None or not isinstance(self.state_of(path, None), Uncovered)

    def state_of(self, path: bytes, entry: tuple[int, bytes] | None) -> State:
        """The state of a path, given its entry in the files' tree."""
        note = self._note(path)
        if entry is not None and entry[0] != _FOLDER:
            return Present(entry[1].hex(), self._mode(entry[0], note))
        if note is not None and not note.startswith("mode "):
            reason, _, stamp = note.partition(" ")
            return Uncovered(Reason(reason), stamp)
        return Absent()

    def _mode(self, git_mode: int, note: str | None) -> int:
        if S_ISLNK(git_mode):
            return _LINK
        if note is not None and note.startswith("mode "):
            return S_IFREG | int(note.removeprefix("mode "), 8)
        plain, executable = self.snapshot.base
        return S_IFREG | (executable if git_mode == _EXECUTABLE else plain)

    def _note(self, path: bytes) -> str | None:
        """The note on a path, or on a folder above it."""
        tree = self._notes
        for name in path.split(b"/"):
            entry = self._trees(tree).get(name)
            if entry is None:
                return None
            mode, tree = entry
            if mode != _FOLDER:
                return self._words(tree)
        return None

    def notes_against(self, other: "View") -> Iterator[TreeChange]:
        """The differences between the notes of two snapshots."""
        return compare(self._read, self._notes, other._notes)

    def _word(self, id: bytes) -> str:
        return self._read(id).decode("ascii")

    def _tree(self, id: bytes) -> dict[bytes, tuple[int, bytes]]:
        return {name: (mode, below) for name, mode, below in parse_tree(self._read(id))}


def changes(read: ReadObject, old: Snapshot, new: Snapshot) -> tuple[Change, ...]:
    """Every path whose state differs and that at least one of the two snapshots holds."""
    before, after = View(read, old), View(read, new)
    found: dict[bytes, Change] = {}
    for entry in compare(read, before.files, after.files):
        found[entry.path] = Change(
            entry.path,
            before.state_of(entry.path, entry.old),
            after.state_of(entry.path, entry.new),
        )
    # Permission bits that git's modes do not distinguish are only in the notes.
    for note in before.notes_against(after):
        if note.path not in found:
            change = Change(note.path, before.state(note.path), after.state(note.path))
            if _is_about_content(change):
                found[note.path] = change
    return tuple(found[path] for path in sorted(found))


def replaced(read: ReadObject, old: bytes, new: bytes | None) -> dict[bytes, Present]:
    """The states in a tree of files at paths where another one, or none, has something else; the
    modes are git's."""
    return {
        change.path: Present(change.old[1].hex(), change.old[0])
        for change in compare(read, old, new)
        if change.old is not None and (change.new is None or change.old[1] != change.new[1])
    }


def held(read: ReadObject, tree: bytes, paths: Iterable[bytes]) -> dict[bytes, Present]:
    """The states in a tree of files at those of the paths that it holds."""
    nothing = Snapshot(id=tree.hex(), notes=EMPTY_TREE.hex())
    view = View(read, nothing)
    states = {path: view.state(path) for path in paths}
    return {path: state for path, state in states.items() if isinstance(state, Present)}


def uncovered_changes(read: ReadObject, old: Snapshot, new: Snapshot) -> tuple[Change, ...]:
    """Paths that may have changed, but where one of two snapshots does not know.

    Paths that were ignored before, or that come and go while they are ignored, are left out.
    """
    before, after = View(read, old), View(read, new)
    found: dict[bytes, Change] = {}
    for note in before.notes_against(after):
        change = Change(note.path, before.state(note.path), after.state(note.path))
        if _is_worth_telling(change):
            found[note.path] = change
    # A folder that is ignored by now has one note, for all files that were known in it.
    for entry in compare(read, before.files, after.files):
        if entry.path not in found and entry.new is None:
            change = Change(entry.path, before.state(entry.path), after.state(entry.path))
            if _is_worth_telling(change):
                found[entry.path] = change
    return tuple(found[path] for path in sorted(found))


def _is_worth_telling(change: Change) -> bool:
    before, after = change.before, change.after
    if isinstance(before, Uncovered) and isinstance(after, Uncovered):
        return before.reason is after.reason is Reason.LARGE and before.stamp != after.stamp
    if isinstance(after, Uncovered) and isinstance(before, Present):
        return True
    sides = [side.reason for side in (before, after) if isinstance(side, Uncovered)]
    return any(reason in _TOLD for reason in sides)


def _is_about_content(change: Change) -> bool:
    held = isinstance(change.before, Present) or isinstance(change.after, Present)
    return held and change.before != change.after
