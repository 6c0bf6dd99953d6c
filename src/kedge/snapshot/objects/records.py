"""The records of a journal as bytes: objects in full, and which commit a ref stands at.

Every record begins with the same head: a tag, an id and the length of what follows. Nothing but
zeros follows the last record, because journals are allocated ahead.
"""

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha1
from typing import TypeAlias

from kedge.snapshot.objects.formats import BLOB, COMMIT, TAG, TREE, Content, object_id

MAGIC = b"kedge journal 1\n"
KINDS = (b"", COMMIT, TREE, BLOB, TAG)
"""By the numbers that packs use for them too."""
NUMBERS = {kind: number for number, kind in enumerate(KINDS) if kind}

_HEAD = struct.Struct(">B20sQ")
_REF_BODY = struct.Struct(">8sQQQ")
_REF_MARK = b"kedgeref"
_REF = 5
_SUM_LENGTH = 8
_LONGEST_REF = 4096

HEAD_LENGTH = _HEAD.size

Read: TypeAlias = Callable[[int, int], bytes]
"""Reads (length, offset), less at the end of the file."""


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """An object and where its content is."""

    id: bytes
    kind: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Tip:
    """The newest commit of a ref, as far as somebody knows."""

    commit: bytes
    depth: int
    """How many commits the ref has had; the greater one is the newer one."""


@dataclass(frozen=True, slots=True)
class RefRecord:
    """A ref that moved."""

    name: str
    tip: Tip
    synced: int
    """All before this offset was on the disk when the record was written."""
    end: int


def encode_object_head(kind: bytes, id: bytes, length: int) -> bytes:
    """What precedes the content of an object."""
    return _HEAD.pack(NUMBERS[kind], id, length)


def encode_ref(name: str, tip: Tip, *, synced: int, at: int) -> bytes:
    """A whole record that says where a ref stands; all before `synced` is on the disk already.

    It says at which offset it stands itself, because a file that somebody has a snapshot of may be
    a journal too.
    """
    body = _REF_BODY.pack(_REF_MARK, tip.depth, synced, at) + name.encode()
    head = _HEAD.pack(_REF, tip.commit, len(body) + _SUM_LENGTH)
    return head + body + _checksum(head, body)


def _checksum(head: bytes, body: bytes) -> bytes:
    return sha1(head + body, usedforsecurity=False).digest()[:_SUM_LENGTH]


def scan(read: Read, start: int, size: int) -> Iterator[ObjectRecord | RefRecord]:
    """The records from `start` on, up to the first that is not whole; contents are not looked at.

    Right for a journal that was written on this running machine: its bytes are there in order.
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
    """The records up to the first that is not what it says; every content is hashed.

    Needed after a crash of the machine, which may have kept later bytes and lost earlier ones.
    """
    for record in scan(read, start, size):
        if isinstance(record, ObjectRecord):
            content: Content = read(record.length, record.offset)
            if object_id(record.kind, content) != record.id:
                return
        yield record


def proves_loss(content: mmap.mmap, lost: int) -> bool:
    """Whether what was on the disk at this offset must have been whole, because more followed.

    Only the last writes before a crash may be torn; damage further up is the disk's or a person's.
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
