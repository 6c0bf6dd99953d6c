"""Checks of plans: what a revert stores before and after it touches files."""

from kedge.domain.errors import LeaseLost, SessionBusy
from kedge.domain.file_states import Absent, Present
from kedge.domain.sessions import FileDiff, Idle, RevertState, SessionSummary
from kedge.store.queries.changes import get_seen, later_changes, set_seen
from kedge.store.queries.leases import lease_of
from kedge.store.queries.plans import (
    PlanStep,
    get_plan,
    open_plans,
    pending_plans,
    plan_steps,
    unfinished_plans,
)
from kedge.store.queries.retention import purge_session, stop_and_delete
from kedge.store.queries.reverts import Finish, end_revert, finish_plan, resume_plan
from kedge.store.queries.sessions import restore_session
from kedge.store.queries.timeline import open_calls
from kedge.store.transaction import Script
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, WORKTREE, opened, refused
from kedge.testing.store.undoing import (
    STEP,
    changes_of,
    conversation,
    finish_of,
    now,
    prompt,
    put_plan,
    revert,
    take,
)


async def a_revert_tells_what_was_reverted(database: Database) -> None:
    """Busy, the diffs, the session with its boundary and summary, idle: in this order."""
    async with opened(database) as scene:
        info = await conversation(scene)
        target = (await scene.messages(info))[2][0]
        head = (await scene.events())[-1].seq
        summary = SessionSummary(additions=1, deletions=0, files=1)
        diff = FileDiff(file="a", additions=1, deletions=0, status="added")
        await revert(
            scene, info, target.id, snapshot="5" * 40, summary=summary, diffs=[diff], steps=[STEP]
        )
        types = [each.type for each in await scene.events(head)]
        assert types == ["session.status", "session.diff", "session.updated", "session.status"]
        stored = await now(scene, info)
        assert stored.revert == RevertState(messageID=target.id, snapshot="5" * 40)
        assert stored.summary == summary
        assert stored.time.updated == scene.clock.now()
        assert len(await scene.messages(info)) == 6
        assert (await scene.read(lease_of, info.id))[2] == Idle()
        replayed, tables = await both(scene.store)
        assert replayed == tables


async def a_plan_is_there_before_it_is_carried_out(database: Database) -> None:
    """With its steps, unfinished, and as an active call."""
    async with opened(database) as scene:
        info = await conversation(scene)
        target = (await scene.messages(info))[0][0]
        fence = await take(scene, info)
        steps = [
            STEP,
            PlanStep(number=1, path=b"\xff/b", expect=Absent(), want=Present("2" * 40, 0o120000)),
        ]
        plan = await put_plan(scene, info, fence, target.id, steps=steps, folders=[b"\xff"])
        assert [each.id for each in await scene.read(unfinished_plans)] == [plan.id]
        assert await scene.read(plan_steps, plan.id) == steps
        assert await scene.read(get_plan, plan.id) == plan
        assert plan.data.folders == [b"\xff"]
        assert [call.part_id for call in await scene.read(open_calls, info.id)] == [
            plan.data.partID
        ]
        await scene.write(
            finish_plan, plan, finish_of(plan, {0: "done", 1: "conflict"}), fence=fence, now=START
        )
        assert await scene.read(unfinished_plans) == []
        assert await scene.read(open_calls, info.id) == []
        found = await scene.read(plan_steps, plan.id)
        assert [each.outcome for each in found] == ["done", "conflict"]
        assert [each.id for each in await scene.read(pending_plans, info.id)] == [plan.id]


async def while_a_revert_is_under_way_the_session_is_busy(database: Database) -> None:
    """For prompts and other reverts, and also after its owner died before it was finished."""
    async with opened(database) as scene:
        info = await conversation(scene)
        target = (await scene.messages(info))[0][0]
        fence = await take(scene, info)
        with refused(SessionBusy):
            await take(scene, info, "other")
        plan = await put_plan(scene, info, fence, target.id)
        with refused(SessionBusy):
            await prompt(scene, info, "other")
        await scene.write(end_revert, fence)
        with refused(SessionBusy):
            await take(scene, info, "other")
        with refused(LeaseLost):
            await scene.write(finish_plan, plan, finish_of(plan), fence=fence, now=START)


async def an_unfinished_plan_is_resumed_once(database: Database) -> None:
    """By the first process that tries, when its owner is gone."""
    async with opened(database) as scene:
        info = await conversation(scene)
        target = (await scene.messages(info))[0][0]
        old = await take(scene, info)
        plan = await put_plan(scene, info, old, target.id)
        with refused(SessionBusy):
            await scene.write(resume_plan, plan.id, "new", ttl=1, is_alive=lambda *_: True)
        fence = await scene.write(resume_plan, plan.id, "new", ttl=1, is_alive=lambda *_: False)
        assert fence is not None
        with refused(LeaseLost):
            await scene.write(finish_plan, plan, finish_of(plan), fence=old, now=START)
        await scene.write(finish_plan, plan, finish_of(plan), fence=fence, now=START)
        again = await scene.write(resume_plan, plan.id, "third", ttl=1, is_alive=lambda *_: False)
        assert again is None
        replayed, tables = await both(scene.store)
        assert replayed == tables


async def a_plan_of_a_deleted_session_is_finished_like_any_other(database: Database) -> None:
    """Without events; if the session is restored, the revert is pending."""
    async with opened(database) as scene:
        info = await conversation(scene)
        target = (await scene.messages(info))[0][0]
        plan = await put_plan(scene, info, await take(scene, info), target.id)
        await scene.bulk(stop_and_delete, info.id, "other", scene.ids, 5)
        fence = await scene.write(resume_plan, plan.id, "new", ttl=1, is_alive=lambda *_: False)
        assert fence is not None
        head = (await scene.events())[-1].seq
        await scene.write(finish_plan, plan, finish_of(plan), fence=fence, now=START)
        assert await scene.read(unfinished_plans) == []
        assert {each.type for each in await scene.events(head)} == {
            "session.deleted",
            "session.status",
        }
        replayed, tables = await both(scene.store)
        assert replayed == tables
        await scene.bulk(restore_session, info.id)
        assert (await now(scene, info)).revert == RevertState(messageID=target.id)
        assert [each.id for each in await scene.read(pending_plans, info.id)] == [plan.id]
        replayed, tables = await both(scene.store)
        assert replayed == tables


async def an_unrevert_takes_back_all_that_is_pending(database: Database) -> None:
    """The boundary is gone, the summary is what it was, and nothing is pending any more."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        before = SessionSummary(additions=9, deletions=9, files=9)
        await revert(scene, info, messages[4][0].id, before=before)
        await revert(
            scene, info, messages[2][0].id, before=SessionSummary(additions=0, deletions=0, files=0)
        )
        assert len(await scene.read(pending_plans, info.id)) == 2
        head = (await scene.events())[-1].seq
        await revert(scene, info, None, kind="unrevert")
        types = [each.type for each in await scene.events(head)]
        assert types == ["session.status", "session.updated", "session.status"]
        stored = await now(scene, info)
        assert stored.revert is None
        assert stored.summary == before
        assert await scene.read(open_plans, info.id) == []
        assert await scene.messages(info) == messages


async def a_files_only_revert_is_a_change_until_it_is_taken_back(database: Database) -> None:
    """It hides nothing; what it wrote belongs to the last message."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        others = await changes_of(scene, info)
        steps = [STEP, PlanStep(number=1, path=b"b", expect=Absent(), want=Absent())]
        plan = await revert(
            scene,
            info,
            messages[0][0].id,
            kind="files",
            steps=steps,
            outcomes={0: "done", 1: "skipped"},
        )
        assert (await now(scene, info)).revert is None
        *before, change = await changes_of(scene, info)
        assert before == others
        assert (change.path, change.before, change.after) == (b"a", STEP.expect, Absent())
        assert (change.source, change.plan_id, change.pos) == ("revert", plan.id, 5)
        await revert(scene, info, None, kind="unrevert")
        assert await changes_of(scene, info) == others


async def an_unrevert_keeps_what_it_had_to_leave(database: Database) -> None:
    """As a files-only revert of those paths: a change until it is taken back or final."""
    async with opened(database) as scene:
        info = await conversation(scene)
        others = await changes_of(scene, info)
        steps = [STEP, PlanStep(number=1, path=b"b", expect=STEP.expect, want=Absent())]
        plan = await revert(
            scene,
            info,
            (await scene.messages(info))[0][0].id,
            steps=steps,
            outcomes={0: "done", 1: "done"},
        )
        await revert(scene, info, None, kind="unrevert", left=[b"b"])
        assert (await now(scene, info)).revert is None
        (pending,) = await scene.read(pending_plans, info.id)
        assert (pending.id, pending.kind) == (plan.id, "files")
        found = await scene.read(plan_steps, plan.id)
        assert [each.outcome for each in found] == ["undone", "done"]
        *before, change = sorted(await changes_of(scene, info), key=lambda each: each.timeline)
        assert before == others
        assert (change.path, change.source, change.timeline) == (b"b", "revert", plan.timeline)
        await revert(scene, info, None, kind="unrevert")
        assert await changes_of(scene, info) == others
        assert await scene.read(open_plans, info.id) == []


async def a_finished_plan_says_what_the_session_has_seen(database: Database) -> None:
    """What was restored need not be read again; what was merged or left has to be."""
    async with opened(database) as scene:
        info = await conversation(scene)
        target = (await scene.messages(info))[0][0]
        known: list[tuple[bytes, str | None]] = [(b"a", "1" * 40), (b"b", "1" * 40)]

        def script() -> Script[None]:
            yield from set_seen(info.id, known)

        await scene.store.write(script)
        fence = await take(scene, info)
        plan = await put_plan(scene, info, fence, target.id)
        finish = Finish(
            receipt=plan.data.receipt,
            outcomes={},
            seen=[(b"a", None), (b"c", "2" * 40)],
            unseen=[b"b"],
            call_data="[]",
        )
        await scene.write(finish_plan, plan, finish, fence=fence, now=START)
        seen = await scene.read(get_seen, info.id, [b"a", b"b", b"c"])
        assert seen == {b"a": None, b"c": "2" * 40}


async def plans_are_purged_with_their_session(database: Database) -> None:
    """Nothing is left to complete."""
    async with opened(database) as scene:
        info = await conversation(scene)
        target = (await scene.messages(info))[0][0]
        plan = await put_plan(scene, info, await take(scene, info), target.id, steps=[STEP])
        await scene.bulk(stop_and_delete, info.id, "other", scene.ids, 5)
        assert await scene.bulk(purge_session, info.id, 10)
        assert await scene.read(get_plan, plan.id) is None
        assert await scene.read(plan_steps, plan.id) == []
        assert await scene.read(later_changes, WORKTREE, 0, []) == {}
