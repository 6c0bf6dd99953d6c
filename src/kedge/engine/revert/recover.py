"""Completes or closes the plans that a process left unfinished when it died."""

import errno
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kedge._async import to_the_end
from kedge._failpoints import reach
from kedge.domain.errors import (
    DirectoryNotFound,
    RootBusy,
    SessionBusy,
    SessionNotFound,
    SnapshotError,
    SnapshotStoreFull,
)
from kedge.domain.file_states import Absent, Outcome, Present
from kedge.engine.diffs.summaries import summarise
from kedge.engine.revert.apply import all_skipped, carry_out, clean_up, finish_of
from kedge.engine.revert.lease import Lease, resumed
from kedge.engine.revert.prepare import lock_files
from kedge.engine.timeline.timeline import UNPROTECTED
from kedge.snapshot.aio import AsyncOrdered
from kedge.snapshot.files.reader import is_same
from kedge.snapshot.values import Result
from kedge.store.queries.plans import (
    PlanStep,
    StepOutcome,
    StoredPlan,
    open_plans,
    plan_steps,
)
from kedge.store.queries.projects import project_of
from kedge.store.queries.reverts import Finish, finish_plan

if TYPE_CHECKING:
    from kedge.engine.engine import Engine

_log = logging.getLogger(__name__)
_BUSY = "another session is writing it"
_ELSEWHERE = "it was interrupted on another machine"
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}
"""Errors of a machine that lacks some resource; they are no reason to close a plan."""
_PATIENCE = 600_000
"""Milliseconds that the machine of an unfinished plan has to come back."""


class Unfinished:
    """Plans that were interrupted."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    async def recover_session(self, session_id: str) -> None:
        """Complete the plans of one session whose owners are gone; raise what prevents it, because
        the session cannot be used before that."""
        for plan in await self._engine.store.read(partial(open_plans, session_id)):
            if plan.state == "planned":
                await self._carry_through(plan)

    async def _carry_through(self, plan: StoredPlan) -> None:
        with suppress(SessionBusy):
            await to_the_end(self._resume(plan))

    async def _resume(self, plan: StoredPlan) -> None:
        engine = self._engine
        here = plan.data.machine == engine.timeline.machine
        if not here and engine.clock.now() - plan.time_created < _PATIENCE:
            return
        async with resumed(engine, plan.session_id, plan.id) as lease:
            if lease is not None:
                steps = await engine.store.scan(partial(plan_steps, plan.id))
                if here:
                    await self._go_on(plan, steps, lease)
                else:
                    finish = finish_of(plan, steps, all_skipped(steps, _ELSEWHERE))
                    await self._close(plan, _none_ruled_out(finish), lease)

    async def _go_on(self, plan: StoredPlan, steps: Sequence[PlanStep], lease: Lease) -> None:
        timeline = self._engine.timeline
        async with AsyncExitStack() as stack:
            paths = [step.path for step in steps]
            busy = await lock_files(stack, timeline.locks, plan.worktree, paths)
            failed = {path: Result(path, Outcome.CONFLICT, _BUSY) for path in busy}
            order: AsyncOrdered | None = None
            is_known = plan.kind in ("files", "undo", "redo")
            try:
                if steps:
                    order = await self._order(stack, plan)
                    failed |= await clean_up(order, plan, steps, lease.still_held)
                finish = await carry_out(timeline, order, plan, steps, lease.still_held, failed)
            except (*UNPROTECTED, OSError) as error:
                if _may_pass(error):
                    raise
                # Trying for ever would keep the session busy for ever.
                _log.warning("a revert in %s cannot be finished: %s", plan.worktree, error)
                found = await _as_found(order, steps)
                is_known = is_known and found is not None
                results = all_skipped(steps, str(error)) | (found or {})
                finish = finish_of(plan, steps, results)
            # What stays a change, or takes single calls out, is decided by what is found after it.
            await self._close(plan, finish if is_known else _none_ruled_out(finish), lease)

    async def _order(self, stack: AsyncExitStack, plan: StoredPlan) -> AsyncOrdered:
        engine = self._engine
        project = await engine.store.read(partial(project_of, plan.worktree))
        if project is None:
            raise DirectoryNotFound(plan.worktree)
        snapshots = await engine.snapshots_of(plan.worktree, project.id)
        return await stack.enter_async_context(snapshots.ordered())

    async def _close(self, plan: StoredPlan, finish: Finish, lease: Lease) -> None:
        engine = self._engine
        reach("before-outcome")
        write = partial(finish_plan, plan, finish, fence=lease.fence, now=engine.clock.now())
        await engine.store.write_bulk(write)
        lease.is_over = True
        reach("after-outcome")
        if plan.kind != "revert":
            with suppress(SessionNotFound):
                await summarise(await engine.sessions.get(plan.session_id))


def _none_ruled_out(finish: Finish) -> Finish:
    """Without ruling out any step: one that cannot be done now may have been done before the crash.

    An unrevert finds that out by merging, which changes nothing if it was not done.
    """
    outcomes: dict[int, StepOutcome] = {
        n: "done" if outcome == "done" else "unsure" for n, outcome in finish.outcomes.items()
    }
    return replace(finish, outcomes=outcomes)


async def _as_found(
    order: AsyncOrdered | None, steps: Sequence[PlanStep]
) -> dict[bytes, Result] | None:
    """The steps that were carried out before the trouble; None if the files cannot be inspected."""
    if order is None:
        return None
    try:
        disk = await order.look([step.path for step in steps])
    except (SnapshotError, OSError):
        return None
    return {
        step.path: Result(step.path, Outcome.UNCHANGED)
        for step in steps
        if isinstance(found := disk[step.path], Present | Absent) and is_same(found, step.want)
    }


def _may_pass(error: Exception) -> bool:
    """Whether the obstacle to completing a plan may be temporary."""
    if isinstance(error, RootBusy | SnapshotStoreFull):
        return True
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in _PASSING
