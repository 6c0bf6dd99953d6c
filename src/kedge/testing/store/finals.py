"""Checks of what the next prompt does to a pending revert: what leaves the session, what stays."""

from dataclasses import replace

from kedge.domain.messages import TurnSummary, UserMessage
from kedge.domain.sessions import FileDiff
from kedge.store.queries.changes import (
    begin_task_turn,
    family_calls,
    family_changes,
    get_seen,
    set_seen,
)
from kedge.store.queries.messages import put_message, remove_message
from kedge.store.queries.plans import open_plans
from kedge.store.queries.tails import list_tails, part_of_call
from kedge.store.queries.todos import get_todos, put_todos
from kedge.store.queries.turns import store_message
from kedge.testing.replay import both
from kedge.testing.store.database import Database
from kedge.testing.store.scene import Scene, changed, opened
from kedge.testing.store.todos import todo
from kedge.testing.store.undoing import (
    STEP,
    add_change,
    changes_of,
    conversation,
    now,
    prompt,
    revert,
)


async def a_prompt_makes_a_revert_final(database: Database) -> None:
    """The messages from the boundary on leave with their cost, before the prompt's own comes."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await revert(scene, info, messages[2][0].id)
        head = (await scene.events())[-1].seq
        message = await prompt(scene, info)
        types = [each.type for each in await scene.events(head)]
        assert types == [
            *["message.removed"] * 4,
            "session.updated",
            "message.updated",
            "session.updated",
            "session.status",
            "session.status",
            "session.idle",
        ]
        left = await scene.messages(info)
        assert left[:-1] == messages[:2]
        assert left[-1][0].id == message.id
        stored = await now(scene, info)
        assert stored.revert is None
        assert (stored.cost, stored.tokens.input) == (0.5, 1)
        assert await scene.read(open_plans, info.id) == []
        await _replays(scene)


async def a_part_boundary_keeps_the_message(database: Database) -> None:
    """The message loses its parts from there on, after the messages behind it are gone."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        answer, parts = messages[1]
        await revert(scene, info, answer.id, parts[1].id)
        head = (await scene.events())[-1].seq
        await prompt(scene, info)
        types = [each.type for each in await scene.events(head)]
        assert types[:6] == [*["message.removed"] * 4, "message.part.removed", "session.updated"]
        left = await scene.messages(info)
        assert left[:-1] == [messages[0], (answer, parts[:1])]
        assert (await now(scene, info)).cost == 0
        (tail,) = await scene.read(list_tails, info.id)
        assert (tail.messageID, tail.partID, tail.messages) == (answer.id, parts[1].id, 4)
        await _replays(scene)


async def a_cut_turn_names_what_is_left_of_it(database: Database) -> None:
    """The prompt's summary keeps the files that lost no change; the new summary is announced."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        (asked, _), (answer, parts) = messages[:2]
        assert isinstance(asked, UserMessage)
        for part, path in ((parts[0], b"kept"), (parts[0], b"both"), (parts[1], b"both")):
            await add_change(scene, answer, part.id, path)
        diffs = [
            FileDiff(file=name, additions=1, deletions=0, status="added")
            for name in ("both", "kept")
        ]
        told = changed(asked, summary=TurnSummary(diffs=diffs))
        await scene.write(put_message, told)
        await revert(scene, info, answer.id, parts[1].id)
        await prompt(scene, info)
        left = (await scene.messages(info))[0][0]
        assert left == changed(asked, summary=TurnSummary(diffs=diffs[1:]))
        await _replays(scene)


async def a_boundary_that_was_removed_is_still_one(database: Database) -> None:
    """The message may be removed while the revert is pending."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await revert(scene, info, messages[2][0].id)
        await scene.write(remove_message, info.id, messages[2][0].id)
        await prompt(scene, info)
        assert (await scene.messages(info))[:-1] == messages[:2]
        await _replays(scene)


async def todos_go_back_with_the_messages(database: Database) -> None:
    """To the list before the boundary, announced only if it differs."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        one, two = [todo("one")], [todo("two")]
        await scene.write(put_todos, info.id, one, now=1, message_id=messages[1][0].id)
        await scene.write(put_todos, info.id, two, now=2, message_id=messages[3][0].id)
        await revert(scene, info, messages[4][0].id)
        head = (await scene.events())[-1].seq
        await prompt(scene, info)
        assert "todo.updated" not in [each.type for each in await scene.events(head)]
        assert await scene.read(get_todos, info.id) == two
        await revert(scene, info, messages[2][0].id)
        await prompt(scene, info)
        assert await scene.read(get_todos, info.id) == one
        await revert(scene, info, messages[0][0].id)
        await prompt(scene, info)
        assert await scene.read(get_todos, info.id) == []
        await _replays(scene)


async def todos_of_a_part_boundary_are_those_of_before_the_part(database: Database) -> None:
    """What the message wrote before the part began stays."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        answer = await scene.add_assistant(info, user.id)
        await scene.add_text(answer, "first")
        early, late = [todo("early")], [todo("late")]
        start = scene.clock.now()
        await scene.write(put_todos, info.id, early, now=start, message_id=answer.id)
        scene.clock.advance(10)
        part = scene.running_text(answer, "second")
        await scene.put(part)
        await scene.write(put_todos, info.id, late, now=start + 11, message_id=answer.id)
        await revert(scene, info, answer.id, part.id)
        await prompt(scene, info)
        assert await scene.read(get_todos, info.id) == early
        await _replays(scene)


async def undone_changes_go_and_others_stay(database: Database) -> None:
    """Where a path was left as it is, the change belongs to the last message that is left."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await revert(scene, info, messages[2][0].id, left=[b"file2"])
        await prompt(scene, info)
        found = await changes_of(scene, info)
        assert [(each.path, each.pos, each.message_id) for each in found] == [
            (b"file0", 1, messages[1][0].id),
            (b"file2", 1, messages[1][0].id),
        ]


async def if_no_message_is_left_changes_keep_a_place_before_the_new_one(
    database: Database,
) -> None:
    """Undoing the new one does not undo what an earlier revert left alone."""
    async with opened(database) as scene:
        info = await conversation(scene, turns=1)
        messages = await scene.messages(info)
        await add_change(scene, messages[1][0], messages[1][1][0].id, b"file0")
        await revert(scene, info, messages[0][0].id, left=[b"file0"])
        message = await prompt(scene, info)
        found = await changes_of(scene, info)
        assert [(each.pos, each.n, each.message_id) for each in found] == [
            (0, 0, messages[0][0].id),
            (0, 1, messages[0][0].id),
        ]
        await revert(scene, info, message.id)
        await prompt(scene, info)
        assert await changes_of(scene, info) == found


async def calls_stay_with_what_they_did(database: Database) -> None:
    """A call of unknown effect is mentioned again where its changes were left, and only there."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        parts = [messages[n][1][0] for n in (3, 5)]
        for message, part in zip((messages[3][0], messages[5][0]), parts, strict=True):
            await add_change(scene, message, part.id, b"", source="call")
        await revert(scene, info, messages[2][0].id, left=[b"file2"])
        await prompt(scene, info)
        (call,) = await scene.read(family_calls, info.id, 0)
        assert (call.pos, call.message_id) == (1, messages[1][0].id)
        told = await scene.read(part_of_call, call)
        assert told is not None
        assert told.id == parts[1].id
        gone = await scene.read(part_of_call, replace(call, part_id="prt_nope"))
        assert gone is None


async def a_new_message_makes_a_revert_final(database: Database) -> None:
    """Also outside of a turn, as it would be hidden otherwise; a changed one does not."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await revert(scene, info, messages[2][0].id)
        await scene.write(store_message, messages[4][0], now=1)
        assert await scene.messages(info) == messages
        message = await scene.write(store_message, scene.user(info), now=1)
        left = await scene.messages(info)
        assert left == [*messages[:2], (message, [])]
        assert (await now(scene, info)).revert is None
        await _replays(scene)


async def a_session_forgets_what_it_read_in_a_tail(database: Database) -> None:
    """Not before the revert is final."""
    async with opened(database) as scene:
        info = await conversation(scene)
        await scene.write(set_seen, info.id, [(b"a", "1" * 40), (b"b", None)])
        await revert(scene, info, (await scene.messages(info))[2][0].id)
        assert len(await scene.read(get_seen, info.id, [b"a", b"b"])) == 2
        await prompt(scene, info)
        assert await scene.read(get_seen, info.id, [b"a", b"b"]) == {}


async def todos_written_while_a_revert_is_pending_stay(database: Database) -> None:
    """They belong to what is visible then; they make nothing final."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await scene.write(put_todos, info.id, [todo("old")], now=1, message_id=messages[3][0].id)
        await revert(scene, info, messages[2][0].id)
        await scene.write(put_todos, info.id, [todo("new")], now=2)
        assert (await now(scene, info)).revert is not None
        await prompt(scene, info)
        assert await scene.read(get_todos, info.id) == [todo("new")]
        await _replays(scene)


async def messages_only_keeps_all_changes(database: Database) -> None:
    """Except for those that a pending revert of files had undone before."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        await revert(scene, info, messages[4][0].id)
        await revert(scene, info, messages[2][0].id, leaves_files=True)
        await prompt(scene, info)
        assert [each.path for each in await changes_of(scene, info)] == [b"file0", b"file1"]


async def of_some_files_only_the_changes_of_these_go(database: Database) -> None:
    """What another pending revert had undone before goes too."""
    async with opened(database) as scene:
        info = await conversation(scene)
        messages = await scene.messages(info)
        target = messages[0][0].id
        await revert(scene, info, target, left=[b"file1", b"file2"], files=[b"file0"])
        await revert(scene, info, target, left=[b"file0", b"file1"], files=[b"file2"])
        await prompt(scene, info)
        assert [each.path for each in await changes_of(scene, info)] == [b"file1"]


async def changes_of_subtasks_go_too(database: Database) -> None:
    """Those of the turns that worked for a part behind the boundary, and no others."""
    async with opened(database) as scene:
        info = await conversation(scene, turns=1)
        child = await scene.add_session(parentID=info.id)
        for n in range(2):
            user = await scene.add_user(info)
            await scene.add_text(user)
            task = await scene.add_user(child)
            await scene.write(begin_task_turn, child.id, n, info.id)
            await add_change(scene, task, "prt_x", f"child{n}".encode())
        messages = await scene.messages(info)
        step = replace(STEP, path=b"child1")
        await revert(scene, info, messages[3][0].id, steps=[step], outcomes={0: "done"})
        await prompt(scene, info)
        found = await scene.read(family_changes, info.id, 0)
        assert [each.path for each in found] == [b"file0", b"child0"]


async def _replays(scene: Scene) -> None:
    replayed, tables = await both(scene.store)
    assert replayed == tables
