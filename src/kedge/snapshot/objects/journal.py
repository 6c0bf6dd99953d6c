"""Journals: files to which objects and refs are appended before they are sealed into packs.

Each writer has its own journal and holds a lock on it for life, so a journal whose lock is free was
left by a writer that died. After a failed write a journal is never appended to again: it is unknown
what the disk kept of it, and readers in other processes may have read past the failure.

Every record begins with the same head: a tag, an id and the length of what follows. Only zeros
follow the last record, because journals are allocated ahead.
"""

import errno
import fcntl
import mmap
import os
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Self, TypeAlias

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects.durable import PRIVATE_FILE, read_at, sync, sync_folder, write_at
from kedge.snapshot.objects.formats import BLOB, COMMIT, TAG, TREE, Content, NewObject, object_id

MAGIC = b"kedge journal 1\n"
KINDS = (b"", COMMIT, TREE, BLOB, TAG)
"""Indexed by the numbers that packs use too."""
NUMBERS = {kind: number for number, kind in enumerate(KINDS) if kind}

_HEAD = struct.Struct(">B20sQ")
_REF_BODY = struct.Struct(">8sQQQ")
_REF_MARK = b"kedgeref"
_REF = 5
_SUM_LENGTH = 8
_LONGEST_REF = 4096

HEAD_LENGTH = _HEAD.size

Read: TypeAlias = Callable[[int, int], bytes]
"""Reads (length, offset); returns less at the end of the file."""


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """An object and the position of its content."""

    id: bytes
    kind: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Tip:
    """The newest known commit of a ref."""

    commit: bytes
    depth: int
    """How many commits the ref has had; the greater depth is newer."""


@dataclass(frozen=True, slots=True)
class RefRecord:
    """The new position of a ref."""

    name: str
    tip: Tip
    synced: int
    """Everything before this offset was on the disk when the record was written."""
    end: int


def encode_object_head(kind: bytes, id: bytes, length: int) -> bytes:
    """The head that precedes the content of an object."""
    return _HEAD.pack(NUMBERS[kind], id, length)


def encode_ref(name: str, tip: Tip, *, synced: int, at: int) -> bytes:
    """A complete record with the position of a ref; everything before `synced` is on the disk.

    It contains its own offset, because a file in a snapshot may itself be a copy of a journal.
    """
    body = _REF_BODY.pack(_REF_MARK, tip.depth, synced, at) + name.encode()
    head = _HEAD.pack(_REF, tip.commit, len(body) + _SUM_LENGTH)
    return head + body + _checksum(head, body)


def _checksum(head: bytes, body: bytes) -> bytes:
    return sha1(head + body, usedforsecurity=False).digest()[:_SUM_LENGTH]


def scan(read: Read, start: int, size: int) -> Iterator[ObjectRecord | RefRecord]:
    """The records from `start` on, up to the first incomplete one; contents are not checked.

    Correct for a journal that was written since the machine booted: its bytes are in order.
    """
    offset = start
    while True:
        head = read(HEAD_LENGTH, offset)
        if len(head) < HEAD_LENGTH or not head[0]:
            return
        number, id, length = _HEAD.unpack(head)
        offset += HEAD_LENGTH
        if number > _REF or offset + length > size:
            return
        if number == _REF:
            ref = _ref(head, read(length, offset), offset) if length <= _LONGEST_REF else None
            if ref is None:
                return
            yield ref
        else:
            yield ObjectRecord(id, KINDS[number], offset, length)
        offset += length


def scan_whole(read: Read, start: int, size: int) -> Iterator[ObjectRecord | RefRecord]:
    """The records up to the first invalid one; every content is hashed.

    Needed after a crash of the machine, which may have kept later bytes and lost earlier ones.
    """
    for record in scan(read, start, size):
        if isinstance(record, ObjectRecord):
            content: Content = read(record.length, record.offset)
            if object_id(record.kind, content) != record.id:
                return
        yield record


def proves_loss(content: mmap.mmap, lost: int) -> bool:
    """Whether the content at this offset must once have been complete, because more followed it.

    Only the last writes before a crash may be torn; earlier damage was caused by the disk or a
    user.
    """
    at = content.find(_REF_MARK, lost)
    while at >= 0:
        found = scan(lambda length, at: content[at : at + length], at - HEAD_LENGTH, len(content))
        record = next(found, None)
        if isinstance(record, RefRecord) and record.synced > lost:
            return True
        at = content.find(_REF_MARK, at + 1)
    return False


def _ref(head: bytes, rest: bytes, offset: int) -> RefRecord | None:
    body, found = rest[:-_SUM_LENGTH], rest[-_SUM_LENGTH:]
    if len(body) < _REF_BODY.size or _checksum(head, body) != found:
        return None
    _, depth, synced, at = _REF_BODY.unpack_from(body)
    if at != offset - HEAD_LENGTH:
        return None
    _, commit, _ = _HEAD.unpack(head)
    name = body[_REF_BODY.size :].decode()
    return RefRecord(name, Tip(commit, depth), synced, offset + len(rest))


SUFFIX = ".journal"
UNFINISHED = "tmp_kedge_"

# Syncing a write into allocated space takes half as long as syncing one that grows the file.
ALLOCATION = 1 << 20

_NO_ALLOCATION = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class Journal:
    """A readable journal; its content is known up to `end`."""

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
        """Read the records that its writer has appended since."""
        self._take_in(scan)

    def verify(self) -> None:
        """Read the complete records, by hashing all of them; for a journal that a crash left."""
        self._take_in(scan_whole)

    def why_damaged(self) -> str:
        """The damage in a verified journal that is more than a torn end; empty if there is none.

        What comes after the damage was acknowledged, so it must not be cut off.
        """
        size = os.fstat(self._fd).st_size
        if self.end < size:
            with mmap.mmap(self._fd, size, access=mmap.ACCESS_READ) as content:
                if proves_loss(content, self.end):
                    return f"{self.path} is damaged at byte {self.end}; it is left as it is"
        return ""

    def _take_in(
        self, scan: Callable[[Read, int, int], Iterator[ObjectRecord | RefRecord]]
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
        """Kind and content of an object, if it is in this journal."""
        record = self.index.get(id)
        if record is None:
            return None
        content = self._read(record.length, record.offset)
        if object_id(record.kind, content) != id:
            raise SnapshotStoreDamaged(f"{self.path} does not hold {id.hex()} where it should")
        return record.kind, content

    def try_lock(self) -> bool:
        """Lock the journal, unless its writer lives or another process has locked it first."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_linked(self) -> bool:
        """Whether the file still exists under its name."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def close(self) -> None:
        """Close the file, which releases the lock."""
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
        """A new journal. It is locked before it gets its name, so that it never looks abandoned."""
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
        """Write objects; they are in the journal then, but a crash of the machine may lose them."""
        content, added = self._encode(objects)
        self._write(content)
        self._count(added, len(content))

    def append_durably(self, objects: Iterable[NewObject], refs: Mapping[str, Tip]) -> None:
        """Write objects, then refs, and return when these and everything before are on the disk."""
        content, added = self._encode(objects)
        for name, tip in refs.items():
            at = self.end + len(content)
            content += encode_ref(name, tip, synced=self._synced, at=at)
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
            pieces += (encode_object_head(kind, id, len(content)), content)
            offset += HEAD_LENGTH
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
        """Remove what a failed write left after the last complete record."""
        os.ftruncate(self._fd, self.end)


class ForeignJournals:
    """The unsealed journals of other processes, as of the last `refresh`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journals: dict[str, Journal] = {}

    def __iter__(self) -> Iterator[Journal]:
        return iter(self._journals.values())

    def refresh(self, own: set[str]) -> None:
        """Find new journals and new records; `own` are the names of this process's journals."""
        names = {name for name in os.listdir(self._folder) if name.endswith(SUFFIX)} - own
        for name in self._journals.keys() - names:
            self._journals.pop(name).close()
        for name in names - self._journals.keys():
            journal = _open(self._folder / name)
            if journal is not None:
                self._journals[name] = journal
        for journal in self._journals.values():
            journal.follow()

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if it is in one of them."""
        for journal in self._journals.values():
            found = journal.read(id)
            if found is not None:
                return found
        return None

    def has(self, id: bytes) -> bool:
        """Whether an object is in one of them."""
        return any(id in journal.index for journal in self._journals.values())

    def tips(self, name: str) -> list[Tip]:
        """The tips of a ref in these journals."""
        return [journal.refs[name] for journal in self._journals.values() if name in journal.refs]

    def close(self) -> None:
        """Close the files."""
        while self._journals:
            self._journals.popitem()[1].close()


def _open(path: Path) -> Journal | None:
    try:
        return Journal(path, os.open(path, os.O_RDONLY))
    except FileNotFoundError:
        return None  # sealed since it was listed


def take_over_dead(folder: Path, own: set[str]) -> list[Journal]:
    """The journals of dead writers, now locked by this process and fully hashed."""
    taken = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(SUFFIX) or name in own:
            continue
        journal = _open(folder / name)
        if journal is None:
            continue
        if journal.try_lock() and journal.is_linked():
            journal.verify()
            taken.append(journal)
        else:
            journal.close()
    return taken
