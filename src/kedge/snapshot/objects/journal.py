"""Journals: the files that objects and refs are appended to before they are sealed into packs.

Each writer has one of its own and holds a lock on it for life, so a journal whose lock is free was
left by a writer that died. After a failed write a journal is never appended to again: what a disk
kept of it is not known, and readers in other processes may have read past the failure.
"""

import errno
import fcntl
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects import records
from kedge.snapshot.objects.durable import PRIVATE_FILE, read_at, sync, sync_folder, write_at
from kedge.snapshot.objects.formats import Content, NewObject, object_id
from kedge.snapshot.objects.records import MAGIC, ObjectRecord, RefRecord, Tip

SUFFIX = ".journal"
UNFINISHED = "tmp_kedge_"

# Syncing a write into allocated space takes half as long as syncing one that makes the file grow.
ALLOCATION = 1 << 20

_NO_ALLOCATION = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class Journal:
    """A journal that can be read; what is in it is known up to `end`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.index: dict[bytes, ObjectRecord] = {}
        self.refs: dict[str, Tip] = {}
        self.end = 0
        self._fd = fd

    @property
    def unique(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    def follow(self) -> None:
        """Take in what its writer appended since the last look."""
        self._take_in(records.scan)

    def verify(self) -> None:
        """Take in what is whole, by hashing all of it; for a journal that a crash left."""
        self._take_in(records.scan_whole)

    def why_damaged(self) -> str:
        """What is wrong with a journal that was verified and is more than torn; empty if it is not.

        What comes after the damage was acknowledged to somebody, so it must not be cut off.
        """
        size = os.fstat(self._fd).st_size
        if self.end < size:
            with mmap.mmap(self._fd, size, access=mmap.ACCESS_READ) as content:
                if records.proves_loss(content, self.end):
                    return f"{self.path} is damaged at byte {self.end}; it is left as it is"
        return ""

    def _take_in(
        self, scan: Callable[[records.Read, int, int], Iterator[ObjectRecord | RefRecord]]
    ) -> None:
        if self.end == 0 and self._read(len(MAGIC), 0) == MAGIC:
            self.end = len(MAGIC)
        if self.end:
            for record in scan(self._read, self.end, os.fstat(self._fd).st_size):
                self._note(record)

    def _note(self, record: ObjectRecord | RefRecord) -> None:
        if isinstance(record, ObjectRecord):
            self.index[record.id] = record
            self.end = record.offset + record.length
        else:
            self.refs[record.name] = record.tip
            self.end = record.end

    def _read(self, length: int, offset: int) -> bytes:
        return read_at(self._fd, length, offset)

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if it is here."""
        record = self.index.get(id)
        if record is None:
            return None
        content = self._read(record.length, record.offset)
        if object_id(record.kind, content) != id:
            raise SnapshotStoreDamaged(f"{self.path} does not hold {id.hex()} where it should")
        return record.kind, content

    def try_lock(self) -> bool:
        """Lock the journal, unless its writer lives or somebody else was quicker."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_linked(self) -> bool:
        """Whether the file is still there under its name."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def close(self) -> None:
        """Let go of the file, and with it of the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OpenJournal(Journal):
    """A journal that this process writes."""

    def __init__(self, path: Path, fd: int) -> None:
        super().__init__(path, fd)
        self.started = time.monotonic()
        self._synced = 0
        self._allocated = 0
        self._allocates = hasattr(os, "posix_fallocate")

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new journal; it gets its name only when it is locked, so nobody takes it for a dead."""
        unique = f"{os.getpid()}-{secrets.token_hex(8)}"
        unfinished = folder / f"{UNFINISHED}{unique}"
        fd = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        journal = cls(folder / f"{unique}{SUFFIX}", fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            journal._write(MAGIC)
            journal.end = len(MAGIC)
            unfinished.rename(journal.path)
            sync_folder(folder)
        except BaseException:
            journal.close()
            unfinished.unlink(missing_ok=True)
            raise
        return journal

    @property
    def is_synced(self) -> bool:
        return self._synced == self.end

    def append(self, objects: Iterable[NewObject]) -> None:
        """Write objects; they are in the journal then, but a crash of the machine may take them."""
        content, added = self._encode(objects)
        self._write(content)
        self._count(added, len(content))

    def append_durably(self, objects: Iterable[NewObject], refs: Mapping[str, Tip]) -> None:
        """Write objects, then refs, and return when these and all before are on the disk."""
        content, added = self._encode(objects)
        for name, tip in refs.items():
            at = self.end + len(content)
            content += records.encode_ref(name, tip, synced=self._synced, at=at)
        if content:
            self._write(content)
        sync(self._fd)
        self._count(added, len(content))
        self.refs.update(refs)
        self._synced = self.end

    def _encode(self, objects: Iterable[NewObject]) -> tuple[bytes, list[ObjectRecord]]:
        pieces: list[Content] = []
        added = []
        offset = self.end
        for kind, id, content in objects:
            pieces += (records.encode_object_head(kind, id, len(content)), content)
            offset += records.HEAD_LENGTH
            added.append(ObjectRecord(id, kind, offset, len(content)))
            offset += len(content)
        return b"".join(pieces), added

    def _count(self, added: list[ObjectRecord], length: int) -> None:
        self.index.update((record.id, record) for record in added)
        self.end += length

    def _write(self, content: bytes) -> None:
        end = self.end + len(content)
        if end > self._allocated and self._allocates:
            self._allocate(end)
        write_at(self._fd, content, self.end)

    def _allocate(self, end: int) -> None:
        wanted = -(-end // ALLOCATION) * ALLOCATION
        try:
            os.posix_fallocate(self._fd, self._allocated, wanted - self._allocated)
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise
            self._allocates = False
        else:
            self._allocated = wanted

    def cut(self) -> None:
        """Remove what a failed write left behind the last whole record."""
        os.ftruncate(self._fd, self.end)
