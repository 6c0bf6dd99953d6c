"""Turns a journal into a pack and ref files; doing it again after a crash at any point is harmless.

The order is what makes it so: the pack is on the disk before a ref names what is in it, and the
journal goes only when the refs are written.
"""

import secrets
from collections.abc import Iterator

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects.durable import disk_errors, sync_folder
from kedge.snapshot.objects.formats import COMMIT
from kedge.snapshot.objects.journal import Journal
from kedge.snapshot.objects.keeps import ReadObject, new_merge, read_link, supersedes
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packfile import write_pack
from kedge.snapshot.objects.records import Tip
from kedge.snapshot.objects.refs import Refs


def seal(journal: Journal, layout: Layout, read: ReadObject) -> None:
    """Move what a journal holds to where git finds it, then remove the journal."""
    pack(journal, layout)
    with disk_errors(f"sealing {journal.path}"):
        if journal.refs:
            refs = Refs(layout)
            with refs.locked():
                for name, tip in journal.refs.items():
                    move_ref(refs, layout, read, name, tip)
        journal.path.unlink(missing_ok=True)
        sync_folder(layout.journals)


def pack(journal: Journal, layout: Layout) -> None:
    """Put the objects of a journal into a pack; the journal stays."""
    if journal.index:
        with disk_errors(f"packing {journal.path}"):
            write_pack(layout.packs, journal.unique, len(journal.index), _contents(journal))


def _contents(journal: Journal) -> Iterator[tuple[bytes, bytes, bytes]]:
    for id in list(journal.index):
        found = journal.read(id)
        if found is None:
            raise SnapshotStoreDamaged(f"{journal.path} lost {id.hex()}")
        yield id, *found


def move_ref(refs: Refs, layout: Layout, read: ReadObject, name: str, tip: Tip) -> None:
    """Let a ref hold this commit too; the lock of the refs is held by the caller.

    Commonly one of the two holds the other. If neither does, two processes kept snapshots under
    this name at once, and a merge holds both: a kept snapshot is never let go for being second.
    """
    present = refs.read(name)
    if present == tip.commit:
        return
    if present is None:
        refs.write(name, tip.commit)
        return
    ours, theirs = read_link(read, tip.commit), read_link(read, present)
    newer, older = sorted((ours, theirs), key=lambda link: (link.depth, link.id), reverse=True)
    if supersedes(read, newer.tip, older.tip):
        if newer is ours:
            refs.write(name, tip.commit)
        return
    id, merge = new_merge(newer, older)
    write_pack(layout.packs, secrets.token_hex(8), 1, [(id, COMMIT, merge)])
    refs.write(name, id)
