"""The in-memory tree as git trees: one of the files, one of the notes (see `docs/snapshots.md`)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from stat import S_IFREG, S_ISLNK, S_IXUSR

from kedge.snapshot.objects.formats import EMPTY_TREE, encode_tree
from kedge.snapshot.values import Reason
from kedge.snapshot.worktree.entries import Folder
from kedge.snapshot.worktree.keeping import git_mode

_mode_of: "attrgetter[int]" = attrgetter("mode")

_FOLDER_MODE = 0o40000
_FILE_MODE = 0o100644
_USUAL = ((0o644, 0o755), (0o664, 0o775), (0o600, 0o700), (0o640, 0o750), (0o660, 0o770))

Put = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Trees:
    """The two trees of a snapshot."""

    files: bytes
    notes: bytes


def write_trees(top: Folder, base: tuple[int, int], put_tree: Put, put_blob: Put) -> Trees:
    """Write the trees of every folder that changed, from the deepest up."""
    for folder in reversed(_unwritten(top)):
        folder.tree = _put(put_tree, _file_entries(folder))
        folder.notes = _put(put_tree, _note_entries(folder, base, put_blob))
    return Trees(top.tree or _put_empty(put_tree), top.notes or _put_empty(put_tree))


def _unwritten(top: Folder) -> list[Folder]:
    found = []
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        if folder.tree is None or folder.notes is None:
            found.append(folder)
            waiting.extend(folder.folders.values())
    return found


Entry = tuple[bytes, int, bytes]


def _file_entries(folder: Folder) -> list[Entry]:
    entries = [(name, git_mode(file.mode), file.blob) for name, file in folder.files.items()]
    entries += [
        (name, _FOLDER_MODE, below.tree) for name, below in folder.folders.items() if below.tree
    ]
    return entries


def _note_entries(folder: Folder, base: tuple[int, int], put_blob: Put) -> list[Entry]:
    plain, executable = base
    entries = [
        (name, _FILE_MODE, put_blob(_uncovered_note(folder, name, reason)))
        for name, reason in folder.uncovered.items()
    ]
    for name, file in folder.files.items():
        bits = file.mode & 0o7777
        if bits != (executable if bits & S_IXUSR else plain) and not S_ISLNK(file.mode):
            entries.append((name, _FILE_MODE, put_blob(b"mode %o" % bits)))
    entries += [
        (name, _FOLDER_MODE, below.notes) for name, below in folder.folders.items() if below.notes
    ]
    return entries


def _uncovered_note(folder: Folder, name: bytes, reason: Reason) -> bytes:
    if reason is Reason.LARGE and name in folder.large:
        return b"%b %b" % (reason.encode(), folder.large[name])
    return reason.encode()


def _put(put_tree: Put, entries: list[Entry]) -> bytes:
    return put_tree(encode_tree(entries)) if entries else b""


def _put_empty(put_tree: Put) -> bytes:
    assert put_tree(b"") == EMPTY_TREE
    return EMPTY_TREE


def usual_bits(top: Folder) -> tuple[int, int]:
    """The permission bits that most files have, so that the notes need not mention them."""
    modes = Counter[int]()
    for folder in top.everything():
        modes.update(map(_mode_of, folder.files.values()))
    return max(_USUAL, key=lambda pair: sum(modes[S_IFREG | bits] for bits in pair))
