"""Stores a plan, carries it out and stores its outcome, for whatever it was made."""

from functools import partial
from typing import TYPE_CHECKING

from kedge._failpoints import reach
from kedge.domain.file_states import State
from kedge.domain.receipts import Receipt
from kedge.engine.revert.apply import carry_out
from kedge.engine.revert.lease import Lease
from kedge.engine.revert.prepare import Prepared
from kedge.engine.timeline.formats import declared_data
from kedge.store.queries.changes import Home
from kedge.store.queries.plans import NewPlan, PlanData, PlanKind, PlanStep, StoredPlan
from kedge.store.queries.reverts import finish_plan, store_plan

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session


def plan_data(engine: "Engine", receipt: Receipt, prepared: Prepared) -> PlanData:
    """What every plan has to say."""
    return PlanData(
        machine=engine.timeline.machine,
        partID=engine.ids.part(),
        folders=list(prepared.plan.folders),
        needs={step.number: list(step.needs) for step in prepared.plan.steps if step.needs},
        made=list(prepared.folders),
        receipt=receipt,
    )


async def execute(
    session: "Session", lease: Lease, kind: PlanKind, data: PlanData, prepared: Prepared
) -> Receipt:
    """Store a plan, carry it out, and store its outcome."""
    engine = session._engine
    steps = [
        PlanStep(number=step.number, path=step.path, expect=step.expect, want=step.want)
        for step in prepared.plan.steps
    ]
    plan = await _store(session, lease, kind, data, prepared, steps)
    reach("plan-stored")
    finish = await carry_out(engine.timeline, prepared.order, plan, steps, lease.still_held)
    reach("before-outcome")
    write = partial(finish_plan, plan, finish, fence=lease.fence, now=engine.clock.now())
    session.info = await engine.store.write_bulk(write)
    lease.is_over = True
    reach("after-outcome")
    return finish.receipt


async def _store(
    session: "Session",
    lease: Lease,
    kind: PlanKind,
    data: PlanData,
    prepared: Prepared,
    steps: list[PlanStep],
) -> StoredPlan:
    engine = session._engine
    if prepared.snapshots is not None and prepared.plan.contents:
        contents = prepared.plan.contents.values()
        await prepared.snapshots.put_blobs(contents, session=session.id)
    plan = NewPlan(
        id=engine.ids.make("pln"),
        session_id=session.id,
        worktree=session.worktree,
        kind=kind,
        data=data,
        time_created=engine.clock.now(),
    )
    before: dict[bytes, State] = {step.path: step.expect for step in prepared.plan.steps}
    home = Home(
        session_id=session.id, message_id="", part_id=data.partID, worktree=session.worktree
    )
    call = engine.timeline.new_call(
        home, "declared", asked=prepared.asked, data=declared_data(before)
    )
    script = partial(store_plan, plan, steps, call, fence=lease.fence)
    return await engine.store.write_durable(script)
