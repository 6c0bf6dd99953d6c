"""Makes backups beside running kedges; collections of snapshots wait meanwhile.

Rows are copied first, as they are at one moment. Contents are stored before the rows that name
them, so all that these rows need is there when the contents are copied.
"""

import io
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from kedge._async import in_stoppable_thread
from kedge._version import __version__
from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import BackupRefused
from kedge.engine.backup.archive import (
    DATABASE,
    FORMAT,
    MANIFEST,
    OUTPUTS,
    TAR,
    BackedUpFile,
    FolderSink,
    Hashing,
    Manifest,
    Sink,
    TarSink,
)
from kedge.engine.doctor.findings import Progress, silent
from kedge.engine.settings import absolute, data_folder, database_address
from kedge.snapshot.objects.copies import CopiedFile, files_to_copy
from kedge.snapshot.objects.durable import sync_folder
from kedge.snapshot.objects.view import StoreView, stores_in

_COLLECTION = 1800.0
"""Seconds to wait for a collection that runs."""


async def create_backup(
    target: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    without_rows: bool = False,
    clock: Clock | None = None,
    progress: Progress = silent,
) -> Manifest:
    """Make a backup beside running kedges. Collections of snapshots wait until it is done.

    The rows of a PostgreSQL database are not in it: dump them first, then make a backup with
    `without_rows`.
    """
    data, address = data_folder(data_dir), database_address(database)
    place = absolute(Path(target))
    _refuse_taken(place)
    is_server = address is not None and address.startswith(("postgresql://", "postgres://"))
    if is_server and not without_rows:
        raise BackupRefused(
            "the rows of a PostgreSQL database are backed up by pg_dump; run it first, then"
            " `kedge backup create --without-rows` for the snapshots"
        )
    file = data / DATABASE if address is None or is_server else absolute(Path(address))
    if not without_rows and not file.exists():
        raise BackupRefused(f"there is nothing to back up: no {file} exists")
    work = _Creating(
        data=data,
        database=None if without_rows else file,
        source=str(file) if not is_server else "postgresql",
        created=(clock or SystemClock()).now(),
        progress=progress,
    )
    return await in_stoppable_thread(partial(work.create, place))


@dataclass(slots=True, kw_only=True)
class _Creating:
    """One backup that is being made."""

    data: Path
    database: Path | None
    source: str
    created: int
    progress: Progress

    def create(self, target: Path, check: Callable[[], None]) -> Manifest:
        """Make it under another name, then give it its own. `check` raises if it is to stop."""
        unfinished = target.with_name(f"{target.name}.partial-{secrets.token_hex(4)}")
        sink: Sink = TarSink(unfinished) if target.suffix == TAR else FolderSink(unfinished)
        rows = unfinished.with_name(f"{unfinished.name}.rows")
        try:
            files = list(self._files(sink, rows, check))
            manifest = Manifest(
                format=FORMAT,
                kedge=__version__,
                created=self.created,
                source=self.source,
                has_rows=self.database is not None,
                files=files,
            )
            content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            sink.add(MANIFEST, io.BytesIO(content), len(content))
            sink.finish()
            _refuse_taken(target)
            unfinished.rename(target)
            sync_folder(target.parent)
        finally:
            sink.close()
            rows.unlink(missing_ok=True)
            if unfinished.is_dir():
                shutil.rmtree(unfinished, ignore_errors=True)
            else:
                unfinished.unlink(missing_ok=True)
        return manifest

    def _files(self, sink: Sink, rows: Path, check: Callable[[], None]) -> Iterator[BackedUpFile]:
        def tell(done: int, total: int) -> None:
            check()
            self.progress("rows", done, total)

        with ExitStack() as stack:
            views = [stack.enter_context(_held(root)) for root in stores_in(self.data)]
            if self.database is not None:
                from kedge.store.sqlite.copy import copy_file

                copy_file(self.database, rows, tell)
                yield from self._add(sink, CopiedFile(rows, rows.stat().st_size), DATABASE, check)
                rows.unlink()
            known = {view.layout.root for view in views}
            # Stores of projects that are new since: nothing in them is old enough to be collected.
            late = [StoreView(root) for root in stores_in(self.data) if root not in known]
            for view in (*views, *late):
                yield from self._store(sink, view, check)
            yield from self._outputs(sink, check)

    def _store(
        self, sink: Sink, view: StoreView, check: Callable[[], None]
    ) -> Iterator[BackedUpFile]:
        total = sum(each.stat().st_size for each in view.layout.packs.glob("*.pack"))
        done = 0
        for each in files_to_copy(view):
            yield from self._add(sink, each, str(each.path.relative_to(self.data)), check)
            done += each.size
            self.progress(f"snapshots of {view.layout.root.name[:12]}", done, max(total, done))

    def _outputs(self, sink: Sink, check: Callable[[], None]) -> Iterator[BackedUpFile]:
        for path in sorted((self.data / OUTPUTS).glob("*/*")):
            if path.is_file() and not path.is_symlink():
                copied = CopiedFile(path, path.stat().st_size)
                yield from self._add(sink, copied, str(path.relative_to(self.data)), check)

    def _add(
        self, sink: Sink, file: CopiedFile, name: str, check: Callable[[], None]
    ) -> Iterator[BackedUpFile]:
        try:
            opened = file.path.open("rb")
        except FileNotFoundError:
            return  # a journal was sealed, or an output removed: what it held is elsewhere, or old
        with opened:
            hashing = Hashing(opened, file.size, check)
            sink.add(name, hashing, file.size)
        yield BackedUpFile(path=name, size=file.size, sha256=hashing.sha256)


@contextmanager
def _held(root: Path) -> Iterator[StoreView]:
    view = StoreView(root)
    with view.without_collections(_COLLECTION):
        yield view


def _refuse_taken(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise BackupRefused(f"{target} exists already; choose another name")
    if not target.parent.is_dir():
        raise BackupRefused(f"the folder {target.parent} does not exist; make it first")
