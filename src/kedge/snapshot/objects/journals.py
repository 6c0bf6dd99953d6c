"""The journals of this process: buffers, writes, and seals them into packs.

Not thread-safe by itself: everything here is called under the store's lock. Only the sealing runs
in its own thread, which takes the lock to report that it is done.

Durability comes from the order: the pack is on the disk before a ref names an object in it, and the
journal is removed only when the refs are written.

A commit may follow one that is still in the journal of another process. Git does not see journals,
so that it finds everything that a ref holds, objects that are in no pack yet are sealed together
with those that need them.
"""

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from kedge.domain.errors import ObjectMissing, SnapshotStoreDamaged
from kedge.snapshot.objects.durable import disk_error, disk_errors, sync_folder
from kedge.snapshot.objects.formats import COMMIT, Content, NewObject
from kedge.snapshot.objects.journal import Journal, OpenJournal, Tip
from kedge.snapshot.objects.keeps import ReadObject, needs, new_merge, read_link, supersedes
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packs import write_pack
from kedge.snapshot.objects.refs import Refs


def seal(
    journal: Journal, layout: Layout, read: ReadObject, is_packed: Callable[[bytes], bool]
) -> None:
    """Move the content of a journal to where git finds it, then remove the journal."""
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
    """Write the objects of a journal, and others, into a pack; the journal stays."""
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
    """The objects that the journal's refs need and that neither the journal nor any pack has.

    Of the journal itself only the commits and their own trees are examined: a process that put
    another tree there has also put what it needs, or keeps that by one of these commits.
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
            continue  # no process has it complete; that must not keep the rest from being sealed
        if inside is None:
            found.append((kind, id, content))
        for needed, _ in needs(kind, content):
            is_looked_into = kind == COMMIT or needed not in journal.index
            if is_looked_into and needed not in seen:
                seen.add(needed)
                todo.add(needed)
    return found


def move_ref(refs: Refs, layout: Layout, read: ReadObject, name: str, tip: Tip) -> None:
    """Make a ref hold this commit too; the caller holds the lock of the refs.

    Usually one of the two commits includes the other. If neither does, two processes kept snapshots
    under this name at once, and a merge holds both: a kept snapshot is never dropped for being
    second.
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


SEAL_BYTES = 32 << 20
SEAL_OBJECTS = 20_000
BUFFER_BYTES = 4 << 20


class OwnJournals:
    """The open journal, and those that are closed but not yet packs."""

    def __init__(
        self,
        layout: Layout,
        lock: threading.RLock,
        read: ReadObject,
        is_packed: Callable[[bytes], bool],
        begin: Callable[[OpenJournal], None],
    ) -> None:
        self._layout = layout
        self._lock = lock
        self._read = read
        self._is_packed = is_packed
        self._begin = begin
        self._pending: dict[bytes, tuple[bytes, bytes]] = {}
        self._pending_bytes = 0
        self.pending_refs: dict[str, Tip] = {}
        """The tips of refs in the buffer."""
        self._open: OpenJournal | None = None
        self._unsafe: list[OpenJournal] = []
        """Journals that failed while they held objects that were not synced."""
        self._closed: dict[Journal, Future[None] | None] = {}
        self._sealer: ThreadPoolExecutor | None = None

    def journals(self) -> list[Journal]:
        """All journals of this process, the open one first."""
        opened = [] if self._open is None else [self._open]
        return [*opened, *self._unsafe, *self._closed]

    def names(self) -> set[str]:
        """The file names of this process's journals."""
        return {journal.path.name for journal in self.journals()}

    def problems(self) -> list[str]:
        """Why journals could not be sealed, in words."""
        ended = [
            future for future in list(self._closed.values()) if future is not None and future.done()
        ]
        return [str(error) for error in (future.exception() for future in ended) if error]

    def put(self, kind: bytes, id: bytes, content: Content) -> None:
        """Buffer an object unless the open journal has it; a full buffer is written, not synced."""
        if id in self._pending or (self._open is not None and id in self._open.index):
            return
        if self._pending and self._pending_bytes + len(content) > BUFFER_BYTES:
            self._write_early()
        self._pending[id] = kind, bytes(content)
        self._pending_bytes += len(content)

    def put_all(self, objects: Iterable[NewObject]) -> None:
        """Buffer objects."""
        for kind, id, content in objects:
            self.put(kind, id, content)

    def put_ref(self, name: str, tip: Tip) -> None:
        """Buffer the tip of a ref; it is written after all objects that were put before."""
        self.pending_refs[name] = tip

    def has(self, id: bytes) -> bool:
        """Whether an object is in one of these journals."""
        return id in self._pending or any(id in journal.index for journal in self.journals())

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if it is in one of these journals."""
        if id in self._pending:
            return self._pending[id]
        for journal in self.journals():
            found = journal.read(id)
            if found is not None:
                return found
        return None

    def open_journal(self) -> OpenJournal:
        """The journal to write to; a new one begins with the keep that this process relies on."""
        if self._open is None:
            with disk_errors("starting a journal"):
                self._open = self._start()
        return self._open

    def _start(self) -> OpenJournal:
        journal = OpenJournal.create(self._layout.journals)
        try:
            self._begin(journal)
        except BaseException:
            journal.path.unlink()
            journal.close()
            raise
        return journal

    def _buffered(self) -> Iterator[NewObject]:
        for id, (kind, content) in self._pending.items():
            yield kind, id, content

    def _write_early(self) -> None:
        journal = self.open_journal()
        try:
            journal.append(self._buffered())
        except OSError as error:
            self._give_up(journal)
            raise disk_error(f"writing {journal.path}", error) from error
        self._forget_buffered()

    def _forget_buffered(self) -> None:
        self._pending.clear()
        self._pending_bytes = 0

    def flush(self) -> None:
        """Make everything durable that was put; if this raises, it is still buffered."""
        settled = self._open is None or self._open.is_synced
        if settled and not (self._pending or self.pending_refs or self._unsafe):
            return
        journal = self.open_journal()
        self._save_unsafe()
        try:
            journal.append_durably(self._buffered(), self.pending_refs)
        except OSError as error:
            self._give_up(journal)
            raise disk_error(f"writing {journal.path}", error) from error
        self._forget_buffered()
        self.pending_refs.clear()

    def _give_up(self, journal: OpenJournal) -> None:
        self._open = None
        with suppress(OSError):  # readers stop at the first incomplete record
            journal.cut()
        if journal.is_synced:
            self._closed[journal] = None
        else:
            self._unsafe.append(journal)

    def _save_unsafe(self) -> None:
        # Syncing them again would prove nothing: the kernel reports a lost page only once.
        while self._unsafe:
            pack(self._unsafe[0], self._layout)
            self._closed[self._unsafe.pop(0)] = None

    def rotate(self) -> None:
        """Continue in a new journal and seal the flushed one in the background."""
        journal = self._open
        if journal is not None:
            with disk_errors("starting a journal"):
                self._open = self._start()
            self._closed[journal] = None
        self.seal_closed()

    def rotate_when_full(self) -> None:
        """Close a journal that is long enough for a pack."""
        if self._open is not None and (
            self._open.end > SEAL_BYTES or len(self._open.index) > SEAL_OBJECTS
        ):
            self.rotate()

    def rotate_older_than(self, seconds: float) -> None:
        """Close a journal of this age: while it is open, its sessionless keeps stay held."""
        if self._open is not None and time.monotonic() - self._open.started >= seconds:
            self.rotate()

    def adopt(self, journals: list[Journal]) -> None:
        """Take over journals that dead processes left."""
        self._closed.update(dict.fromkeys(journals))
        self.seal_closed()

    def seal_closed(self) -> None:
        """Seal every closed journal, including those where it failed before."""
        for journal, future in self._closed.items():
            if future is None or (future.done() and future.exception() is not None):
                if self._sealer is None:
                    self._sealer = ThreadPoolExecutor(1, thread_name_prefix="kedge-seal")
                self._closed[journal] = self._sealer.submit(self._seal, journal)

    def _seal(self, journal: Journal) -> None:
        seal(journal, self._layout, self._read, self._is_packed)
        with self._lock:
            del self._closed[journal]
            journal.close()

    def sealing(self) -> list[Future[None]]:
        """Futures to wait for, without the lock, until every closed journal is sealed or failed."""
        return [future for future in self._closed.values() if future is not None]

    def close_open(self) -> None:
        """Close the open journal; nothing is written any more."""
        if self._open is not None:
            self._closed[self._open] = None
            self._open = None

    def let_go(self) -> None:
        """Close the files; the next process takes over journals that are not sealed."""
        if self._sealer is not None:
            self._sealer.shutdown()
        self._drop()

    def forsake(self, lock: threading.RLock) -> None:
        """In a forked child: drop the files and the thread, which belong to the parent."""
        self._lock = lock
        self._drop()

    def _drop(self) -> None:
        for journal in self.journals():
            journal.close()
        self._open, self._sealer = None, None
        self._unsafe.clear()
        self._closed.clear()
