"""A mark for each object of a store in four bytes, however many there are: a walk through all
snapshots needs to remember where it has been, and a set of ids takes twenty times as much."""

import mmap
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from kedge.snapshot.objects.formats import EMPTY_TREE, ID_LENGTH
from kedge.snapshot.objects.view import StoreView

_IDS_AT = 8 + 1024
_FANOUT = struct.Struct(">256I")


class _Pack:
    """The sorted ids of a pack, read from its index, and their marks."""

    def __init__(self, index: Path) -> None:
        with index.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._below: tuple[int, ...] = (0, *_FANOUT.unpack_from(self._map, 8))
        self.marks = array("I", bytes(4 * len(self)))

    def __len__(self) -> int:
        return self._below[256]

    def __getitem__(self, n: int) -> bytes:
        at = _IDS_AT + n * ID_LENGTH
        return self._map[at : at + ID_LENGTH]

    def find(self, id: bytes) -> int | None:
        """The place of an id."""
        low, high = self._below[id[0]], self._below[id[0] + 1]
        n = bisect_left(self, id, low, high)
        return n if n < high and self[n] == id else None


class ObjectMarks:
    """The objects that a store has, each with a mark; 0 for those without."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._packs: dict[str, _Pack] = {}
        self._others: dict[bytes, int] = {}
        """Marks of objects that were in no pack when they were marked."""
        self.refresh()

    def refresh(self) -> None:
        """Look for new packs and journals; marks stay."""
        self._view.refresh()
        for index in self._view.layout.packs.glob("pack-*.idx"):
            # An index without its pack says what there was.
            if index.name not in self._packs and index.with_suffix(".pack").exists():
                self._packs[index.name] = _Pack(index)

    def __len__(self) -> int:
        journals = sum(len(journal.index) for journal in self._view.journals())
        return journals + sum(map(len, self._packs.values()))

    def ids(self) -> Iterator[bytes]:
        """All ids in packs and journals; one that is in several comes several times."""
        for pack in self._packs.values():
            for n in range(len(pack)):
                yield pack[n]
        for journal in self._view.journals():
            yield from list(journal.index)

    def has(self, id: bytes) -> bool:
        """Whether the store has an object, as of the last refresh."""
        if id == EMPTY_TREE or self._find(id) is not None:
            return True
        return self._view.has(id)

    def get(self, id: bytes) -> int:
        """The mark of an object."""
        found = self._others.get(id)
        if found is not None:
            return found
        place = self._find(id)
        return 0 if place is None else place[0].marks[place[1]]

    def set(self, id: bytes, mark: int) -> None:
        """Mark an object, whether or not the store has it."""
        place = None if id in self._others else self._find(id)
        if place is None:
            self._others[id] = mark
        else:
            place[0].marks[place[1]] = mark

    def _find(self, id: bytes) -> tuple[_Pack, int] | None:
        # Always in the same order: an object may be in several packs, and has its mark in one.
        for pack in self._packs.values():
            if (n := pack.find(id)) is not None:
                return pack, n
        return None
