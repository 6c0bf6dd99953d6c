"""What one process knows of a worktree's files, handed on to the next through the data folder."""

from kedge.snapshot import kept
from kedge.snapshot.objects.durable import make_folder, replace_file
from kedge.snapshot.opening import Opened
from kedge.snapshot.values import Snapshot
from kedge.snapshot.worktree.remembering import Remembered, load, save


def remember(opened: Opened, last: Snapshot) -> None:
    """Write down what is known, and keep the snapshot that all of it is in."""
    top, store = opened.worktree.top, opened.store
    tree = bytes.fromhex(last.id)
    if top.tree != tree:
        # Something was read since: it is in no snapshot yet.
        return
    # Of all that were ever kept for this, only the newest is of use.
    store.release(opened.holder)
    kept.keep(store, last, opened.holder)
    make_folder(opened.memory.parent)
    name = f"{opened.memory.name}.new"
    replace_file(opened.memory, save(top, tree), beside=name)


def recall(opened: Opened) -> Remembered | None:
    """What an earlier process knew, if all of it is still in the store."""
    try:
        content = opened.memory.read_bytes()
    except OSError:
        return None
    memory = load(opened.root.path, content)
    held = next(opened.store.chain(opened.holder), None)
    if memory is None or held is None or held.held.files != memory.snapshot:
        return None
    # From here on it is held by us, whatever becomes of the memory.
    kept.keep(opened.store, kept.as_snapshot(opened.store, held), None)
    now = next(opened.store.chain(opened.holder), None)
    return memory if now is not None and now.held.files == memory.snapshot else None
