"""What is wrong with a store: its files, and the objects that its refs need and that it lacks.

Nothing is changed. Packs are compared with their checksums, so every byte of them is read once;
commits and trees are read and hashed on the way through the refs, blobs are looked up.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Literal, TypeAlias

from kedge.domain.errors import ObjectMissing, SnapshotError, SnapshotStoreDamaged
from kedge.snapshot.objects.formats import ID_LENGTH
from kedge.snapshot.objects.journal import Journal
from kedge.snapshot.objects.keeps import needs
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.marks import ObjectMarks
from kedge.snapshot.objects.packs import read_ids
from kedge.snapshot.objects.view import StoreView

REACHED, LACKING = 1, 2
"""Marks: a ref needs the object, and the store has it or not."""

_PIECE = 1 << 20
_NAMED = 5
"""How many lacking objects of a ref are named."""

Trouble: TypeAlias = Literal[
    "layout", "pack", "pack-without-index", "index-without-pack", "journal", "ref", "borrowed"
]

Tell: TypeAlias = Callable[[int], None]
"""Told how many more bytes or objects were looked at."""


@dataclass(frozen=True, slots=True)
class StoreTrouble:
    """Something wrong with a file of a store."""

    kind: Trouble
    path: Path
    how: str


@dataclass(slots=True)
class Lacking:
    """The objects that one ref needs and that cannot be read."""

    ref: str
    count: int = 0
    some: list[str] = field(default_factory=list)

    def add(self, id: bytes) -> None:
        self.count += 1
        if len(self.some) < _NAMED:
            self.some.append(id.hex())


def troubles_of_files(view: StoreView, tell: Tell) -> Iterator[StoreTrouble]:
    """What is wrong with the files of a store."""
    layout = view.layout
    for path in (layout.root / "HEAD", layout.root / "config"):
        if not path.is_file():
            yield StoreTrouble("layout", path, "is missing")
    for folder in (layout.packs, layout.journals, *layout.ref_folders):
        if not folder.is_dir():
            yield StoreTrouble("layout", folder, "is missing")
            return
    yield from _refs(view)
    yield from _journals(view)
    for index in sorted(layout.packs.glob("pack-*.idx")):
        yield from _pack(index, tell)
    for pack in sorted(layout.packs.glob("pack-*.pack")):
        if not pack.with_suffix(".idx").exists() and pack.exists():
            yield StoreTrouble("pack-without-index", pack, "has no index beside it")
    if layout.alternates.exists():
        yield StoreTrouble("borrowed", layout.alternates, "names folders of users")


def is_used(layout: Layout) -> bool:
    """Whether anything was ever stored: its folders were complete before that."""
    folders = (layout.packs, layout.journals, *layout.ref_folders)
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def _refs(view: StoreView) -> Iterator[StoreTrouble]:
    for folder in view.layout.ref_folders:
        for path in sorted(folder.iterdir()):
            if path.name.endswith(".lock"):
                continue
            try:
                text = path.read_text("ascii", "replace").strip()
            except FileNotFoundError:
                continue  # released and collected since it was listed
            if len(text) != 2 * ID_LENGTH or any(each not in "0123456789abcdef" for each in text):
                yield StoreTrouble("ref", path, "does not hold the id of a commit")


def _journals(view: StoreView) -> Iterator[StoreTrouble]:
    for path in sorted(view.layout.journals.glob("*.journal")):
        try:
            journal = Journal(path, os.open(path, os.O_RDONLY))
        except FileNotFoundError:
            continue  # sealed since it was listed
        try:
            if journal.try_lock():
                # Its writer is dead. What a living one writes right now may look torn.
                journal.verify()
                if why := journal.why_damaged():
                    yield StoreTrouble("journal", path, why.removeprefix(f"{path} "))
        finally:
            journal.close()


def _pack(index: Path, tell: Tell) -> Iterator[StoreTrouble]:
    pack = index.with_suffix(".pack")
    if not pack.exists():
        if index.exists():
            yield StoreTrouble("index-without-pack", index, "has no pack beside it")
        return
    try:
        end, is_whole = _end_of(index, tell)
        end_of_pack, is_pack_whole = _end_of(pack, tell)
    except FileNotFoundError:
        return  # a collection replaced it
    if not is_whole:
        yield StoreTrouble("pack", index, "is not what was written: its checksum differs")
    elif not is_pack_whole or end[:ID_LENGTH] != end_of_pack[ID_LENGTH:]:
        yield StoreTrouble("pack", pack, "is not what was written: its checksum differs")


def _end_of(path: Path, tell: Tell) -> tuple[bytes, bool]:
    """The last bytes of a file, as long as two checksums, and whether the very last one is that of
    all before it."""
    digest, end = sha1(usedforsecurity=False), b""
    kept = 2 * ID_LENGTH
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            tell(len(piece))
            end += piece
            digest.update(end[:-kept])
            end = end[-kept:]
    digest.update(end[:-ID_LENGTH])
    return end, digest.digest() == end[-ID_LENGTH:]


def bytes_to_check(view: StoreView) -> int:
    """How much `troubles_of_files` is going to read."""
    total = 0
    for path in view.layout.packs.glob("pack-*"):
        if path.suffix in (".pack", ".idx"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue  # a collection replaced it
    return total


def distrust(view: StoreView, marks: ObjectMarks, pack: Path) -> None:
    """Mark those objects of a damaged pack as lacking that can no longer be read anywhere."""
    try:
        ids = read_ids(pack.with_suffix(".idx"))
    except (OSError, ValueError):
        return
    for at in range(0, len(ids), ID_LENGTH):
        id = ids[at : at + ID_LENGTH]
        try:
            view.read(id)
        except (ObjectMissing, SnapshotError):
            marks.set(id, LACKING)


def lacking(view: StoreView, marks: ObjectMarks, tell: Tell) -> Iterator[Lacking]:
    """Walk through all refs, mark what they need, and tell what each of them lacks."""
    for name, tips in sorted(view.tips().items()):
        found = Lacking(name)
        _walk(view, marks, tips, found, tell)
        if found.count:
            yield found


def _walk(
    view: StoreView, marks: ObjectMarks, tips: set[bytes], found: Lacking, tell: Tell
) -> None:
    todo = [(tip, False) for tip in tips]
    while todo:
        id, is_blob = todo.pop()
        mark = marks.get(id)
        if mark == REACHED:
            continue
        content = None if mark == LACKING else _looked_up(view, marks, id, is_blob)
        if content is None:
            marks.set(id, LACKING)
            found.add(id)
            continue
        marks.set(id, REACHED)
        tell(1)
        kind, below = content
        if not is_blob:
            todo += needs(kind, below)


def _looked_up(
    view: StoreView, marks: ObjectMarks, id: bytes, is_blob: bool
) -> tuple[bytes, bytes] | None:
    """Kind and content; of a blob only whether it is there. None if it is not, or is damaged."""
    for is_last in (False, True):
        try:
            if not is_blob:
                return view.read(id)
            if marks.has(id):
                return b"", b""
        except ObjectMissing:
            pass
        except SnapshotStoreDamaged:
            return None
        if not is_last:
            # It was in a journal that has become a pack since.
            marks.refresh()
    return None
