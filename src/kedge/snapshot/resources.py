"""The resources of one worktree's snapshots, opened together.

If the process dies midway, the next one cleans up after it. A plan is carried out, and cleaned up
after, only under the root's lock: so a plan that is found under the lock belongs to a dead process.
"""

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kedge.domain.errors import DirectoryNotFound, InvalidInput, SnapshotRefused
from kedge.domain.file_states import Absent, FileStep, Present, State
from kedge.snapshot.files.root import Root
from kedge.snapshot.files.writer import clean_up
from kedge.snapshot.objects.durable import disk_errors, make_folder, replace_file
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.values import SnapshotSettings
from kedge.snapshot.worktree.covered_files import FileLimits
from kedge.snapshot.worktree.filesystems import Mounts, racy_window, why_not_inotify
from kedge.snapshot.worktree.repositories import Spaces
from kedge.snapshot.worktree.state import WorktreeState
from kedge.snapshot.worktree.watch import Inotify, Rescan, Watch, WatchesUsedUp

_DAMAGED = ".damaged"


class _Written(msgspec.Struct, array_like=True, frozen=True):
    """A step in stored form; an empty blob means that nothing is at the path."""

    number: int
    path: bytes
    expect_blob: str
    expect_mode: int
    want_blob: str
    want_mode: int


class Plans:
    """The unfinished plans of one worktree, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def carried_out(self, steps: list[FileStep]) -> Iterator[str]:
        """Store the steps for as long as the block lasts; yields the tag of their files."""
        tag = uuid.uuid4().hex[:12]
        path = self._folder / f"{tag}.plan"
        with disk_errors("writing down what is about to be put back"):
            make_folder(self._folder)
            content = msgspec.msgpack.encode([_written(step) for step in steps])
            replace_file(path, content, beside=f"{tag}.new")
        yield tag
        # Left behind if the block raised: then something may need cleaning up.
        path.unlink()

    def clean_up(self, root: Root) -> None:
        """Clean up after dead processes; the caller holds the root's lock."""
        for path in sorted(self._folder.glob("*.plan")):
            try:
                steps = msgspec.msgpack.decode(path.read_bytes(), type=list[_Written])
            except msgspec.DecodeError:
                # Its files may be the only copy of a user's bytes: keep both.
                path.rename(path.with_suffix(_DAMAGED))
                continue
            clean_up(root, [_step(step) for step in steps], tag=path.stem)
            path.unlink()
        for path in self._folder.glob("*.new"):
            path.unlink()

    def are_there(self) -> bool:
        """Whether anything needs cleaning up; costs one listing of a folder."""
        return any(not name.endswith(_DAMAGED) for name in self._names())

    def damaged(self) -> str:
        """What cannot be cleaned up, in words; empty if nothing."""
        tags = [name.removesuffix(_DAMAGED) for name in self._names() if name.endswith(_DAMAGED)]
        if not tags:
            return ""
        return (
            f"what a restore left behind cannot be put in order: look at the files named"
            f" .kedge-{tags[0]}-* in the worktree, then remove {self._folder / tags[0]}{_DAMAGED}"
        )

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []


def _written(step: FileStep) -> _Written:
    return _Written(step.number, step.path, *_parts(step.expect), *_parts(step.want))


def _parts(state: State) -> tuple[str, int]:
    return (state.blob, state.mode) if isinstance(state, Present) else ("", 0)


def _step(written: _Written) -> FileStep:
    return FileStep(
        number=written.number,
        path=written.path,
        expect=_state(written.expect_blob, written.expect_mode),
        want=_state(written.want_blob, written.want_mode),
    )


def _state(blob: str, mode: int) -> State:
    return Present(blob, mode) if blob else Absent()


WAYS = ("inotify", "scan", "declared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A root with its store and its tree."""

    root: Root
    store: ObjectStore
    worktree: WorktreeState
    memory: Path
    """Where the known state of the files is stored for the next process."""
    looking: Path
    """A mark that is locked by a holder of the root that only reads."""
    plans: Plans
    holder: str
    """The name under which the snapshot that the memory needs is kept."""


def open_worktree(
    root: str | os.PathLike[str],
    *,
    data: Path,
    project: str,
    settings: SnapshotSettings,
    way: str | None,
) -> Opened:
    """Open a root; nothing in it is read yet."""
    if way is not None and way not in WAYS:
        raise InvalidInput(f"there is no way {way!r}; choose one of {', '.join(WAYS)}")
    real = os.fsencode(os.path.realpath(root))
    try:
        opened = Root(real)
    except (FileNotFoundError, NotADirectoryError):
        raise DirectoryNotFound(os.fspath(root)) from None
    except OSError as error:
        raise SnapshotRefused(
            f"the folder {os.fspath(root)} cannot be opened: {error.strerror}"
        ) from error
    folder = data / "snapshots" / project
    try:
        with disk_errors("opening the snapshot store"):
            store = ObjectStore(folder, budget=settings.disk)
            make_folder(folder / "roots")
    except BaseException:
        opened.close()
        raise
    mounts = Mounts()
    watch, way_reason = _choose(real, mounts, way)
    limits = FileLimits(
        file_size=settings.file_size, files=settings.files, window_ns=racy_window(real, mounts)
    )
    worktree = WorktreeState(
        opened,
        Spaces(real, os.fsencode(data)),
        watch,
        lambda content: store.put(BLOB, content),
        limits,
    )
    worktree.way_reason = way_reason
    digest = hashlib.sha256(real).hexdigest()[:32]
    return Opened(
        root=opened,
        store=store,
        worktree=worktree,
        memory=folder / "roots" / f"{digest}.memory",
        looking=folder / "roots" / f"{digest}.looking",
        plans=Plans(folder / "plans" / digest),
        holder=f"root-{digest}",
    )


def _choose(root: bytes, mounts: Mounts, way: str | None) -> tuple[Watch, str]:
    if way is not None and way != "inotify":
        return Rescan(), "it was asked for"
    against = why_not_inotify(root, mounts) if way is None else None
    if against is None:
        try:
            return Inotify(), ""
        except WatchesUsedUp as error:
            against = f"no inotify instance is to be had: {error}"
    return Rescan(), against
