"""Copies what snapshots need from a user's repository into the store, so that they outlive it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from kedge.domain.errors import ObjectMissing, SnapshotStoreDamaged
from kedge.snapshot.objects import plumbing
from kedge.snapshot.objects.formats import Content
from kedge.snapshot.objects.keeps import ReadObject
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.reaching import reach

AT_A_TIME = 20_000
"""Objects per pack: a user's huge repository must not need huge memory or a second disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """What came of copying."""

    copied: int
    missing: frozenset[bytes]
    """Objects that are in neither repository any more; what needs them must be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """One run of copying, and what it needs of the store."""

    layout: Layout
    read: ReadObject
    put: Callable[[bytes, bytes, Content], None]
    flush: Callable[[], None]
    is_own: Callable[[bytes], bool]

    def run(self, roots: Iterable[bytes], progress: Callable[[int, int], None]) -> Adopted:
        """Copy what these trees need and the store does not have; durable when this returns."""
        needed, missing = self._needed(roots)
        total = len(needed)
        rest = iter(needed)
        done = 0
        progress(done, total)
        while chunk := list(islice(rest, AT_A_TIME)):
            missing |= self._copy(chunk)
            done += len(chunk)
            progress(done, total)
        return Adopted(copied=total - len(missing & needed), missing=frozenset(missing))

    def _needed(self, roots: Iterable[bytes]) -> tuple[set[bytes], set[bytes]]:
        missing = set[bytes]()

        def read(id: bytes) -> tuple[bytes, bytes]:
            try:
                return self.read(id)
            except (ObjectMissing, SnapshotStoreDamaged):
                missing.add(id)
                return b"", b""

        reached = reach(read, roots, set())
        return {id for id in reached - missing if not self.is_own(id)}, missing

    def _copy(self, ids: list[bytes]) -> set[bytes]:
        git = plumbing.find_git()
        if git is not None:
            try:
                plumbing.copy(git, self.layout, ids)
            except plumbing.PackingFailed:
                # Git gives all up for one object that it cannot read; find out which.
                return self._copy_one_by_one(ids)
            return set()
        return self._copy_one_by_one(ids)

    def _copy_one_by_one(self, ids: list[bytes]) -> set[bytes]:
        missing = set[bytes]()
        for id in ids:
            try:
                kind, content = self.read(id)
            except (ObjectMissing, SnapshotStoreDamaged):
                missing.add(id)
            else:
                self.put(kind, id, content)
        self.flush()
        return missing
