"""Helpers for the checks of reverts: conversations with changes, and plans that are only recorded
as carried out."""

from collections.abc import Sequence
from typing import Any

from kedge.domain.file_states import Absent, Outcome, Present
from kedge.domain.messages import Message as AnyMessage
from kedge.domain.messages import MessageTime
from kedge.domain.receipts import Receipt, receipt_entry
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.boundaries import find_boundary
from kedge.store.queries.changes import (
    ChangeSource,
    Home,
    NewChange,
    StoredChange,
    add_changes,
    changes_between,
)
from kedge.store.queries.fences import Fence
from kedge.store.queries.plans import NewPlan, PlanData, PlanKind, PlanStep, StepOutcome, StoredPlan
from kedge.store.queries.reverts import Finish, begin_revert, finish_plan, store_plan
from kedge.store.queries.sessions import get_session, lock_session
from kedge.store.queries.timeline import NewCall, next_number
from kedge.store.queries.turns import begin_turn, finish_turn
from kedge.store.transaction import Script
from kedge.testing.store.scene import START, WORKTREE, Scene

STEP = PlanStep(number=0, path=b"a", expect=Present("1" * 40, 0o100644), want=Absent())


async def conversation(scene: Scene, turns: int = 3, **given: Any) -> SessionInfo:  # noqa: ANN401
    """A session of turns, each a question and an answer with a text, a change and its cost."""
    info = await scene.add_session(**given)
    for n in range(turns):
        scene.clock.advance(100)
        user = await scene.add_user(info)
        await scene.add_text(user, f"question {n}")
        ended = MessageTime(created=START, completed=START + 50)
        answer = await scene.add_assistant(info, user.id, time=ended)
        text = await scene.add_text(answer, f"answer {n}")
        await scene.put(scene.finish(answer, 0.5, input=n + 1))
        await add_change(scene, answer, text.id, f"file{n}".encode())
    return info


async def add_change(
    scene: Scene,
    message: AnyMessage,
    part_id: str,
    path: bytes,
    source: ChangeSource = "declared",
) -> None:
    """Record that a part made a file."""
    home = Home(
        session_id=message.sessionID, message_id=message.id, part_id=part_id, worktree=WORKTREE
    )
    change = NewChange(path=path, before=Absent(), after=Present("1" * 40, 0o100644), source=source)

    def script() -> Script[None]:
        number = yield from next_number()
        yield from add_changes(home, [change], number=number)

    await scene.store.write(script)


async def changes_of(scene: Scene, info: SessionInfo, first: int = 0) -> list[StoredChange]:
    """All of a session's own changes from a position on."""
    return await scene.read(changes_between, info.id, first)


async def take(scene: Scene, info: SessionInfo, owner: str = "owner") -> Fence:
    """The lease of a session, for a revert; any other owner counts as alive."""
    return await scene.write(
        begin_revert,
        info.id,
        owner,
        scene.ids,
        ttl=60_000,
        is_alive=lambda owner, late: True,
        now=scene.clock.now(),
    )


async def put_plan(
    scene: Scene,
    info: SessionInfo,
    fence: Fence,
    message_id: str | None,
    part_id: str | None = None,
    *,
    kind: PlanKind = "revert",
    steps: Sequence[PlanStep] = (),
    **given: Any,  # noqa: ANN401 - any field of the plan's data
) -> StoredPlan:
    """Store a plan that is not carried out."""
    boundary = None
    if message_id is not None:
        boundary = await scene.read(find_boundary, info.id, message_id, part_id)
        assert boundary is not None
    nothing = Receipt(files=[], notes=[], applied=True, strategy="merge")
    data = PlanData(
        machine="machine",
        partID=scene.ids.part(),
        messageID=boundary.message_id if boundary else None,
        boundaryPartID=boundary.part_id if boundary else None,
        pos=boundary.pos if boundary else None,
        **{"receipt": nothing, **given},
    )
    worktree = (await scene.write(lock_session, info.id)).worktree
    plan = NewPlan(
        id=scene.ids.make("pln"),
        session_id=info.id,
        worktree=worktree,
        kind=kind,
        data=data,
        time_created=scene.clock.now(),
    )
    call = NewCall(
        session_id=info.id,
        part_id=data.partID,
        message_id="",
        worktree=worktree,
        machine="machine",
        kind="declared",
        asked=0,
        data="[]",
    )
    return await scene.bulk(store_plan, plan, steps, call, fence=fence)


def finish_of(plan: StoredPlan, outcomes: dict[int, StepOutcome] | None = None) -> Finish:
    """The outcome of a plan that was carried out as planned, or as given for each step."""
    return Finish(
        receipt=plan.data.receipt, outcomes=outcomes or {}, seen=(), unseen=(), call_data="[]"
    )


async def revert(
    scene: Scene,
    info: SessionInfo,
    message_id: str | None,
    part_id: str | None = None,
    *,
    left: Sequence[bytes] = (),
    outcomes: dict[int, StepOutcome] | None = None,
    **given: Any,  # noqa: ANN401 - as `put_plan`
) -> StoredPlan:
    """A revert or unrevert from its beginning to its end; at paths in `left` there was a
    conflict."""
    entries = [
        receipt_entry(path, Outcome.CONFLICT, "it was changed since", "declared") for path in left
    ]
    receipt = Receipt(files=entries, notes=[], applied=True, strategy="merge")
    fence = await take(scene, info)
    plan = await put_plan(scene, info, fence, message_id, part_id, receipt=receipt, **given)
    await scene.bulk(
        finish_plan, plan, finish_of(plan, outcomes), fence=fence, now=scene.clock.now()
    )
    return plan


async def prompt(scene: Scene, info: SessionInfo, owner: str = "owner") -> AnyMessage:
    """A turn without an answer."""
    message = scene.user(info)
    fence = await scene.bulk(
        begin_turn,
        message,
        [],
        lambda info: info,
        owner=owner,
        ttl=60_000,
        is_alive=lambda owner, late: False,
        now=scene.clock.now(),
        ids=scene.ids,
    )
    await scene.write(finish_turn, None, fence=fence)
    return message


async def now(scene: Scene, info: SessionInfo) -> SessionInfo:
    """The current session."""
    return await scene.read(get_session, info.id)
