"""Turns a journal into a pack and ref files; doing it again after a crash at any point is harmless.

The order is what makes it so: the pack is on the disk before a ref names what is in it, and the
journal goes only when the refs are written.

A commit may follow one that is still in the journal of another process. So that git, which sees no
journals, finds all that a ref holds, what is in no pack yet is sealed together with what needs it.
"""

import secrets
from collections.abc import Callable, Collection, Iterator

from kedge.domain.errors import ObjectMissing, SnapshotStoreDamaged
from kedge.snapshot.objects.durable import disk_errors, sync_folder
from kedge.snapshot.objects.formats import COMMIT, NewObject
from kedge.snapshot.objects.journal import Journal
from kedge.snapshot.objects.keeps import ReadObject, new_merge, read_link, supersedes
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packfile import write_pack
from kedge.snapshot.objects.reaching import needs
from kedge.snapshot.objects.records import Tip
from kedge.snapshot.objects.refs import Refs


def seal(
    journal: Journal, layout: Layout, read: ReadObject, is_packed: Callable[[bytes], bool]
) -> None:
    """Move what a journal holds to where git finds it, then remove the journal."""
    with disk_errors(f"sealing {journal.path}"):
        beside = _needed_beside(journal, read, is_packed)
        pack(journal, layout, beside)
        if journal.refs:
            refs = Refs(layout)
            with refs.locked():
                for name, tip in journal.refs.items():
                    move_ref(refs, layout, read, name, tip)
        journal.path.unlink(missing_ok=True)
        sync_folder(layout.journals)


def pack(journal: Journal, layout: Layout, beside: Collection[NewObject] = ()) -> None:
    """Put the objects of a journal, and others, into a pack; the journal stays."""
    count = len(journal.index) + len(beside)
    if count:
        with disk_errors(f"packing {journal.path}"):
            write_pack(layout.packs, journal.unique, count, _contents(journal, beside))


def _contents(
    journal: Journal, beside: Collection[NewObject]
) -> Iterator[tuple[bytes, bytes, bytes]]:
    for id in list(journal.index):
        found = journal.read(id)
        if found is None:
            raise SnapshotStoreDamaged(f"{journal.path} lost {id.hex()}")
        yield id, *found
    for kind, id, content in beside:
        yield id, kind, bytes(content)


def _needed_beside(
    journal: Journal, read: ReadObject, is_packed: Callable[[bytes], bool]
) -> list[NewObject]:
    """What the journal's refs need and neither the journal nor any pack has.

    Of the journal itself only the commits and their own trees are looked into: whoever put another
    tree there has put what it needs too, or keeps that by one of these commits.
    """
    found: list[NewObject] = []
    todo = {tip.commit for tip in journal.refs.values()}
    seen = set(todo)
    while todo:
        id = todo.pop()
        inside = journal.read(id)
        if inside is None and is_packed(id):
            continue
        try:
            kind, content = inside or read(id)
        except (ObjectMissing, SnapshotStoreDamaged):
            continue  # nobody has it whole; that must not keep the rest from being sealed
        if inside is None:
            found.append((kind, id, content))
        for needed, _ in needs(kind, content):
            is_looked_into = kind == COMMIT or needed not in journal.index
            if is_looked_into and needed not in seen:
                seen.add(needed)
                todo.add(needed)
    return found


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
