"""Disks that are full, read-only or somewhere on a network: typed errors, nothing half written."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import kedge
from kedge.domain.errors import NetworkFilesystem, StoreFull, StoreReadOnly
from kedge.domain.messages import MessageModel, MessageTime, UserMessage
from kedge.domain.parts import TextPart
from kedge.store.sqlite.file import filesystem_of, refuse_network, tells_of_writes
from kedge.testing.replay import both

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can be mounted only by root; see also max_page_count")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def start(engine: kedge.Engine) -> tuple[kedge.Session, str]:
    """A session with a message."""
    session = await engine.sessions.create("on a small disk")
    message = UserMessage(
        id=engine.ids.message(),
        sessionID=session.id,
        time=MessageTime(created=engine.clock.now()),
        agent="build",
        model=MessageModel(providerID="p", modelID="m"),
    )
    await session.put_message(message)
    return session, message.id


async def write_until_full(engine: kedge.Engine, session: kedge.Session, message: str) -> list[str]:
    """Store parts until there is no space; gives those that were acknowledged."""
    stored: list[str] = []
    size = 40_000
    while size > 10:
        part = TextPart(
            id=engine.ids.part(), sessionID=session.id, messageID=message, text="x" * size
        )
        try:
            await session.put_part(part)
            stored.append(part.id)
        except StoreFull:
            # Smaller ones may still fit: fill it to the brim.
            size //= 2
    return stored


async def check_whole(engine: kedge.Engine, session: kedge.Session, parts: list[str]) -> None:
    """Everything that was acknowledged is there and nothing else, in the tables and in the log."""
    replayed, stored = await both(engine.store)
    assert replayed == stored
    (found,) = stored.sessions[session.id].messages
    assert [part["id"] for part in found[1]] == parts


async def test_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """On a full disk writes are refused whole; when there is space again the engine goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_500_000))
    async with kedge.open(tmp_path, data_dir=small_disk) as engine:
        session, message = await start(engine)
        parts = await write_until_full(engine, session, message)
        assert len(parts) > 3
        with pytest.raises(StoreFull, match="full"):
            await engine.sessions.create("x" * 500_000)
        await check_whole(engine, session, parts)
        ballast.unlink()
        later = await write_until_full(engine, session, message)
        assert later
        await check_whole(engine, session, parts + later)


async def test_a_full_disk_when_opening(small_disk: Path, tmp_path: Path) -> None:
    """A database cannot be made on a full disk; nothing is left that would hinder the next try."""
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(bytes(5_000_000))
    with pytest.raises(StoreFull):
        async with kedge.open(tmp_path, data_dir=small_disk):
            pass
    ballast.unlink()
    async with kedge.open(tmp_path, data_dir=small_disk) as engine:
        await start(engine)


def test_a_read_only_file_system(small_disk: Path) -> None:
    """A database on a file system that was mounted read-only is read-only for root too."""
    path = asyncio.run(make(small_disk))
    before = path.read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreReadOnly, match="writable"):
        asyncio.run(make(small_disk))
    assert path.read_bytes() == before


async def test_a_database_that_may_not_grow(tmp_path: Path) -> None:
    """The same where nothing can be mounted: SQLite itself says that the database is full."""
    async with kedge.open(tmp_path, data_dir=tmp_path / "data") as engine:
        session, message = await start(engine)
        store = engine.store
        connections = [getattr(store, name) for name in ("_inline", "_worker_connection")]
        for connection in connections:
            connection.execute("PRAGMA max_page_count = 300")
        parts = await write_until_full(engine, session, message)
        assert len(parts) > 3
        await check_whole(engine, session, parts)
        for connection in connections:
            connection.execute("PRAGMA max_page_count = 100000")
        part = TextPart(
            id=engine.ids.part(), sessionID=session.id, messageID=message, text="x" * 100_000
        )
        await session.put_part(part)
        await check_whole(engine, session, [*parts, part.id])


OPEN = """
import asyncio, json, sys, kedge
async def main():
    async with kedge.open(sys.argv[1], data_dir=sys.argv[1] + sys.argv[2]) as engine:
        await engine.sessions.create("x")
try:
    asyncio.run(main())
    print(json.dumps(["stored", ""]))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""

# PR_CAPBSET_DROP of CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: after the exec, root obeys modes.
OBEY = """
import ctypes, os, sys
for capability in (1, 2):
    if ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot give up the rights of root")
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users of the machine can look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for each in [folder, *folder.rglob("*")]:
        each.chmod(0o755)
    shutil.rmtree(folder)


def open_without_rights(folder: Path, below: str = "") -> list[str]:
    """What somebody gets who opens an engine and must obey the modes of files, as root need not."""
    command = [OPEN, str(folder), below]
    if os.geteuid() == 0:
        command = [OBEY, *command]
    done = subprocess.run(
        [sys.executable, "-c", *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    said: list[str] = json.loads(done.stdout)
    return said


async def make(data: Path) -> Path:
    """A database; closed."""
    async with kedge.open(data, data_dir=data) as engine:
        await engine.sessions.create("kept")
    return data / "kedge.db"


def test_a_read_only_folder(open_folder: Path) -> None:
    """A folder in which no file can be made is read-only; nothing is left in it."""
    open_folder.chmod(0o555)
    kind, message = open_without_rights(open_folder)
    assert (kind, str(open_folder) in message) == ("StoreReadOnly", True)
    assert list(open_folder.iterdir()) == []
    assert open_without_rights(open_folder, "/new")[0] == "StoreReadOnly"


def test_a_read_only_folder_with_a_database(open_folder: Path) -> None:
    """A database that may be read but not written is read-only, and stays as it is."""
    path = asyncio.run(make(open_folder))
    before = path.read_bytes()
    path.chmod(0o444)
    open_folder.chmod(0o555)
    assert open_without_rights(open_folder)[0] == "StoreReadOnly"
    assert path.read_bytes() == before


def test_a_read_only_file_in_a_writable_folder(open_folder: Path) -> None:
    """The file alone may be read-only."""
    path = asyncio.run(make(open_folder))
    before = path.read_bytes()
    path.chmod(0o444)
    open_folder.chmod(0o777)
    assert open_without_rights(open_folder)[0] == "StoreReadOnly"
    assert path.read_bytes() == before


def test_a_file_that_cannot_even_be_read(open_folder: Path) -> None:
    """A database of somebody else is an error of the operator's kind too."""
    path = asyncio.run(make(open_folder))
    path.chmod(0o000)
    open_folder.chmod(0o777)
    assert open_without_rights(open_folder)[0] == "StoreReadOnly"


MOUNTS = """\
/dev/root / ext4 rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb /home/me/local ext4 rw 0 0
//server/share /mnt/my\\040share cifs rw 0 0
host:/data /srv/data fuse.sshfs rw 0 0
tmpfs /srv/data/fast tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/etc", "ext4"),
        ("/homestead", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/me/local/data", "ext4"),
        ("/mnt/my share/kedge", "cifs"),
        ("/srv/data", "fuse.sshfs"),
        ("/srv/data/fast", "tmpfs"),
    ],
)
def test_the_file_system_of_a_folder(folder: str, kind: str, tmp_path: Path) -> None:
    """The innermost mount decides; network ones are refused with a way out, local ones tell of
    writes."""
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert filesystem_of(Path(folder), mounts) == kind
    assert tells_of_writes(Path(folder), mounts) == (kind in ("ext4", "tmpfs"))
    if kind in ("nfs4", "cifs", "fuse.sshfs"):
        with pytest.raises(NetworkFilesystem, match="KEDGE_DATA_DIR"):
            refuse_network(Path(folder), mounts)
    else:
        refuse_network(Path(folder), mounts)


def test_the_newest_mount_hides_the_older(tmp_path: Path) -> None:
    """Of two mounts at one place the later counts; a machine without the file tells nothing."""
    mounts = tmp_path / "mounts"
    mounts.write_text("server:/x /data nfs rw 0 0\n/dev/sdc /data xfs rw 0 0\n")
    assert filesystem_of(Path("/data"), mounts) == "xfs"
    assert filesystem_of(Path("/data"), tmp_path / "missing") is None
