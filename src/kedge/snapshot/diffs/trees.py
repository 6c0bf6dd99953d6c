"""Compares two git trees, without reading the contents of files.

The cost depends on the differences: equal folders are not opened. Nothing recurses, so no tree is
too deep.
"""

import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from kedge.domain.file_states import Present, State
from kedge.snapshot.objects.formats import FOLDER_MODE, Entry, parse_tree
from kedge.snapshot.values import Change

Read: TypeAlias = Callable[[bytes], bytes]
"""Returns the content of the object with this raw id."""

Node: TypeAlias = tuple[int, bytes]
"""Git's mode and the raw id of a tree entry."""


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A file that differs between two trees; None on the side where it does not exist."""

    path: bytes
    old: Node | None
    new: Node | None


def compare(read: Read, old: bytes | None, new: bytes | None) -> Iterator[TreeChange]:
    """The files that differ between two trees, sorted by path; None is the empty tree.

    If a file became a folder or the reverse, each path is a deletion or an addition.
    """
    if old == new:
        return
    pending = [TreeChange(b"", _root(old), _root(new))]
    while pending:
        change = pending.pop()
        if _is_folder(change.old) or _is_folder(change.new):
            pending.extend(_inside(read, change))
        else:
            yield change


def _root(tree: bytes | None) -> Node | None:
    return None if tree is None else (FOLDER_MODE, tree)


def _is_folder(node: Node | None) -> bool:
    return node is not None and node[0] == FOLDER_MODE


def _entries(read: Read, node: Node | None) -> list[Entry]:
    return parse_tree(read(node[1])) if node is not None and _is_folder(node) else []


def _inside(read: Read, folder: TreeChange) -> Iterator[TreeChange]:
    """The differences directly in a folder, last path first, because a stack is read from its
    end."""
    before = set(_entries(read, folder.old))
    after = set(_entries(read, folder.new))
    old = _by_path(folder.path, before - after)
    new = _by_path(folder.path, after - before)
    for path in sorted(old.keys() | new.keys(), reverse=True):
        yield TreeChange(path, old.get(path), new.get(path))


def _by_path(folder: bytes, entries: set[Entry]) -> dict[bytes, Node]:
    # A folder's path ends with a slash, so that it never equals a file's path and sorts where the
    # paths of the files below it belong, as in git's own order.
    return {
        folder + name + (b"/" if mode == FOLDER_MODE else b""): (mode, id)
        for name, mode, id in entries
    }


_FILE, _PROGRAM, _LINK = 0o100644, 0o100755, 0o120000


def tree_changes(changes: Iterable[Change]) -> list[TreeChange]:
    """The changes by path, as git sees them: of the permission bits it knows only one.

    Differences that git does not see are left out, and so are uncovered paths.
    """
    covered = [change for change in changes if change.is_covered]
    found = [
        TreeChange(change.path, _node(change.before), _node(change.after)) for change in covered
    ]
    return sorted((each for each in found if each.old != each.new), key=lambda each: each.path)


def _node(state: State) -> Node | None:
    if not isinstance(state, Present):
        return None
    is_program = state.mode & stat.S_IXUSR
    mode = _LINK if state.is_link else _PROGRAM if is_program else _FILE
    return mode, bytes.fromhex(state.blob)
