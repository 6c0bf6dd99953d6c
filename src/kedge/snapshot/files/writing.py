"""The safe writer: steps carried out over a worktree, each path either done or untouched.

A step finds its path as wanted (done), as expected (then it is written) or otherwise (a conflict,
untouched). Which steps there should be is the caller's concern, and so is holding the root's lock.
"""

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Self

from kedge.domain.errors import InvariantBroken, PathRefused, SnapshotError
from kedge.domain.failpoints import reach
from kedge.snapshot.disk import Obstacle
from kedge.snapshot.files import folders
from kedge.snapshot.files.looking import OBSTACLES, is_same, look
from kedge.snapshot.files.moving import exists
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root, writable_components
from kedge.snapshot.files.reading import Failure
from kedge.snapshot.files.replacing import create, delete, replace, write_temporary
from kedge.snapshot.files.sharing import in_shares
from kedge.snapshot.files.steps import (
    IN_THE_WAY,
    CannotWrite,
    MayWrite,
    Spot,
    Step,
    always,
    skipped,
)
from kedge.snapshot.files.syncing import sync_files, sync_folders
from kedge.snapshot.values import Absent, Outcome, Present, Result, Uncovered

_BATCH = 128
"""Files written, then synced together: enough for the file system to do it in few commits."""
_SHARE = 16
"""Fewer files are not worth a thread; then each is begun only when the one before it is done."""
_SHARE_OF_LIMIT = 8
"""Each file of a batch is open, and perhaps its folder; others need open files too."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A step whose temporary file is written."""

    spot: Spot
    fd: int | None
    """To be synced; a symlink has none."""


class Writer:
    """Carries out steps; at its end, what it did is on the disk for good."""

    def __init__(
        self,
        root: Root,
        content: Callable[[str], bytes],
        *,
        tag: str,
        on_result: Callable[[Result], None] | None = None,
        may_write: MayWrite = always,
    ) -> None:
        """`content` answers the bytes of a blob; `tag` is in the names of temporary files.

        `on_result` hears of each path as soon as it is done, which is before it is synced.
        `may_write` is called before anything is written or removed, of many files by several
        threads; if it raises, all stays as it is, as after a crash.
        """
        self.created: list[bytes] = []
        """Folders that were made, those above before those below."""
        self._root = root
        self._content = content
        self.tag = tag
        self._on_result = on_result
        self._may_write = may_write
        self._touched: set[bytes] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        reach("before-folder-sync")
        sync_folders(self._root, self._touched)
        reach("after-folder-sync")

    def put(self, steps: Sequence[Step]) -> list[Result]:
        """Carry out steps in the order given, which must have deletions before what takes their
        place, and every path only once."""
        for step in steps:
            if isinstance(step.want, Uncovered) or isinstance(step.expect, Uncovered):
                raise InvariantBroken(f"a step for a path that is not covered: {step.path!r}")
        results: list[Result] = []
        for result in self._carried_out(steps):
            if self._on_result is not None:
                self._on_result(result)
            results.append(result)
        return results

    def _carried_out(self, steps: Sequence[Step]) -> Iterator[Result]:
        for deleting, run in groupby(steps, lambda step: isinstance(step.want, Absent)):
            alike = list(run)
            batch, carry_out = (_BATCH, self._delete) if deleting else (_batch(), self._write)
            for start in range(0, len(alike), batch):
                yield from carry_out(alike[start : start + batch])

    def refuse(self, step: Step, reason: str) -> Result:
        """Leave a path as it is; one that is as wanted already needs nothing."""
        result = self._compared(step) or Result(step.path, Outcome.CONFLICT, reason)
        if self._on_result is not None:
            self._on_result(result)
        return result

    def _compared(self, step: Step) -> Result | None:
        try:
            writable_components(step.path)
            with self._root.folder(step.folder) as dir_fd:
                return _compare(Spot(step, dir_fd, self.tag))
        except (FolderAbsent, FolderBlocked):
            return Result(step.path, Outcome.UNCHANGED)
        except (PathRefused, OSError) as error:
            return skipped(step, error)

    def remove_if_empty(self, folder: bytes) -> bool:
        """Remove a folder, never what is in it; whether it is gone by this."""
        self._may_write()
        removed = folders.remove_if_empty(self._root, folder)
        if removed:
            self._touched.add(folder.rpartition(b"/")[0])
            reach("folder-removed")
        return removed

    def remove_if_hollow(self, folder: bytes) -> bool:
        """Remove a folder with nothing but folders in it; whether it is gone by this."""
        removed = [self.remove_if_empty(each) for each in folders.hollow(self._root, folder)]
        return bool(removed) and removed[-1]

    def _delete(self, steps: Sequence[Step]) -> list[Result]:
        return in_shares(self._delete_each, steps, least=_SHARE)

    def _delete_each(self, steps: Sequence[Step]) -> list[Result]:
        return [self._delete_one(step) for step in steps]

    def _delete_one(self, step: Step) -> Result:
        try:
            writable_components(step.path)
            with self._root.folder(step.folder) as dir_fd:
                spot = Spot(step, dir_fd, self.tag)
                return _compare(spot) or self._carry_out(spot, delete)
        except (FolderAbsent, FolderBlocked):
            return Result(step.path, Outcome.UNCHANGED)
        except (PathRefused, OSError) as error:
            return skipped(step, error)

    def _write(self, steps: Sequence[Step]) -> list[Result]:
        with ExitStack() as closing:
            closing.callback(self._unmake, len(self.created))
            opened: dict[bytes, int] = {}
            prepared = [self._prepare(step, opened, closing) for step in steps]
            ready = [each for each in prepared if isinstance(each, _Ready)]
            failures = sync_files([each.fd for each in ready])
            reach("after-sync")
            commit = partial(self._commit_each, failures)
            committed = iter(in_shares(commit, ready, least=_SHARE))
            return [next(committed) if isinstance(each, _Ready) else each for each in prepared]

    def _commit_each(
        self, failures: dict[int, OSError], prepared: Sequence[_Ready]
    ) -> list[Result]:
        return [self._commit(ready, failures) for ready in prepared]

    def _prepare(self, step: Step, opened: dict[bytes, int], closing: ExitStack) -> Result | _Ready:
        """Everything up to the moment at which the path itself changes."""
        assert isinstance(step.want, Present)
        spot = self._find(step, opened, closing)
        if isinstance(spot, Result):
            return spot
        reach("before-temporary")
        self._may_write()
        try:
            fd = write_temporary(spot, step.want, self._content(step.want.blob))
        except (CannotWrite, OSError) as error:
            return skipped(step, error)
        except SnapshotError as error:
            # What is lost or damaged costs this path alone.
            return Result(step.path, Outcome.SKIPPED, str(error))
        closing.callback(spot.discard, spot.temporary)
        if fd is not None:
            closing.callback(os.close, fd)
        reach("after-temporary")
        return _Ready(spot, fd)

    def _find(self, step: Step, opened: dict[bytes, int], closing: ExitStack) -> Result | Spot:
        """Where to write, if that is still to be done and allowed."""
        parent = step.folder
        try:
            writable_components(step.path)
            if parent not in opened:
                opened[parent] = self._open_folder(step)
                closing.callback(os.close, opened[parent])
            spot = Spot(step, opened[parent], self.tag)
            return _compare(spot) or spot
        except FolderAbsent:
            return Result(step.path, Outcome.CONFLICT, "its folder does not exist any more")
        except FolderBlocked:
            return Result(
                step.path, Outcome.CONFLICT, "a symlink or a file is where its folder should be"
            )
        except (PathRefused, OSError) as error:
            return skipped(step, error)

    def _open_folder(self, step: Step) -> int:
        """The folder of a path, made if the path is to be created."""
        try:
            return self._root.open_folder(step.folder)
        except FolderAbsent:
            if not isinstance(step.expect, Absent):
                raise
        self._may_write()
        for folder in folders.make_folders(self._root, step.folder):
            self.created.append(folder)
            self._touched.add(folder.rpartition(b"/")[0])
            reach("folder-made")
        return self._root.open_folder(step.folder)

    def _commit(self, ready: _Ready, failures: dict[int, OSError]) -> Result:
        step = ready.spot.step
        if ready.fd in failures:
            return skipped(step, failures[ready.fd])
        try:
            return self._carry_out(
                ready.spot, create if isinstance(step.expect, Absent) else replace
            )
        except OSError as error:
            return skipped(step, error)

    def _carry_out(self, spot: Spot, act: Callable[[Spot], Result]) -> Result:
        self._may_write()
        self._touched.add(spot.step.folder)
        return act(spot)

    def _unmake(self, before: int) -> None:
        """Remove the folders made since then for files that could not be written after all."""
        for folder in reversed(self.created[before:]):
            if folders.remove_if_empty(self._root, folder):
                self.created.remove(folder)


def _batch() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _BATCH
    return max(1, min(_BATCH, limit // _SHARE_OF_LIMIT))


def _compare(spot: Spot) -> Result | None:
    """What the path's present state decides already; None if the step is to be carried out."""
    step, disk = spot.step, look(spot.dir_fd, spot.name)
    if is_same(disk, step.want):
        return spot.result(Outcome.UNCHANGED)
    if is_same(disk, step.expect):
        if exists(spot.dir_fd, spot.aside):
            return spot.result(Outcome.SKIPPED, IN_THE_WAY)
        return None
    if disk == OBSTACLES[Failure.FOLDER] and isinstance(step.want, Absent):
        # A folder is no file. After a crash it may be the one that this very plan put there.
        return spot.result(Outcome.UNCHANGED)
    if isinstance(disk, Obstacle):
        return spot.result(disk.outcome, disk.reason)
    if isinstance(disk, Absent):
        return spot.result(Outcome.CONFLICT, "it does not exist any more")
    return spot.result(
        Outcome.CONFLICT,
        "it exists already" if isinstance(step.expect, Absent) else "it was changed since",
    )
