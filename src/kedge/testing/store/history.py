"""Checks of the history of paths: all that was ever written at one, whatever became of it."""

import os
from hashlib import sha256

from kedge.domain.file_states import Absent, Present
from kedge.domain.messages import Message as AnyMessage
from kedge.domain.parts import ToolCompleted, ToolPart, ToolTime
from kedge.store.queries.changes import Home, NewChange, add_changes
from kedge.store.queries.history import FileHistory, call_infos, file_history
from kedge.store.queries.plans import PlanStep
from kedge.store.queries.projects import place_worktree
from kedge.store.queries.retention import purge_session, stop_and_delete
from kedge.store.queries.timeline import next_number
from kedge.store.queries.undone import lives
from kedge.store.transaction import Script
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, WORKTREE, Scene, opened
from kedge.testing.store.undoing import STEP, conversation, prompt, revert

_ONE, _TWO = Present("1" * 40, 0o100644), Present("2" * 40, 0o100644)


async def a_path_has_every_write_in_order(database: Database) -> None:
    """Calls of any session and plans, with what each found and left; other paths are left out."""
    async with opened(database) as scene:
        first, second = await conversation(scene, 1), await conversation(scene, 1)
        await _place(scene)
        for info, change in (
            (first, NewChange(path=b"a", before=Absent(), after=_ONE, source="declared")),
            (second, NewChange(path=b"a", before=_ONE, after=_TWO, source="observed")),
            (second, NewChange(path=b"b", before=Absent(), after=_TWO, source="observed")),
            (first, NewChange(path=b"", before=Absent(), after=Absent(), source="call")),
        ):
            await _add(scene, (await scene.messages(info))[1][0], "prt_1", change)
        found = (await _history(scene, b"a")).paths[0].writes
        assert [(each.session_id, each.source) for each in found] == [
            (first.id, "declared"),
            (second.id, "observed"),
        ]
        assert [(each.before, each.after) for each in found] == [(Absent(), _ONE), (_ONE, _TWO)]
        assert [each.time for each in found] == [START, START]
        assert found[0].number < found[1].number


async def what_a_revert_took_out_is_still_history(database: Database) -> None:
    """So are what it wrote, what an unrevert wrote, and what a final revert removed."""
    async with opened(database) as scene:
        info = await conversation(scene)
        await _place(scene)
        answer = (await scene.messages(info))[3][0]
        change = NewChange(path=b"a", before=Absent(), after=_ONE, source="declared")
        await _add(scene, answer, "prt_1", change)
        target = (await scene.messages(info))[2][0]
        await revert(scene, info, target.id, steps=[STEP], outcomes={0: "done"})
        back = PlanStep(number=0, path=b"a", expect=Absent(), want=_ONE)
        await revert(scene, info, None, kind="unrevert", steps=[back], outcomes={0: "done"})
        await revert(scene, info, target.id, steps=[STEP], outcomes={0: "done"})
        await revert(scene, info, target.id, steps=[STEP], outcomes={0: "skipped"})
        await prompt(scene, info)
        writes = (await _history(scene, b"a")).paths[0].writes
        sources = ["declared", "revert", "unrevert", "revert"]
        assert [each.source for each in writes] == sources
        (taken,) = writes[1].takes_out
        assert taken.holds(writes[0])
        assert not taken.holds(writes[1])
        assert writes[2].takes_out == ()


async def a_new_file_knows_what_it_was_moved_from(database: Database) -> None:
    """What disappeared in the same call: what had its content before what only has its name."""
    async with opened(database) as scene:
        info = await conversation(scene, 1)
        await _place(scene)
        answer = (await scene.messages(info))[1][0]
        made = NewChange(path=b"d/new", before=Absent(), after=_ONE, source="observed")
        same = NewChange(path=b"old", before=_ONE, after=Absent(), source="observed")
        other = NewChange(path=b"new", before=_TWO, after=Absent(), source="observed")
        await _add(scene, answer, "prt_1", made, same, other)
        moved = await _history(scene, b"d/new")
        assert [each.path for each in moved.paths] == [_whole(b"d/new"), _whole(b"old")]
        edited = NewChange(path=b"e/new", before=Absent(), after=_ONE, source="observed")
        gone = (other, NewChange(path=b"b", before=_TWO, after=Absent(), source="observed"))
        await _add(scene, answer, "prt_2", edited, *gone)
        (write,) = (await _history(scene, b"e/new")).paths[0].writes
        assert [each.path for each in write.gone] == [_whole(b"new"), _whole(b"b")]


async def worktrees_around_a_path_are_looked_at(database: Database) -> None:
    """A session in a folder above or below wrote the same file under another name."""
    async with opened(database) as scene:
        info = await conversation(scene, 1)
        inner = f"{WORKTREE}/inner"
        await _place(scene, WORKTREE, inner, f"{WORKTREE}/other")
        answer = (await scene.messages(info))[1][0]
        outside = NewChange(path=b"inner/a", before=Absent(), after=_ONE, source="declared")
        inside = NewChange(path=b"a", before=_ONE, after=_TWO, source="declared")
        await _add(scene, answer, "prt_1", outside)
        await _add(scene, answer, "prt_2", inside, worktree=inner)
        history = await _history(scene, b"inner/a")
        assert [each.after for each in history.paths[0].writes] == [_ONE, _TWO]
        assert history.worktrees == (WORKTREE, inner)


async def a_path_may_be_long(database: Database) -> None:
    """Longer than what an index has room for, in calls and plans; only its end says which it is."""
    async with opened(database) as scene:
        info = await conversation(scene, 1)
        await _place(scene)
        user, answer = [each[0] for each in await scene.messages(info)]
        # No two pieces are alike, so that nothing can be compressed.
        folder = b"/".join(sha256(b"%d" % n).hexdigest().encode() for n in range(55))
        one, other = folder + b"/one", folder + b"/other"
        for n, path in enumerate((one, other)):
            change = NewChange(path=path, before=Absent(), after=_ONE, source="declared")
            await _add(scene, answer, f"prt_{n}", change)
        back = PlanStep(number=0, path=one, expect=_ONE, want=Absent())
        await revert(scene, info, user.id, steps=[back], outcomes={0: "done"})
        for path, sources in ((one, ["declared", "revert"]), (other, ["declared"])):
            (history,) = (await _history(scene, path)).paths
            assert [each.source for each in history.writes] == sources
        found = await scene.read(lives, WORKTREE, [one], [info.id])
        assert [change.path for change in found[one].own] == [one]


async def a_call_is_known_wherever_it_is(database: Database) -> None:
    """Its tool, its message and the prompt, also when they left the conversation."""
    async with opened(database) as scene:
        info = await conversation(scene)
        asked, answer = [each[0] for each in (await scene.messages(info))[2:4]]
        state = ToolCompleted(
            input={}, output="", title="", metadata={}, time=ToolTime(start=START, end=START + 7)
        )
        part = ToolPart(
            id=scene.ids.part(),
            sessionID=info.id,
            messageID=answer.id,
            callID="call",
            tool="edit",
            state=state,
        )
        await scene.put(part)
        call = info.id, answer.id, 3, part.id
        (before,) = await scene.read(call_infos, [call])
        assert (before.message_id, before.prompt_id) == (answer.id, asked.id)
        assert (before.tool, before.time, before.title) == ("edit", START + 7, info.title)
        await revert(scene, info, asked.id)
        await prompt(scene, info)
        assert await scene.read(call_infos, [call]) == [before]
        moved = info.id, "msg_of_another", 1, part.id
        assert await scene.read(call_infos, [moved]) == [before]
        (gone,) = await scene.read(call_infos, [(info.id, "msg_gone", 1, "prt_gone")])
        assert (gone.message_id, gone.prompt_id, gone.tool) == ("msg_gone", None, None)


async def a_purged_session_leaves_no_history(database: Database) -> None:
    """What it wrote is as if another program had written it."""
    async with opened(database) as scene:
        info = await conversation(scene, 1)
        await _place(scene)
        await revert(scene, info, (await scene.messages(info))[0][0].id, steps=[STEP])
        assert (await _history(scene, b"file0")).paths[0].writes != ()
        await scene.write(stop_and_delete, info.id, "owner", scene.ids, START)
        await scene.bulk(purge_session, info.id, START + 1)
        assert (await _history(scene, b"file0")).paths[0].writes == ()


async def _place(scene: Scene, *worktrees: str) -> None:
    for each in worktrees or (WORKTREE,):
        await scene.write(place_worktree, each, "identity", "git", START)


async def _add(
    scene: Scene, message: AnyMessage, part_id: str, *changes: NewChange, worktree: str = WORKTREE
) -> None:
    home = Home(
        session_id=message.sessionID, message_id=message.id, part_id=part_id, worktree=worktree
    )

    def script() -> Script[None]:
        number = yield from next_number()
        yield from add_changes(home, changes, number=number, time=START)

    await scene.write(script)


async def _history(scene: Scene, path: bytes) -> FileHistory:
    return await scene.read(file_history, _whole(path), WORKTREE)


def _whole(path: bytes) -> bytes:
    return os.path.join(os.fsencode(WORKTREE), path)
