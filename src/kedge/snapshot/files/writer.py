"""The safe writer: carries out steps over a worktree so that each path is either done or untouched,
even after a crash.

A step finds its path in the wanted state (done), in the expected state (then it writes) or in
another (a conflict, untouched). The caller decides the steps and holds the root's lock.
"""

import dataclasses
import errno
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Self

from kedge._failpoints import reach
from kedge.domain.errors import InvariantBroken, PathRefused, SnapshotError
from kedge.domain.file_states import Absent, FileStep, Outcome, Present, Uncovered
from kedge.snapshot.files.atomic import (
    create,
    delete,
    exists,
    in_shares,
    replace,
    settle,
    sync_files,
    sync_folders,
    write_temporary,
)
from kedge.snapshot.files.reader import OBSTACLES, Obstacle, ReadFailure, is_same, look_at
from kedge.snapshot.files.root import (
    FolderAbsent,
    FolderBlocked,
    Root,
    components,
    writable_components,
)
from kedge.snapshot.files.steps import IN_THE_WAY, CannotWrite, MayWrite, Spot, always, skipped
from kedge.snapshot.values import Result

# It is in use, not ours to change, or something else by now: leave it.
_STAYS = {
    errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.EACCES,
    errno.EPERM, errno.EROFS,
}  # fmt: skip


def make_folders(root: Root, path: bytes) -> Iterator[bytes]:
    """Create the folder and its missing parents; returns each one that was created, from the top.

    Raises `FolderBlocked` if a symlink or a file is in the way.
    """
    names = writable_components(path)
    for count, name in enumerate(names):
        with root.folder(b"/".join(names[:count])) as parent:
            try:
                os.mkdir(name, 0o777, dir_fd=parent)
            except FileExistsError:
                continue
        yield b"/".join(names[: count + 1])


def remove_if_empty(root: Root, path: bytes) -> bool:
    """Remove a folder, but never its contents; whether it was removed."""
    parent, _, name = path.rpartition(b"/")
    try:
        writable_components(path)
        with root.folder(parent) as dir_fd:
            os.rmdir(name, dir_fd=dir_fd)
    except (FolderAbsent, FolderBlocked, PathRefused):
        return False
    except OSError as error:
        if error.errno in _STAYS:
            return False
        raise
    return True


def hollow(root: Root, path: bytes) -> list[bytes]:
    """A folder that contains nothing but folders, and all of these, deepest first; else nothing."""
    found = [path]
    for folder in found:
        try:
            with root.folder(folder) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False) or entry.name == ".git":
                        return []
                    found.append(folder + b"/" + os.fsencode(entry.name))
        except (FolderAbsent, FolderBlocked, PermissionError):
            return []
    return found[::-1]


_BATCH = 128
"""Files that are written, then synced together: enough to need only few file system commits."""
_SHARE = 16
"""Fewer files are not worth another thread; then they are written one after the other."""
_SHARE_OF_LIMIT = 8
"""The share of open files for a batch, as each file is open, and perhaps its folder; others need
open files too."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A step whose temporary file is written."""

    spot: Spot
    fd: int | None
    """To be synced; None for a symlink."""


class Writer:
    """Carries out steps; when it ends, its changes are durable."""

    def __init__(
        self,
        root: Root,
        content: Callable[[str], bytes],
        *,
        tag: str,
        on_result: Callable[[Result], None] | None = None,
        may_write: MayWrite = always,
    ) -> None:
        """`content` returns the bytes of a blob; `tag` is part of the names of temporary files.

        `on_result` is called for each path as soon as it is done, which is before it is synced.
        `may_write` is called before anything is written or removed, by several threads if there are
        many files; if it raises, everything is left as after a crash.
        """
        self.created: list[bytes] = []
        """Folders that were created, parents first."""
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

    def put(self, steps: Sequence[FileStep]) -> list[Result]:
        """Carry out steps in the given order, which must have deletions before the writes that
        replace them, and every path only once."""
        for step in steps:
            if isinstance(step.want, Uncovered) or isinstance(step.expect, Uncovered):
                raise InvariantBroken(f"a step for a path that is not covered: {step.path!r}")
        results: list[Result] = []
        for result in self._carried_out(steps):
            if self._on_result is not None:
                self._on_result(result)
            results.append(result)
        return results

    def _carried_out(self, steps: Sequence[FileStep]) -> Iterator[Result]:
        for deleting, run in groupby(steps, lambda step: isinstance(step.want, Absent)):
            alike = list(run)
            batch, carry_out = (_BATCH, self._delete) if deleting else (_batch(), self._write)
            for start in range(0, len(alike), batch):
                yield from carry_out(alike[start : start + batch])

    def refuse(self, step: FileStep, reason: str) -> Result:
        """Leave a path as it is; one in the wanted state is reported as unchanged."""
        result = self._compared(step) or Result(step.path, Outcome.CONFLICT, reason)
        if self._on_result is not None:
            self._on_result(result)
        return result

    def _compared(self, step: FileStep) -> Result | None:
        try:
            writable_components(step.path)
            with self._root.folder(step.folder) as dir_fd:
                return _compare(Spot(step, dir_fd, self.tag))
        except (FolderAbsent, FolderBlocked):
            return Result(step.path, Outcome.UNCHANGED)
        except (PathRefused, OSError) as error:
            return skipped(step, error)

    def remove_if_empty(self, folder: bytes) -> bool:
        """Remove a folder, but never its contents; whether it was removed."""
        self._may_write()
        removed = remove_if_empty(self._root, folder)
        if removed:
            self._touched.add(folder.rpartition(b"/")[0])
            reach("folder-removed")
        return removed

    def remove_if_hollow(self, folder: bytes) -> bool:
        """Remove a folder that contains nothing but folders; whether it was removed."""
        removed = [self.remove_if_empty(each) for each in hollow(self._root, folder)]
        return bool(removed) and removed[-1]

    def _delete(self, steps: Sequence[FileStep]) -> list[Result]:
        return in_shares(self._delete_each, steps, least=_SHARE)

    def _delete_each(self, steps: Sequence[FileStep]) -> list[Result]:
        return [self._delete_one(step) for step in steps]

    def _delete_one(self, step: FileStep) -> Result:
        try:
            writable_components(step.path)
            with self._root.folder(step.folder) as dir_fd:
                spot = Spot(step, dir_fd, self.tag)
                return _compare(spot) or self._carry_out(spot, delete)
        except (FolderAbsent, FolderBlocked):
            return Result(step.path, Outcome.UNCHANGED)
        except (PathRefused, OSError) as error:
            return skipped(step, error)

    def _write(self, steps: Sequence[FileStep]) -> list[Result]:
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

    def _prepare(
        self, step: FileStep, opened: dict[bytes, int], closing: ExitStack
    ) -> Result | _Ready:
        """Do everything up to the moment at which the path itself changes."""
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
            # A lost or damaged content affects only this path.
            return Result(step.path, Outcome.SKIPPED, str(error))
        closing.callback(spot.leave, spot.temporary)
        if fd is not None:
            closing.callback(os.close, fd)
        reach("after-temporary")
        return _Ready(spot, fd)

    def _find(self, step: FileStep, opened: dict[bytes, int], closing: ExitStack) -> Result | Spot:
        """The place to write, if that is still needed and allowed."""
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

    def _open_folder(self, step: FileStep) -> int:
        """The folder of a path, created if the path is to be created."""
        try:
            return self._root.open_folder(step.folder)
        except FolderAbsent:
            if not isinstance(step.expect, Absent):
                raise
        self._may_write()
        for folder in make_folders(self._root, step.folder):
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
        """Remove folders created since then for files that could not be written after all."""
        for folder in reversed(self.created[before:]):
            if remove_if_empty(self._root, folder):
                self.created.remove(folder)


def _batch() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _BATCH
    return max(1, min(_BATCH, limit // _SHARE_OF_LIMIT))


def _compare(spot: Spot) -> Result | None:
    """The result if the path's present state already decides it; None if the step must run."""
    step, disk = spot.step, look_at(spot.dir_fd, spot.name)
    if is_same(disk, step.want):
        return spot.result(Outcome.UNCHANGED)
    if is_same(disk, step.expect):
        if exists(spot.dir_fd, spot.aside):
            return spot.result(Outcome.SKIPPED, IN_THE_WAY)
        return None
    if disk == OBSTACLES[ReadFailure.FOLDER] and isinstance(step.want, Absent):
        # A folder is not a file. After a crash, this same plan may have created it.
        return spot.result(Outcome.UNCHANGED)
    if isinstance(disk, Obstacle):
        return spot.result(disk.outcome, disk.reason)
    if isinstance(disk, Absent):
        return spot.result(Outcome.CONFLICT, "it does not exist any more")
    return spot.result(
        Outcome.CONFLICT,
        "it exists already" if isinstance(step.expect, Absent) else "it was changed since",
    )


def clean_up(
    root: Root,
    steps: Iterable[FileStep],
    *,
    tag: str,
    is_stored: Callable[[str], bool] | None = None,
    may_write: MayWrite = always,
) -> list[Result]:
    """Remove all temporary files of these steps; returns results for paths with problems.

    `is_stored` says whether a blob is stored elsewhere; by default, all expected contents are.
    `may_write` is called before each step; if it raises, the rest is left.

    By the contents of the step's path and of the name aside:

    | in place | aside | then |
    |---|---|---|
    | anything | nothing | nothing was begun, or all is done |
    | the same file | the same file | it was about to be put back: the second name goes |
    | anything | as wanted | it had not been put in place: it goes |
    | something | as expected, and stored | replaced: it goes |
    | as wanted | as expected, and nowhere else | put back |
    | other | as expected, and nowhere else | saved by another program: kept beside it, conflict |
    | nothing | as expected | it was about to be deleted: put back |
    | nothing | other | saved by another program at the last moment: put back, conflict |
    | as wanted | other | the same: put back, conflict |
    | other | other | saved twice by others: the older one is kept beside the newer, conflict |
    """
    troubles: list[Result] = []
    touched: set[bytes] = set()
    for step in steps:
        try:
            components(step.path)
            with root.folder(step.folder) as dir_fd:
                reach("before-settle")
                may_write()
                touched.add(step.folder)
                spot = Spot(step, dir_fd, tag)
                result = settle(
                    dataclasses.replace(spot, is_stored=is_stored) if is_stored else spot
                )
                reach("after-settle")
        except (FolderAbsent, FolderBlocked, PathRefused):
            continue
        except OSError as error:
            result = skipped(step, error)
        if result is not None:
            troubles.append(result)
    sync_folders(root, touched)
    return troubles
