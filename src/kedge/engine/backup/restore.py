"""Restores backups into empty folders.

Everything is copied beside the folder, checked against the manifest, settled, and put in place by
one rename: a restore that is killed leaves a folder that no kedge uses.
"""

import asyncio
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from kedge._async import in_stoppable_thread
from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import BackupRefused
from kedge.domain.ids import IdMaker
from kedge.engine.backup.archive import (
    DATABASE,
    MANIFEST,
    OUTPUTS,
    BackedUpFile,
    Manifest,
    Readable,
    members,
    not_whole,
    read_manifest,
)
from kedge.engine.doctor.findings import Progress, silent
from kedge.engine.open import open_store
from kedge.engine.settings import absolute, data_folder, database_address
from kedge.engine.timeline.recovery import give_up_calls
from kedge.snapshot.objects.durable import SEALED_FILE, make_folder, sync_folder
from kedge.snapshot.objects.layout import prepare
from kedge.snapshot.objects.view import stores_in
from kedge.store.queries.restored import begin_anew, end_work, is_in_use, sessions_at_work

_PIECE = 1 << 20
_CLOSED = "the run was going on when the backup was made"
_SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was restored."""

    data: Path
    manifest: Manifest
    ended: list[str]
    """Sessions whose run was ended, because it ran when the backup was made."""


async def restore_backup(
    source: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    clock: Clock | None = None,
    progress: Progress = silent,
) -> Restored:
    """Restore a backup into a data folder that is empty or not there.

    `database` is only for a backup without rows: the PostgreSQL database that they were restored
    to, and that no process uses yet.
    """
    data, now = data_folder(data_dir), clock or SystemClock()
    place = absolute(Path(source))
    _refuse_used(data)
    staged = data.with_name(f".{data.name}.restoring-{secrets.token_hex(4)}")
    try:
        with not_whole(place):
            manifest = await in_stoppable_thread(partial(_unpack, place, staged, progress))
        address = str(staged / DATABASE) if manifest.has_rows else _server(database)
        ended = await _settle(address, staged, now)
        await asyncio.to_thread(_put_in_place, staged, data)
    finally:
        await asyncio.to_thread(shutil.rmtree, staged, ignore_errors=True)
    return Restored(data=data, manifest=manifest, ended=ended)


def _refuse_used(data: Path) -> None:
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise BackupRefused(
            f"{data} is not empty; restore into an empty folder (--data), and move that one away or"
            " into its place afterwards"
        )
    if not data.parent.is_dir():
        raise BackupRefused(f"the folder {data.parent} does not exist; make it first")


def _server(database: str | os.PathLike[str] | None) -> str:
    address = database_address(database)
    if address is None or not address.startswith(("postgresql://", "postgres://")):
        raise BackupRefused(
            "the backup has no rows: restore them with pg_restore, and name that database with"
            " --database"
        )
    return address


def _unpack(place: Path, staged: Path, progress: Progress, check: Callable[[], None]) -> Manifest:
    """Copy a backup, and compare it with its manifest. `check` raises if it is to stop."""
    manifest = read_manifest(place)
    listed = {each.path: each for each in manifest.files}
    make_folder(staged)
    done = 0
    for name, file in members(place):
        if name == MANIFEST:
            continue
        found = _copied(file, name, staged, place, check)
        if listed.pop(name, None) != found:
            raise BackupRefused(f"{place} is damaged: {name} is not what was backed up")
        done += found.size
        progress("checking and copying", done, manifest.size)
    if listed:
        raise BackupRefused(f"{place} is not whole: {min(listed)} is missing")
    for root in stores_in(staged):
        prepare(root)  # empty folders are not in a backup
    return manifest


def _copied(
    file: Readable, name: str, staged: Path, place: Path, check: Callable[[], None]
) -> BackedUpFile:
    parts = PurePosixPath(name).parts
    if ".." in parts or parts[0] not in (DATABASE, _SNAPSHOTS, OUTPUTS) or name.startswith("/"):
        raise BackupRefused(f"{place} is no backup of kedge: it has a file {name}")
    path = staged / name
    make_folder(path.parent)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        while piece := file.read(_PIECE):
            check()
            out.write(piece)
            digest.update(piece)
            size += len(piece)
        out.flush()
        os.fsync(out.fileno())
    if path.suffix in (".pack", ".idx"):
        path.chmod(SEALED_FILE)
    sync_folder(path.parent)
    return BackedUpFile(path=name, size=size, sha256=digest.hexdigest())


async def _settle(address: str, staged: Path, clock: Clock) -> list[str]:
    """Make the rows those of a database of its own; return the sessions whose work was ended."""
    ids = IdMaker(clock)
    store = await open_store(address, staged, ids)
    try:
        if not address.startswith(str(staged)) and await store.read(is_in_use):
            raise BackupRefused(
                f"{store.location} is in use; restore the rows to a database of their own, or wait"
                " for half a minute if nothing uses it"
            )
        await store.write_durable(partial(begin_anew, secrets.token_hex(8)))
        ended = await store.scan(sessions_at_work)
        for id in ended:
            closing = partial(give_up_calls, id, _CLOSED)
            await store.write_bulk(partial(end_work, id, ids, clock.now(), closing))
    finally:
        await store.close()
    return ended


def _put_in_place(staged: Path, data: Path) -> None:
    _refuse_used(data)
    try:
        staged.rename(data)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        raise BackupRefused(
            f"{data} is where a file system is mounted; restore into a new folder inside of it"
        ) from error
    sync_folder(data.parent)
