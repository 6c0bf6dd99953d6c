"""Checks of undone calls: which are meant, what is marked, and what becomes of the marks."""

from collections.abc import Sequence
from typing import Any

from kedge.domain.errors import CallNotFound, InvalidInput, MessageNotFound, PartNotFound
from kedge.domain.file_states import Outcome
from kedge.domain.messages import UserMessage
from kedge.domain.parts import ToolCompleted, ToolPart, ToolTime, Undone
from kedge.domain.receipts import Receipt, receipt_entry
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.change_queries import standing_changes
from kedge.store.queries.plans import PlanKind, PlanStep
from kedge.store.queries.reverts import begin_undo, finish_plan
from kedge.store.queries.undone import Wanted, lives, select
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, WORKTREE, Scene, opened, refused
from kedge.testing.store.undoing import (
    STEP,
    add_change,
    changes_of,
    finish_of,
    prompt,
    put_plan,
    revert,
)


async def calls_are_found_by_any_name(database: Database) -> None:
    """By id, part and message, with what signs in an id mean elsewhere; unknown ones are named."""
    async with opened(database) as scene:
        info = await scene.add_session()
        ids = ['a"b', "a%b", "a_b", "a\\b", "axb"]
        calls = [await _call(scene, info, id, f"file {n}".encode()) for n, id in enumerate(ids)]
        for id, call in zip(ids, calls, strict=True):
            for wanted in (Wanted(calls=(id,)), Wanted(parts=(call.id,))):
                found = await scene.read(select, info.id, wanted)
                assert [change.part_id for change in found.changes] == [call.id]
            wanted = Wanted(messages=(call.messageID,))
            found = await scene.read(select, info.id, wanted)
            assert [change.part_id for change in found.changes] == [call.id]
        everything = await scene.read(select, info.id, Wanted(is_all=True))
        assert len(everything.changes) == len(ids)
        with refused(CallNotFound):
            await scene.read(select, info.id, Wanted(calls=("a",)))
        with refused(PartNotFound):
            await scene.read(select, info.id, Wanted(parts=("prt_nope",)))
        with refused(MessageNotFound):
            await scene.read(select, info.id, Wanted(messages=("msg_nope",)))
        await _call(scene, info, "axb", b"file 0")
        with refused(InvalidInput):
            await scene.read(select, info.id, Wanted(calls=("axb",)))


async def an_undo_marks_what_it_took_out(database: Database) -> None:
    """Changes and part, except at paths that were left; a redo takes the mark away."""
    async with opened(database) as scene:
        info = await scene.add_session()
        call = await _call(scene, info, "c", b"a", b"b")
        other = await _call(scene, info, "d", b"a")
        chosen = [each.key for each in await changes_of(scene, info) if each.part_id == call.id]
        head = (await scene.events())[-1].seq
        plan = await _undo(scene, info, "undo", chosen, left=[b"b"])
        types = [each.type for each in await scene.events(head)]
        assert types == [
            "session.status",
            "message.part.updated",
            "session.updated",
            "session.status",
        ]
        now = scene.clock.now()
        assert await _mark(scene, info, call) == Undone(time=now, files=1, left=1)
        assert await _mark(scene, info, other) is None
        standing = await scene.read(standing_changes, info.id)
        assert [(each.part_id, each.path) for each in standing] == [
            (call.id, b"b"),
            (other.id, b"a"),
        ]
        (life,) = (await scene.read(lives, WORKTREE, [b"a"], [info.id])).values()
        assert [each.undone_by for each in life.own] == [plan, None]
        assert [len(act.changes) for act in life.acts] == [1]
        await _undo(scene, info, "redo", chosen[:1])
        assert await _mark(scene, info, call) is None
        assert len(await scene.read(standing_changes, info.id)) == 3
        replayed, tables = await both(scene.store)
        assert replayed == tables


async def undone_calls_stay_undone(database: Database) -> None:
    """Whatever follows: prompts, forks, reverts; a final revert takes them to the tail."""
    async with opened(database) as scene:
        info = await scene.add_session()
        first = await _call(scene, info, "c", b"a")
        last = await _call(scene, info, "d", b"b")
        await _undo(scene, info, "undo", [each.key for each in await changes_of(scene, info)])
        await prompt(scene, info)
        assert await scene.read(standing_changes, info.id) == []
        fork = await scene.fork(info)
        marks = [
            part.undone
            for _, parts in await scene.messages(fork)
            for part in parts
            if isinstance(part, ToolPart)
        ]
        assert [mark is not None for mark in marks] == [True, True]
        found = [each for each, _ in await scene.messages(info)]
        prompts = [each.id for each in found if isinstance(each, UserMessage)]
        await revert(scene, info, prompts[1], left=[b"b"])
        await prompt(scene, info)
        assert [each.part_id for each in await changes_of(scene, info)] == [first.id]
        assert await _mark(scene, info, first) is not None
        with refused(PartNotFound):
            await scene.read(select, info.id, Wanted(parts=(last.id,)))


async def _call(scene: Scene, info: SessionInfo, call_id: str, *paths: bytes) -> ToolPart:
    """A turn with one call that made files."""
    scene.clock.advance(100)
    user = await scene.add_user(info)
    answer = await scene.add_assistant(info, user.id)
    state = ToolCompleted(
        input={}, output="", title="", metadata={}, time=ToolTime(start=START, end=START)
    )
    part = ToolPart(
        id=scene.ids.part(),
        sessionID=info.id,
        messageID=answer.id,
        callID=call_id,
        tool="write",
        state=state,
    )
    await scene.put(part)
    for path in paths:
        await add_change(scene, answer, part.id, path)
    return part


async def _undo(
    scene: Scene,
    info: SessionInfo,
    kind: PlanKind,
    chosen: Sequence[Any],
    *,
    left: Sequence[bytes] = (),
) -> str:
    entries = [receipt_entry(path, Outcome.CONFLICT, "it was changed", "declared") for path in left]
    receipt = Receipt(files=entries, notes=[], applied=True, strategy="merge")
    fence = await scene.write(
        begin_undo, info.id, "owner", ttl=60_000, is_alive=lambda owner, late: True
    )
    step: PlanStep = STEP
    plan = await put_plan(
        scene,
        info,
        fence,
        None,
        kind=kind,
        steps=[step],
        receipt=receipt,
        chosen=list(chosen),
        counts={step.number: 1},
    )
    finish = finish_of(plan, {step.number: "done"})
    await scene.bulk(finish_plan, plan, finish, fence=fence, now=scene.clock.now())
    return plan.id


async def _mark(scene: Scene, info: SessionInfo, call: ToolPart) -> Undone | None:
    for _, parts in await scene.messages(info):
        for part in parts:
            if isinstance(part, ToolPart) and part.id == call.id:
                return part.undone
    raise AssertionError(call.id)
