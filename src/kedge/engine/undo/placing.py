"""Whether the wishes for all paths go together: no file where a folder must be, nor the reverse."""

from collections.abc import Iterable, Iterator, Sequence

from kedge.domain.receipts import ReceiptOutcome
from kedge.engine.undo.wishes import Wish
from kedge.snapshot.disk import Blocked, Folder


def placed(wishes: Sequence[Wish]) -> list[Wish]:
    """The wishes, those given up that others leave no room for.

    A deletion needs nothing from other paths, and to give up a write takes no other's room away:
    so each rule has to be looked at only once.
    """
    deleted = {wish.path for wish in wishes if wish.deletes}
    possible = [_with_room(wish, deleted) for wish in wishes]
    blocking = _in_each_others_way({wish.path for wish in possible if wish.writes})
    return [
        wish.given_up(ReceiptOutcome.CONFLICT, "a file and a folder would have to be at one place")
        if wish.path in blocking
        else wish
        for wish in possible
    ]


def folders_to_remove(wishes: Iterable[Wish], made: Iterable[bytes]) -> tuple[bytes, ...]:
    """Folders that should be gone if nothing is left in them, the deepest first.

    Those that the session made, and those where a file is to be; none in which a file is to be.
    """
    folders = set(made)
    writes = [wish for wish in wishes if wish.writes]
    for wish in writes:
        folders.difference_update(folders_above(wish.path))
    for wish in writes:
        if isinstance(wish.disk, Folder):
            folders.add(wish.path)
            for entry in wish.disk.entries:
                folders.update(_folders_between(wish.path, entry))
    return tuple(sorted(folders, key=lambda folder: (-folder.count(b"/"), folder)))


def folders_above(path: bytes) -> Iterator[bytes]:
    """The folders that a path is in, the nearest first; not the root."""
    while path := path.rpartition(b"/")[0]:
        yield path


def _with_room(wish: Wish, deleted: set[bytes]) -> Wish:
    if not wish.writes:
        return wish
    match wish.disk:
        case Folder(entries) if not entries <= deleted:
            return wish.given_up(ReceiptOutcome.CONFLICT, "there is a folder with other files now")
        case Blocked(by) if by not in deleted:
            reason = "a file or a symlink is where its folder should be"
            return wish.given_up(ReceiptOutcome.CONFLICT, reason)
        case _:
            return wish


def _in_each_others_way(writes: set[bytes]) -> set[bytes]:
    blocking: set[bytes] = set()
    for path in writes:
        above = writes.intersection(folders_above(path))
        if above:
            blocking |= {path, *above}
    return blocking


def _folders_between(folder: bytes, entry: bytes) -> Iterator[bytes]:
    for above in folders_above(entry):
        if above == folder:
            return
        yield above
