"""Cleans up temporary files that the tools of a dead process left beside the files they were
writing, by the steps that were stored before the first file was touched.

Never by the names of the files: after an exchange, such a file may hold the only copy of what
another program saved.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import Absent, Present
from kedge.engine.revert.prepare import lock_files
from kedge.engine.timeline.formats import declared_data, read_declared
from kedge.engine.timeline.timeline import UNPROTECTED
from kedge.snapshot.files.reader import is_same, look_at
from kedge.snapshot.files.root import FolderAbsent, FolderBlocked, Root
from kedge.snapshot.files.steps import RootedStep, taking_back
from kedge.snapshot.files.writer import clean_up, remove_if_empty
from kedge.store.queries.projects import project_of
from kedge.store.queries.timeline import StoredCall, clean_up_call, leftovers

if TYPE_CHECKING:
    from kedge.engine.engine import Engine

_log = logging.getLogger(__name__)

IsStored: TypeAlias = Callable[[str], bool]
"""Whether a blob can be read without the file that holds it."""


@dataclass(frozen=True, slots=True)
class PutInOrder:
    """What happened to the steps of a call."""

    done: tuple[RootedStep, ...] = ()
    """The steps whose files are as the call wanted them."""
    troubles: tuple[tuple[RootedStep, str], ...] = ()
    """The steps during which another program saved at the last moment, and what happened to
    that."""
    left: tuple[RootedStep, ...] = ()
    """The steps that cannot be cleaned up now: the file is being written, or the disk fails."""


async def put_in_order(
    stack: AsyncExitStack, engine: "Engine", call: StoredCall, is_stored: IsStored
) -> PutInOrder:
    """Remove what a call left beside its files, which stay locked until the stack ends.

    A call that is not dead after all holds the locks of its files, and is left alone.
    """
    states = read_declared(call.data)
    steps = states.steps
    if not steps:
        return PutInOrder()
    try:
        busy = await lock_files(stack, engine.timeline.locks, "/", [_below(each) for each in steps])
        free = [each for each in steps if _below(each) not in busy]
        # A call that could not write one of its files was taking the others back.
        back = [each for each in taking_back(steps) if _below(each) not in busy]
        reasons = await asyncio.to_thread(_clean_up_both, free, back, call.part_id, is_stored)
        done = await asyncio.to_thread(lambda: [each for each in free if _is_done(each)])
        await asyncio.to_thread(_remove_if_empty, states.missing)
    except (SnapshotError, OSError) as error:
        _log.warning("cannot clean up after a call in %s yet: %s", call.worktree, error)
        return PutInOrder(left=steps)
    return PutInOrder(
        tuple(done),
        tuple((each, reasons[each.real]) for each in free if each.real in reasons),
        tuple(each for each in steps if _below(each) in busy),
    )


async def stored_in(engine: "Engine", worktree: str) -> IsStored:
    """A function that says what is in the snapshot store of a worktree; nothing if there is no
    store."""
    project = await engine.store.read(partial(project_of, worktree))
    if project is not None and engine.settings.snapshots:
        try:
            return (await engine.snapshots_of(worktree, project.id)).snapshots.has
        except UNPROTECTED as error:
            _log.info("no snapshots of %s: %s", worktree, error)
    return lambda blob: False


async def look_after_leftovers(engine: "Engine") -> None:
    """Clean up after calls whose leftovers could not be removed when they ended: the calls were
    given up, or their files were being written."""
    machine = engine.timeline.machine
    for call in await engine.store.read(partial(leftovers, machine)):
        try:
            order = await _look_after(engine, call)
        except Exception as error:  # noqa: BLE001 - it is tried again; others may succeed
            _log.warning("files left by a call in %s are still there: %s", call.worktree, error)
            continue
        for step, reason in order.troubles:
            _log.warning("%s: %s", os.fsdecode(step.real), reason)


async def _look_after(engine: "Engine", call: StoredCall) -> PutInOrder:
    is_stored = await stored_in(engine, call.worktree)
    states = read_declared(call.data)
    async with AsyncExitStack() as stack:
        order = await put_in_order(stack, engine, call, is_stored)
        if order.left != states.steps:
            data = declared_data(
                states.before, states.after or None, looked=states.looked, steps=order.left
            )
            script = partial(
                clean_up_call, call.session_id, call.part_id, machine=call.machine, data=data
            )
            await engine.store.write(script)
    return order


def _below(step: RootedStep) -> bytes:
    return step.real.removeprefix(b"/")


def _clean_up_both(
    free: Sequence[RootedStep], back: Sequence[RootedStep], tag: str, is_stored: IsStored
) -> dict[bytes, str]:
    """Clean up steps, and the steps that take them back."""

    def is_safe(blob: str) -> bool:
        return is_stored(blob) or _is_written(blob, free)

    reasons = _clean_up(free, tag, is_safe)
    # What is taken back is the call's own, and not the only copy of anything.
    return reasons | _clean_up(back, tag, lambda blob: True)


def _clean_up(steps: Sequence[RootedStep], tag: str, is_stored: IsStored) -> dict[bytes, str]:
    """Clean up steps; return the whole paths with trouble, and what it was."""
    reasons: dict[bytes, str] = {}
    by_root = attrgetter("root")
    for path, group in groupby(sorted(steps, key=by_root), by_root):
        try:
            root = Root(path)
        except (FileNotFoundError, NotADirectoryError):
            # The folder is gone, with everything in it.
            continue
        with root:
            for result in clean_up(
                root, [each.step for each in group], tag=tag, is_stored=is_stored
            ):
                reasons[os.path.join(path, result.path)] = result.reason
    return reasons


def _remove_if_empty(folders: Sequence[bytes]) -> None:
    """Remove folders that were made for files, if they are empty."""
    with Root(b"/") as root:
        for folder in sorted(folders, reverse=True):
            remove_if_empty(root, folder.removeprefix(b"/"))


def _is_written(blob: str, steps: Sequence[RootedStep]) -> bool:
    """Whether a file is as one of the steps wants it, and has this content."""
    return any(
        isinstance(each.step.want, Present) and each.step.want.blob == blob and _is_done(each)
        for each in steps
    )


def _is_done(rooted: RootedStep) -> bool:
    """Whether the file is as the step wants it."""
    step = rooted.step
    try:
        with Root(rooted.root) as root, root.folder(step.folder) as fd:
            return is_same(look_at(fd, step.path.rpartition(b"/")[2]), step.want)
    except (FolderAbsent, FolderBlocked, FileNotFoundError, NotADirectoryError):
        return isinstance(step.want, Absent)
