"""The two forms of a backup, a folder and a tar file, and the manifest that makes it one.

The manifest is written last, with the hash of every file, under a name that is not yet that of the
backup: what has its name and a manifest is whole.
"""

import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec

from kedge.domain.errors import BackupRefused
from kedge.snapshot.objects.durable import make_folder, sync_folder

FORMAT = 1
DATABASE = "kedge.db"
MANIFEST = "MANIFEST.json"
OUTPUTS = "tool-output"
TAR = ".tar"
_PIECE = 1 << 20


class BackedUpFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a backup."""

    path: str
    """Relative to the data folder."""
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds; its last file."""

    format: int
    kedge: str
    created: int
    """Milliseconds since 1970."""
    source: str
    """The database that it is of, without passwords."""
    has_rows: bool
    """Whether the rows are in it; those of a server are backed up by its own programs."""
    files: list[BackedUpFile]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)


class Readable(Protocol):
    """A file to read."""

    def read(self, length: int = ..., /) -> bytes:
        """The next bytes; none at the end."""


class Sink(Protocol):
    """Where the files of a backup go."""

    def add(self, name: str, file: Readable, size: int) -> None:
        """Store so much of a file."""

    def finish(self) -> None:
        """Have everything on the disk."""

    def close(self) -> None:
        """Write no more, whether it is finished or not."""


class FolderSink:
    """A folder that is being filled."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700)

    def add(self, name: str, file: Readable, size: int) -> None:
        path = self._root / name
        make_folder(path.parent)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            while piece := file.read(_PIECE):
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        sync_folder(path.parent)

    def finish(self) -> None:
        sync_folder(self._root)

    def close(self) -> None:
        pass


class TarSink:
    """A tar file that is being written."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name: str, file: Readable, size: int) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, 0o600
        self._tar.addfile(member, file)

    def finish(self) -> None:
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        with suppress(OSError):  # what is buffered has no room on a full disk
            self._file.close()


class Hashing:
    """So many bytes of a file, hashed while they are read."""

    def __init__(self, file: Readable, size: int, check: Callable[[], None]) -> None:
        """`check` is called before each piece is read."""
        self._check = check
        self._file = file
        self._left = size
        self._digest = hashlib.sha256()

    def read(self, length: int = -1) -> bytes:
        """The next bytes."""
        self._check()
        wanted = self._left if length < 0 else min(length, self._left)
        piece = self._file.read(wanted)
        if wanted and not piece:
            raise BackupRefused("a file became shorter while it was copied; begin again")
        self._left -= len(piece)
        self._digest.update(piece)
        return piece

    @property
    def sha256(self) -> str:
        """The hash of what was read."""
        return self._digest.hexdigest()


def members(place: Path) -> Iterator[tuple[str, Readable]]:
    """The files of a backup with their names."""
    if place.is_dir():
        for path in sorted(place.rglob("*")):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise BackupRefused(f"{path} is neither a file nor a folder")
            if path.is_file():
                with path.open("rb") as file:
                    yield str(path.relative_to(place)), file
        return
    with tarfile.open(place, "r:") as tar:
        for member in tar:
            found = tar.extractfile(member) if member.isfile() else None
            if found is None:
                raise BackupRefused(f"{place} has an entry that is no file: {member.name}")
            with found:
                yield member.name, found


@contextmanager
def not_whole(place: Path) -> Iterator[None]:
    """Translate the errors of reading a backup that is cut off, or none."""
    try:
        yield
    except FileNotFoundError as error:
        raise BackupRefused(f"there is no {error.filename}") from error
    except tarfile.TarError as error:
        raise BackupRefused(f"{place} is no whole backup: {error}") from error


def decode_manifest(content: bytes, place: Path) -> Manifest:
    try:
        found = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise BackupRefused(f"{place} is no whole backup: its manifest says {error}") from error
    if found.format != FORMAT:
        raise BackupRefused(
            f"{place} was made by kedge {found.kedge} in another form; use that version"
        )
    return found


def read_manifest(source: Path) -> Manifest:
    """What a backup says that it holds."""
    with not_whole(source):
        for name, file in members(source):
            if name == MANIFEST:
                return decode_manifest(file.read(), source)
    raise BackupRefused(f"{source} is no whole backup: it has no manifest")
