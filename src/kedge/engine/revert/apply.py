"""Applies a plan, or completes it after a crash, and records the outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kedge._failpoints import reach
from kedge.domain.file_states import AsideCopy, FileStep, Outcome, Present, State
from kedge.domain.receipts import Receipt
from kedge.engine.revert.receipts import KNOWN, corrected, step_outcomes
from kedge.engine.timeline.formats import declared_data
from kedge.snapshot.aio import AsyncOrdered
from kedge.snapshot.files.steps import MayWrite
from kedge.snapshot.values import Result
from kedge.store.queries.plans import PlanStep, StoredPlan
from kedge.store.queries.reverts import Finish

if TYPE_CHECKING:
    from kedge.engine.timeline.timeline import Timeline


async def carry_out(
    timeline: "Timeline",
    order: AsyncOrdered | None,
    plan: StoredPlan,
    steps: Sequence[PlanStep],
    still_held: MayWrite,
    failed: Mapping[bytes, Result] | None = None,
) -> Finish:
    """Carry out a stored plan, except at paths where that is known to be impossible.

    Works the same if some of its steps are done already. Raises `LeaseLost` before the first step
    after the session was lost; the plan is then completed by another process.
    """
    results = dict(failed or {})
    todo = [_step(plan, step) for step in steps if step.path not in results]
    # Changes that others record from here on are not ours, though they come before the end of the
    # plan.
    looked = await timeline.head()
    reach("before-apply")
    # There may be only folders left to remove, if another program deleted their files.
    if todo or (order is not None and plan.data.folders):
        assert order is not None
        applied = await order.apply(
            todo,
            tag=tag_of(plan),
            folders=plan.data.folders,
            resumed=failed is not None,
            may_write=still_held,
        )
        results |= {result.path: result for result in applied}
    reach("after-apply")
    return finish_of(plan, steps, results, looked=looked)


async def clean_up(
    order: AsyncOrdered, plan: StoredPlan, steps: Sequence[PlanStep], still_held: MayWrite
) -> dict[bytes, Result]:
    """Remove what a crash left beside the files of a plan; return the paths where that failed."""
    left = [_step(plan, step) for step in steps]
    troubles = await order.clean_up(left, tag=tag_of(plan), may_write=still_held)
    return {result.path: result for result in troubles}


def finish_of(
    plan: StoredPlan,
    steps: Sequence[PlanStep],
    results: Mapping[bytes, Result],
    *,
    looked: int | None = None,
) -> Finish:
    """What to record, from the outcome of each path."""
    receipt = corrected(plan.data.receipt, results)
    outcomes = step_outcomes(steps, results)
    done = [step for step in steps if outcomes[step.number] == "done"]
    seen, unseen = _known(done, receipt), _unknown(receipt)
    if plan.kind in ("undo", "redo"):
        # The conversation still tells of what is no longer there.
        seen, unseen = [], [step.path for step in steps]
    before: dict[bytes, State] = {step.path: step.expect for step in done}
    after: dict[bytes, State] = {step.path: step.want for step in done}
    return Finish(
        receipt=receipt,
        outcomes=outcomes,
        seen=seen,
        unseen=unseen,
        call_data=declared_data(before, after, looked=looked),
    )


def all_skipped(steps: Sequence[PlanStep], reason: str) -> dict[bytes, Result]:
    """The results of steps of which none can be done."""
    return {step.path: Result(step.path, Outcome.SKIPPED, reason) for step in steps}


def tag_of(plan: StoredPlan) -> str:
    """The common part of the names of a plan's temporary files."""
    return plan.id.removeprefix("pln_")


def _known(done: Sequence[PlanStep], receipt: Receipt) -> list[tuple[bytes, str | None]]:
    known = {entry.path_bytes for entry in receipt.files if entry.outcome in KNOWN}
    return [
        (step.path, step.want.blob if isinstance(step.want, Present) else None)
        for step in done
        if step.path in known
    ]


def _unknown(receipt: Receipt) -> list[bytes]:
    known = (*KNOWN, "unchanged", "skipped")
    return [entry.path_bytes for entry in receipt.files if entry.outcome not in known]


def _step(plan: StoredPlan, step: PlanStep) -> FileStep:
    needs = plan.data.needs.get(step.number, ())
    return replace(step, needs=tuple(AsideCopy(*each) for each in needs))
