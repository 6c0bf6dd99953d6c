"""Everything that snapshots of a worktree need, opened for one root."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from kedge.domain.errors import DirectoryNotFound, InvalidInput, SnapshotRefused
from kedge.snapshot.files.opening import Root
from kedge.snapshot.objects.durable import disk_errors, make_folder
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.plans import Plans
from kedge.snapshot.settings import SnapshotSettings
from kedge.snapshot.worktree.filesystems import Mounts, racy_window, why_not_inotify
from kedge.snapshot.worktree.inotify import Inotify
from kedge.snapshot.worktree.keeping import Limits
from kedge.snapshot.worktree.spaces import Spaces
from kedge.snapshot.worktree.tree import Worktree
from kedge.snapshot.worktree.watching import Rescan, Watch, WatchesUsedUp

WAYS = ("inotify", "scan", "declared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One root with its store and its tree."""

    root: Root
    store: ObjectStore
    worktree: Worktree
    memory: Path
    """Where what is known of the files is written for the next process."""
    looking: Path
    """A mark that is locked by whoever has the root only to look."""
    plans: Plans
    holder: str
    """Under which name the snapshot that the memory needs is kept."""


def open_worktree(
    root: str | os.PathLike[str],
    *,
    data: Path,
    project: str,
    settings: SnapshotSettings,
    way: str | None,
) -> Opened:
    """Open a root; nothing in it is looked at yet."""
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
    limits = Limits(
        file_size=settings.file_size, files=settings.files, window_ns=racy_window(real, mounts)
    )
    worktree = Worktree(
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
