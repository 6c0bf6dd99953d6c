"""The private object store of one project: holds objects and keeps, and survives crashes.

`put` and `keep` only buffer; `flush` makes everything durable with one write and one sync, objects
before the refs that name them. A `put` that raises did not take the object. A `flush` that raises
loses nothing: what was put stays buffered, and the next flush tries again.

One store belongs to one tree in memory. That tree may continue to use, without putting them again,
the objects of the newest keep that it made here: an open journal always begins with that keep, so a
collection in any process holds it.
"""

import math
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import ObjectMissing, SnapshotError, SnapshotStoreDamaged, SnapshotTimeout
from kedge.snapshot.objects import formats, git_cli, keeps, layout
from kedge.snapshot.objects.alternates import Borrowed
from kedge.snapshot.objects.chains import Chains
from kedge.snapshot.objects.durable import disk_errors
from kedge.snapshot.objects.formats import EMPTY_TREE, TREE, Content, NewObject
from kedge.snapshot.objects.gc import Collected, CollectionPause, Sweep, lock
from kedge.snapshot.objects.journal import ForeignJournals, OpenJournal, Tip, take_over_dead
from kedge.snapshot.objects.journals import OwnJournals
from kedge.snapshot.objects.keeps import Keep, KeptObjects, reach
from kedge.snapshot.objects.layout import Usage, size_of
from kedge.snapshot.objects.packs import Packs
from kedge.snapshot.objects.refs import Refs, session_ref, taken_ref
from kedge.snapshot.objects.user_packs import BlobCopy, object_folders

DEFAULT_BUDGET = 10 << 30
MANY_PACKS = 40
"""A store with more packs than this is collected, which joins them."""
UNCHANGED_SECONDS = 3600
"""Seconds during which a keep that would repeat the last one is not written."""

Source = Callable[[bytes], tuple[bytes, bytes] | None]

_stores: "weakref.WeakSet[ObjectStore]" = weakref.WeakSet()


class ObjectStore:
    """Objects by id, and the keeps that hold them; thread-safe."""

    def __init__(
        self, folder: Path, *, budget: int = DEFAULT_BUDGET, clock: Clock | None = None
    ) -> None:
        self._budget = budget
        self._clock = clock or SystemClock()
        with disk_errors(f"opening {folder}"):
            self.layout = layout.prepare(folder)
            layout.remove_leftovers(self.layout)
        self._lock = threading.RLock()
        self._packs = Packs(self.layout.objects)
        self._foreign = ForeignJournals(self.layout.journals)
        self._refs = Refs(self.layout)
        self._own = OwnJournals(
            self.layout, self._lock, self._read, self._packs.exists, self._begin
        )
        self._chains = Chains(self._refs, self._own, self._foreign, self._read)
        self._borrowed = Borrowed(self.layout)
        self._latest: Keep | None = None
        self._latest_name = ""
        self._durable: Keep | None = None
        self._damage: list[str] = []
        self._closed = False
        self.recover()
        _stores.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def recover(self) -> None:
        """Take over journals that dead processes left; they are sealed in the background."""
        with self._lock, disk_errors("looking for journals of dead processes"):
            dead = take_over_dead(self.layout.journals, self._own.names())
            damaged = {journal: why for journal in dead if (why := journal.why_damaged())}
            self._damage = list(damaged.values())
            for journal in damaged:
                journal.close()
            self._own.adopt([journal for journal in dead if journal not in damaged])

    def _now(self) -> int:
        return self._clock.now() // 1000

    # Writing

    def put(self, kind: bytes, content: Content) -> bytes:
        """Buffer an object; returns its id."""
        id = formats.object_id(kind, content)
        self.put_hashed(kind, id, content)
        return id

    def put_hashed(self, kind: bytes, id: bytes, content: Content) -> None:
        """Buffer an object whose id the caller has already computed."""
        with self._usable():
            self._own.put(kind, id, content)

    def flush(self) -> None:
        """Make everything durable that was put and kept."""
        with self._usable():
            self._flush()
            self._own.rotate_when_full()

    def _flush(self) -> None:
        self._own.flush()
        self._durable = self._latest

    def _usable(self) -> threading.RLock:
        if self._closed:
            raise SnapshotError("the snapshot store is closed")
        return self._lock

    # Reading

    def read(self, id: bytes) -> tuple[bytes, bytes]:
        """Kind and content of an object; the content is checked against the id."""
        with self._usable():
            pass
        return self._read(id)

    def _read(self, id: bytes) -> tuple[bytes, bytes]:
        sources = (self._read_own, self._packs.read, self._read_foreign, self._read_late)
        return self._read_from(sources, id)

    def _read_from(self, sources: Iterable[Source], id: bytes) -> tuple[bytes, bytes]:
        if id == EMPTY_TREE:  # git knows it even if it does not exist
            return TREE, b""
        damage: SnapshotStoreDamaged | None = None
        for source in sources:
            try:
                found = source(id)
            except SnapshotStoreDamaged as error:
                damage = error
                continue
            if found is not None:
                return found
        raise damage or ObjectMissing(id.hex())

    def _read_own(self, id: bytes) -> tuple[bytes, bytes] | None:
        with self._lock, disk_errors("reading journals"):
            return self._own.read(id)

    def _read_foreign(self, id: bytes) -> tuple[bytes, bytes] | None:
        with self._lock, disk_errors("reading journals"):
            self._foreign.refresh(self._own.names())
            return self._foreign.read(id)

    def _read_foreign_as_known(self, id: bytes) -> tuple[bytes, bytes] | None:
        with self._lock, disk_errors("reading journals"):
            return self._foreign.read(id)

    def _read_late(self, id: bytes) -> tuple[bytes, bytes] | None:
        # A journal may have become a pack after the packs and before the journals were searched.
        self._packs.reopen()
        found = self._packs.read(id)
        if found is None:
            with self._lock, disk_errors("reading borrowed objects"):
                found = self._borrowed.read(id)
        return found

    # Keeping

    def keep(
        self,
        session: str | None,
        *,
        files: bytes,
        notes: bytes,
        base: bytes,
        fields: Mapping[str, str] | None = None,
    ) -> bytes:
        """Hold a snapshot for a session, or without one for a while; returns the commit."""
        held = KeptObjects(files=files, notes=notes, base=base, fields=dict(fields or {}))
        with self._usable(), disk_errors("keeping a snapshot"):
            name = self._ref_name(session)
            standing = self._chains.standing(name) if session else self._chains.own(name)
            last = self._latest
            if last is None or [last.tip] != standing or last.held != held or self._is_old(last):
                last = self._put_keep(name, held, standing)
            return last.commit

    def _is_old(self, keep: Keep) -> bool:
        return self._now() - keep.seconds >= UNCHANGED_SECONDS

    def _ref_name(self, session: str | None) -> str:
        if session is None:
            return taken_ref(self._own.open_journal().unique)
        return session_ref(session)

    def _put_keep(self, name: str, held: KeptObjects, standing: list[Tip]) -> Keep:
        keep, objects = keeps.new_keep(held, standing, self._now())
        self._put_commit(name, standing, keep.tip, objects)
        self._chains.remember(keep)
        self._latest, self._latest_name = keep, name
        return keep

    def _put_commit(
        self, name: str, standing: list[Tip], tip: Tip, objects: Iterable[NewObject]
    ) -> None:
        self._own.put_all(objects)
        self._own.put_ref(name, tip)
        self._chains.advance(name, standing, tip)

    def _begin(self, journal: OpenJournal) -> None:
        """Make a new journal hold the keep that the tree in memory continues to use."""
        last = self._durable
        if last is not None:
            keep, objects = keeps.new_keep(last.held, [], last.seconds)
            journal.append_durably(objects, {taken_ref(journal.unique): keep.tip})

    def hold(
        self, session: str | None, blobs: Collection[bytes], trees: Collection[bytes] = ()
    ) -> None:
        """Hold single blobs and trees, which need not be in any snapshot, as long as a keep
        would."""
        if not blobs and not trees:
            return
        with self._usable(), disk_errors("holding blobs"):
            name = self._ref_name(session)
            standing = self._chains.standing(name)
            tip, objects = keeps.new_hold(blobs, standing, self._now(), trees=trees)
            self._put_commit(name, standing, tip, objects)

    def inherit(self, origin: str, heir: str) -> None:
        """Hold for one session what is held for another now, even after that one is released."""
        name = session_ref(heir)
        with self._usable(), disk_errors("holding what another session holds"):
            tips = self._chains.standing(session_ref(origin))
            links = [keeps.read_link(self._read, tip.commit) for tip in tips]
            inherited = [link.tip for link in links if not link.is_release]
            if not inherited:
                return
            standing = self._chains.standing(name)
            tip, objects = keeps.new_inheritance(standing, inherited, self._now())
            self._put_commit(name, standing, tip, objects)

    def release(self, session: str) -> None:
        """Hold nothing for a session any more; a collection frees what is held by no other.

        A keep that another process makes before it knows of the release may be freed with it.
        """
        name = session_ref(session)
        with self._usable(), disk_errors("releasing a session"):
            standing = self._chains.standing(name)
            if not standing:
                return
            if self._latest is not None and self._latest_name == name:
                # The tree in memory continues to use it.
                taken = self._ref_name(None)
                self._put_keep(taken, self._latest.held, self._chains.standing(taken))
            tip, objects = keeps.new_release(standing, self._now())
            self._put_commit(name, standing, tip, objects)

    def head(self, session: str) -> bytes | None:
        """The newest commit of a session from any process: a keep, a release or a merge."""
        with self._usable(), disk_errors("reading refs"):
            tip = self._chains.newest(session_ref(session))
            return None if tip is None else tip.commit

    def chain(self, session: str) -> Iterator[Keep]:
        """The keeps of a session, newest first."""
        with self._usable(), disk_errors("reading refs"):
            tips = self._chains.standing(session_ref(session))
        for link in keeps.walk(self.read, tips, lambda _: False):
            if link.is_keep:
                yield keeps.read_keep(self.read, link)

    def find(self, files: bytes) -> Keep | None:
        """The newest keep of a snapshot, given only its tree."""
        with self._usable(), disk_errors("reading refs"):
            known = self._chains.known(files)
            names = self._chains.names() if known is None else set()
        for name in names:
            with self._usable(), disk_errors("reading refs"):
                tips = self._chains.standing(name)
            found = self._chains.unknown(tips)
            with self._usable():
                self._chains.learn(found)
                known = self._chains.known(files)
        return known

    # Objects of others

    def copy_from(self, objects_folder: bytes, *, expected: int) -> BlobCopy | None:
        """A `BlobCopy` for about this many blobs of a user's object folder; None if not
        possible."""
        git, folders = git_cli.find_git(), object_folders(objects_folder)
        if git is None or not folders:
            return None
        with self._usable(), disk_errors(f"copying from {os.fsdecode(objects_folder)}"):
            pause = CollectionPause.begin(self.layout)
            if pause is None:
                return None
            try:
                return BlobCopy(git, self.layout, folders, expected=expected, pause=pause)
            except BaseException:
                pause.end()
                raise

    def exists(self, id: bytes) -> bool:
        """Whether the object can be read, here or where it was borrowed."""
        if self.has(id):
            return True
        with self._usable(), disk_errors("looking for a borrowed object"):
            return self._borrowed.has(id)

    def has(self, id: bytes) -> bool:
        """Whether the store itself has the object; borrowed ones do not count."""
        with self._lock, disk_errors("looking for an object"):
            if self._has_as_known(id):
                return True
            self._foreign.refresh(self._own.names())
            return self._foreign.has(id) or self._packs.exists(id)

    def _has_as_known(self, id: bytes) -> bool:
        """As `has`, but only with those journals of other processes that are already known."""
        with self._lock:
            known = id == EMPTY_TREE or self._own.has(id) or self._foreign.has(id)
            return known or self._packs.exists(id)

    def owes(self) -> bool:
        """Whether a process of an earlier version died before it had copied what it borrowed."""
        with disk_errors("looking at what is borrowed"):
            return bool(self._borrowed.left())

    def settle_debts(self, deadline: float = math.inf) -> set[bytes]:
        """Copy all borrowed objects that anything held in the store needs; returns the lost ones.

        Raises `SnapshotTimeout` at a time of the monotonic clock; what was copied by then stays.
        """
        with self._usable(), disk_errors("reading refs"):
            # First the dead processes, then what is held: this way everything they held is seen.
            left = self._borrowed.left()
            held = {tip.commit for tips in self._chains.in_journals().values() for tip in tips}
            held.update(self._refs.all().values())
        lost = self._copy_borrowed(held, deadline)
        self.flush()
        if not lost:
            with self._usable(), disk_errors("forgetting what was borrowed"):
                self._borrowed.forget(left)
        return lost

    def _copy_borrowed(self, roots: Iterable[bytes], deadline: float) -> set[bytes]:
        lost = set[bytes]()
        # There may be very many: packs, journals and lenders are opened once for all of them.
        self._packs.reopen()
        with disk_errors("looking at what is borrowed"):
            lenders = [lender.read for lender in self._borrowed.lenders()]
        sources = (self._read_own, self._packs.read, self._read_foreign_as_known, *lenders)

        def read(id: bytes) -> tuple[bytes, bytes]:
            if monotonic() > deadline:
                raise SnapshotTimeout
            try:
                kind, content = self._read_from(sources, id)
            except (ObjectMissing, SnapshotStoreDamaged):
                lost.add(id)
                return b"", b""
            if not self._has_as_known(id):
                self.put_hashed(kind, id, content)
            return kind, content

        for id in reach(read, roots, set()):
            if not self._has_as_known(id):
                read(id)
        return lost

    # Tidying

    def collect(self, *, keep_taken_for: float) -> Collected:
        """Free the space of what nothing holds; snapshots without a session last `keep_taken_for`
        seconds."""
        with disk_errors("collecting"), lock(self.layout) as is_alone:
            if is_alone:
                collected = self._collect(keep_taken_for)
            else:
                collected = Collected(skipped="another process is collecting, or copying objects")
        # An open pack takes its space until it is closed, even if it was removed.
        self._packs.reopen()
        return collected

    def _collect(self, keep_taken_for: float) -> Collected:
        self.recover()
        with self._usable():
            self._flush()
            self._own.rotate_older_than(keep_taken_for)
            layout.remove_leftovers(self.layout)
        self.settle()
        return Sweep(
            layout=self.layout,
            read=self.read,
            is_own=self.has,
            journal_tips=self._journal_tips,
            now=self._clock.now() / 1000,
            keep_taken_for=keep_taken_for,
            is_over_budget=self._size() > self._budget,
        ).run()

    def _journal_tips(self) -> dict[str, set[Tip]]:
        with self._usable():
            return self._chains.in_journals()

    def _size(self) -> int:
        return size_of(self.layout.journals) + size_of(self.layout.packs)

    def is_untidy(self) -> bool:
        """Whether many short-lived processes have left many packs, or the budget is exceeded."""
        packs = sum(1 for _ in self.layout.packs.glob("*.pack"))
        return packs > MANY_PACKS or self._size() > self._budget

    def usage(self) -> Usage:
        """The disk space of the store; if it is over the budget, also what holds it."""
        with self._usable(), disk_errors("looking at the store's size"):
            usage = Usage(
                journals=size_of(self.layout.journals),
                packs=size_of(self.layout.packs),
                budget=self._budget,
            )
            if not usage.over_budget:
                return usage
            standing = {name: self._chains.standing(name) for name in self._chains.names()}
        return replace(usage, keeps={name: self._count(tips) for name, tips in standing.items()})

    def _count(self, tips: list[Tip]) -> int:
        return sum(link.is_keep for link in keeps.walk(self.read, tips, lambda _: False))

    # Ending

    def settle(self) -> None:
        """Wait until background sealing is done or has failed."""
        with self._lock:
            sealing = self._own.sealing()
        wait(sealing)

    def problems(self) -> list[str]:
        """Problems in the background, in words; the work is tried again."""
        # Without the lock: the caller must not wait for a disk.
        return [*self._damage, *self._own.problems()]

    def close(self) -> None:
        """Flush, seal and close; raises if that failed, but what was flushed is never lost."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            with self._lock:
                self._own.flush()
        finally:
            with self._lock:
                self._own.close_open()
                self._own.seal_closed()
            self.settle()
            problems = self._own.problems()
            self._own.let_go()
            self._foreign.close()
        if problems:
            raise SnapshotError(f"not sealed, and left for the next process: {problems[0]}")

    def forget_parent(self) -> None:
        """In a forked child: leave the parent's journals alone, and write to new ones."""
        self._lock = threading.RLock()
        self._own.forsake(self._lock)
        self._foreign.close()
        self._packs.reopen()


def _forget_parents() -> None:
    for store in list(_stores):
        store.forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
