"""Packs of whole objects with their indexes: writes and reads them."""

import os
import struct
import zlib
from collections.abc import Iterable
from hashlib import sha1
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects.durable import SEALED_FILE, sync_folder
from kedge.snapshot.objects.formats import ID_LENGTH
from kedge.snapshot.objects.journal import KINDS, NUMBERS

if TYPE_CHECKING:
    import pygit2


class Packs:
    """The objects in one of git's object folders; opened on first use, and again when it
    changed."""

    def __init__(self, objects: Path) -> None:
        self.objects = objects
        self._opened: pygit2.Odb | None = None

    def _open(self) -> "pygit2.Odb":
        # Without its alternates: borrowed objects must never count as our own.
        import pygit2

        database = pygit2.Odb()
        database.add_backend(pygit2.OdbBackendPack(str(self.objects)), 2)
        database.add_backend(pygit2.OdbBackendLoose(str(self.objects), -1, False), 1)
        return database

    def _database(self) -> "pygit2.Odb":
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def reopen(self) -> None:
        """Reread the folder; packs may have been added and removed."""
        self._opened = None

    def exists(self, id: bytes) -> bool:
        """Whether the object is here."""
        import pygit2

        return self._database().exists(pygit2.Oid(raw=id))

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if it is here; the content is checked against its id."""
        import pygit2

        oid = pygit2.Oid(raw=id)
        try:
            return self._read(oid)
        except (pygit2.GitError, OSError):
            # Most likely its pack was just replaced by another one.
            self.reopen()
        try:
            return self._read(oid)
        except (pygit2.GitError, OSError) as error:
            raise SnapshotStoreDamaged(f"{id.hex()} in {self.objects}: {error}") from error

    def _read(self, oid: "pygit2.Oid") -> tuple[bytes, bytes] | None:
        try:
            kind, content = self._database().read(oid)
        except KeyError:
            return None
        return KINDS[kind], content


class BorrowedPacks(Packs):
    """The objects of a user's repository, including those that it borrows itself."""

    def _open(self) -> "pygit2.Odb":
        import pygit2

        try:
            return pygit2.Odb(str(self.objects))
        except pygit2.GitError:
            return pygit2.Odb()  # the folder is gone, with all objects it lent


COMPRESSION = 6

_PACK_HEAD = struct.Struct(">4sII")
_INDEX_HEAD = b"\xfftOc" + struct.pack(">I", 2)
_FAR = 1 << 31
"""From here on an offset needs the index's table of long offsets."""


def write_pack(
    folder: Path, unique: str, count: int, objects: Iterable[tuple[bytes, bytes, bytes]]
) -> Path:
    """Write `count` objects (id, kind, content) as a pack; it is on the disk when this returns.

    The same objects in the same order make the same file, so repeating it does no harm.
    """
    # To git, every file that ends in `.idx` is the index of a pack.
    unfinished = folder / f"tmp_kedge_{unique}_pack"
    try:
        with _private(unfinished) as file:
            entries, checksum = _write_objects(file, count, objects)
        index = folder / f"tmp_kedge_{unique}_idx"
        try:
            with _private(index) as file:
                _write_index(file, entries, checksum)
            return publish(unfinished, index, folder, checksum.hex())
        finally:
            index.unlink(missing_ok=True)
    finally:
        unfinished.unlink(missing_ok=True)


def publish(pack: Path, index: Path, folder: Path, name: str) -> Path:
    """Sync a finished pack and give it the name under which git finds it, the index last."""
    for path in (pack, index):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        path.chmod(SEALED_FILE)
    final = folder / f"pack-{name}.pack"
    pack.rename(final)
    index.rename(final.with_suffix(".idx"))
    sync_folder(folder)
    return final


def _private(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write_objects(
    file: BinaryIO, count: int, objects: Iterable[tuple[bytes, bytes, bytes]]
) -> tuple[list[tuple[bytes, int, int]], bytes]:
    entries = []
    head = _PACK_HEAD.pack(b"PACK", 2, count)
    digest = sha1(head, usedforsecurity=False)
    file.write(head)
    offset = len(head)
    for id, kind, content in objects:
        packed = _entry_head(NUMBERS[kind], len(content)) + zlib.compress(content, COMPRESSION)
        entries.append((id, zlib.crc32(packed), offset))
        digest.update(packed)
        file.write(packed)
        offset += len(packed)
    file.write(digest.digest())
    return entries, digest.digest()


def _entry_head(number: int, size: int) -> bytes:
    head = bytearray()
    byte, size = number << 4 | size & 0xF, size >> 4
    while size:
        head.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    head.append(byte)
    return bytes(head)


def _write_index(file: BinaryIO, entries: list[tuple[bytes, int, int]], checksum: bytes) -> None:
    entries.sort()
    counts = [0] * 256
    for id, _, _ in entries:
        counts[id[0]] += 1
    below, fanout = 0, []
    for count in counts:
        below += count
        fanout.append(below)
    far = [offset for _, _, offset in entries if offset >= _FAR]
    places = {offset: _FAR | n for n, offset in enumerate(far)}
    content = b"".join(
        (
            _INDEX_HEAD,
            struct.pack(">256I", *fanout),
            *(id for id, _, _ in entries),
            struct.pack(f">{len(entries)}I", *(crc for _, crc, _ in entries)),
            struct.pack(f">{len(entries)}I", *(places.get(at, at) for _, _, at in entries)),
            struct.pack(f">{len(far)}Q", *far),
            checksum,
        )
    )
    file.write(content + sha1(content, usedforsecurity=False).digest())


def read_ids(path: Path) -> bytes:
    """The ids in a pack from its index, sorted and joined."""
    with path.open("rb") as index:
        ids_at = len(_INDEX_HEAD) + 1024
        index.seek(ids_at - 4)
        (count,) = struct.unpack(">I", index.read(4))
        return index.read(count * ID_LENGTH)


def read_index(path: Path) -> list[tuple[bytes, int]]:
    """The ids in a pack, each with its size there in bytes."""
    content = path.read_bytes()
    ids_at = len(_INDEX_HEAD) + 1024
    (count,) = struct.unpack_from(">I", content, ids_at - 4)
    offsets_at = ids_at + count * (ID_LENGTH + 4)
    offsets = list(struct.unpack_from(f">{count}I", content, offsets_at))
    far_at = offsets_at + count * 4
    for n, offset in enumerate(offsets):
        if offset & _FAR:
            (offsets[n],) = struct.unpack_from(">Q", content, far_at + (offset ^ _FAR) * 8)
    edges = [*sorted(offsets), path.with_suffix(".pack").stat().st_size - ID_LENGTH]
    sizes = {this: after - this for this, after in pairwise(edges)}
    ids = (
        content[at : at + ID_LENGTH] for at in range(ids_at, ids_at + count * ID_LENGTH, ID_LENGTH)
    )
    return [(id, sizes[offset]) for id, offset in zip(ids, offsets, strict=True)]
