"""Garbage collection: frees the space of unreferenced objects and joins small packs.

Other processes keep writing meanwhile, without a lock. Why that is safe:

- Journals are read before ref files, and sealing writes ref files before it removes a journal. So a
  ref that moves from one to the other is seen at least once.
- Garbage can become needed again only if a process refers to an object without putting it. A tree
  in memory does that for objects of its newest keep: its open journal begins with that keep, and
  so holds them. All other objects are put again, into a journal, and journals are not collected.
- Objects may be put long before a keep names them, and may be sealed in between. So a pack that is
  younger than the time for which unnamed snapshots are kept is never thinned out.
- A new keep follows the newest one of its session, and may be buffered while another process
  releases that session. So what was released is held for another day, and what lost its ref goes
  only with the next collection. The same covers a process that looks up a keep to keep its trees
  again under another name.
- The ref of a released session is not removed while a journal still has an older record of it,
  which would restore the session when it is sealed.
- Refs are read again before packs are removed. The above does not need this; it is there because a
  mistake would cost a user's work.
- New packs are on the disk before old ones are removed. A reader that still has an old pack's index
  finds the pack gone, reopens the folder and finds the new one.
- Two collections at once would each rely on packs that the other removes: a lock prevents that.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from kedge.snapshot.objects import git_cli, keeps
from kedge.snapshot.objects.durable import PRIVATE_FILE, disk_errors, sync_folder
from kedge.snapshot.objects.formats import EMPTY_TREE
from kedge.snapshot.objects.journal import Tip
from kedge.snapshot.objects.keeps import ReadObject, reach
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packs import read_index
from kedge.snapshot.objects.refs import TAKEN, Refs

BATCH_BYTES = 256 << 20
"""Packs are rewritten in batches of this size, which is the space that a collection needs."""
SPARE_BYTES = 64 << 20
"""The disk space that is left free for others."""
DEAD_SHARE = 0.25
DEAD_SHARE_OVER_BUDGET = 0.05
MANY_PACKS = 8
SMALL_PACK = 1 << 20
PACK_OVERHEAD = 32
"""Bytes of a pack that are not objects."""
RELEASED_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The result of a collection."""

    freed: int = 0
    """Bytes."""
    dropped: tuple[str, ...] = ()
    """Refs that were removed; the next collection frees what they held."""
    lacking: int = 0
    """The number of objects that snapshots need and that are not in the store itself."""
    skipped: str = ""
    """Why nothing, or not everything, was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a collection would do now; sizes are in bytes."""

    freed: int
    dropped: tuple[str, ...]
    """Refs that it would remove."""
    young: int
    """Not needed, but in packs that are too young."""
    scattered: int
    """Not needed, but in packs that are not worth rewriting."""


@dataclass(slots=True, kw_only=True, eq=False)
class Pack:
    """A pack, and which of its objects must not be lost with it."""

    path: Path
    size: int
    modified: float
    claimed: set[bytes] = field(default_factory=set)
    claimed_bytes: int = 0
    dropped: set[bytes] = field(default_factory=set)


@contextmanager
def lock(layout: Layout) -> Iterator[bool]:
    """Lock out other collections; yields whether that succeeded."""
    fd = os.open(layout.collect_lock, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


class CollectionPause:
    """Prevents collections in all processes while it lasts: garbage may become needed again."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def begin(cls, layout: Layout) -> Self | None:
        """A pause; None while a collection runs."""
        try:
            fd = os.open(layout.collect_lock, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            # Nobody can collect on a read-only file system.
            return cls(-1)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return cls(fd)

    def end(self) -> None:
        """Allow collections again."""
        if self._fd >= 0:
            # Closing is not enough in a process that has forked.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._fd = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One collection, and what it needs from the store."""

    layout: Layout
    read: ReadObject
    is_own: Callable[[bytes], bool]
    journal_tips: Callable[[], dict[str, set[Tip]]]
    """The tips of refs in all journals, of this process and others."""
    now: float
    keep_taken_for: float
    is_over_budget: bool

    def run(self) -> Collected:
        """Collect; the caller holds the lock."""
        with disk_errors("collecting"):
            dropped = self._drop_refs()
            tips = self._tips() | set(dropped.values())
            seen = set[bytes]()
            self._reach(tips, seen)
            packs, elsewhere = self._packs(seen)
            lacking = sum(not self.is_own(id) for id in elsewhere)
            freed, skipped = self._rewrite(packs, tips, seen)
        return Collected(freed=freed, dropped=tuple(dropped), lacking=lacking, skipped=skipped)

    def preview(self) -> Preview:
        """What `run` would do, without doing it; needs no lock."""
        with disk_errors("looking at what a collection would do"):
            in_journals = self.journal_tips()
            refs = Refs(self.layout).all()
            over = (name for name in refs.keys() - in_journals if self._is_over(name, refs[name]))
            seen = set[bytes]()
            self._reach(self._tips(), seen)
            packs, _ = self._packs(seen)
            chosen = [pack for batch in self._batches(packs) for pack in batch]
            if git_cli.find_git() is None:
                chosen = [pack for pack in chosen if not pack.claimed]
            rest = [pack for pack in packs if pack not in chosen]
            return Preview(
                freed=sum(map(_garbage, chosen)),
                dropped=tuple(sorted(over)),
                young=sum(self._unneeded(pack, seen) for pack in packs if self._is_young(pack)),
                scattered=sum(_garbage(pack) for pack in rest if not self._is_young(pack)),
            )

    def _unneeded(self, pack: Pack, seen: set[bytes]) -> int:
        return sum(size for id, size in read_index(pack.path.with_suffix(".idx")) if id not in seen)

    def _reach(self, tips: set[bytes], seen: set[bytes]) -> None:
        reach(self.read, tips, seen, since=self.now - RELEASED_SECONDS)

    def _drop_refs(self) -> dict[str, bytes]:
        refs = Refs(self.layout)
        with refs.locked():
            in_journals = self.journal_tips()
            held = {name: id for name, id in refs.all().items() if name not in in_journals}
            gone = {name: id for name, id in held.items() if self._is_over(name, id)}
            for name in gone:
                refs.remove(name)
        return gone

    def _is_over(self, name: str, commit: bytes) -> bool:
        link = keeps.read_link(self.read, commit)
        age = self.now - link.commit.seconds
        if name.startswith(TAKEN):
            return age >= self.keep_taken_for
        return link.is_release and age >= RELEASED_SECONDS

    def _tips(self) -> set[bytes]:
        tips = {tip.commit for each in self.journal_tips().values() for tip in each}
        return tips | set(Refs(self.layout).all().values())

    def _packs(self, seen: set[bytes]) -> tuple[list[Pack], set[bytes]]:
        """The packs, with each object assigned to one of them, and needed objects that are in
        none."""
        packs = []
        for index in self.layout.packs.glob("pack-*.idx"):
            found = index.with_suffix(".pack").stat()
            packs.append(
                Pack(path=index.with_suffix(".pack"), size=found.st_size, modified=found.st_mtime)
            )
        # Young packs keep all they have in any case, and rewriting a large one costs most.
        packs.sort(key=lambda pack: (self._is_young(pack), pack.size), reverse=True)
        elsewhere = seen - {EMPTY_TREE}
        claimed = set[bytes]()
        for pack in packs:
            for id, size in read_index(pack.path.with_suffix(".idx")):
                elsewhere.discard(id)
                if id in claimed:
                    continue
                if id in seen or self._is_young(pack):
                    claimed.add(id)
                    pack.claimed.add(id)
                    pack.claimed_bytes += size
                else:
                    pack.dropped.add(id)
        return packs, elsewhere

    def _is_young(self, pack: Pack) -> bool:
        return self.now - pack.modified < self.keep_taken_for

    def _is_sparse(self, pack: Pack) -> bool:
        dead_share = DEAD_SHARE_OVER_BUDGET if self.is_over_budget else DEAD_SHARE
        return pack.claimed_bytes < (pack.size - PACK_OVERHEAD) * (1 - dead_share)

    def _rewrite(self, packs: list[Pack], tips: set[bytes], seen: set[bytes]) -> tuple[int, str]:
        freed, skipped = 0, ""
        git = git_cli.find_git()
        for batch in self._batches(packs):
            wanted = set[bytes]().union(*(pack.claimed for pack in batch))
            size = sum(pack.claimed_bytes for pack in batch)
            if wanted and git is None:
                skipped = "git is not installed, so packs are not rewritten"
                continue
            if wanted and shutil.disk_usage(self.layout.packs).free < size + SPARE_BYTES:
                skipped = f"no space to rewrite packs: {size} bytes are needed for a while"
                continue
            new = git_cli.repack(git, self.layout, wanted) if wanted and git else None
            if new is not None:
                _set_age(new, max(pack.modified for pack in batch))
            self._reach(self._tips() - tips, seen)
            if any(pack.dropped & seen for pack in batch):
                skipped = "what was garbage came into use again"
                continue
            freed -= 0 if new is None else new.stat().st_size
            freed += sum(pack.size for pack in batch)
            _remove(pack.path for pack in batch if pack.path != new)
        return freed, skipped

    def _batches(self, packs: list[Pack]) -> Iterator[list[Pack]]:
        for is_young in (False, True):
            alike = [pack for pack in packs if self._is_young(pack) == is_young]
            alike.sort(key=lambda pack: pack.claimed_bytes)
            chosen = {*_worth_joining(alike), *filter(self._is_sparse, alike)}
            batch: list[Pack] = []
            for pack in [pack for pack in alike if pack in chosen]:
                total = sum(each.claimed_bytes for each in batch) + pack.claimed_bytes
                if batch and total > BATCH_BYTES:
                    yield batch
                    batch = []
                batch.append(pack)
            if len(batch) > 1 or any(map(self._is_sparse, batch)):
                yield batch


def _garbage(pack: Pack) -> int:
    return max(0, pack.size - PACK_OVERHEAD - pack.claimed_bytes)


def _worth_joining(packs: list[Pack]) -> list[Pack]:
    """The smallest packs, up to one that is much larger than all smaller ones together."""
    joined: list[Pack] = []
    total = 0
    for pack in packs:
        if joined and pack.claimed_bytes > max(2 * total, SMALL_PACK):
            break
        joined.append(pack)
        total += pack.claimed_bytes
    return joined if len(joined) > MANY_PACKS else []


def _set_age(pack: Path, modified: float) -> None:
    for path in (pack, pack.with_suffix(".idx")):
        os.utime(path, (modified, modified))


def _remove(packs: Iterable[Path]) -> None:
    for pack in packs:
        # The index first: a pack without an index is garbage, an index without a pack is damage.
        pack.with_suffix(".idx").unlink(missing_ok=True)
        for path in pack.parent.glob(f"{pack.stem}.*"):
            path.unlink(missing_ok=True)
        sync_folder(pack.parent)
