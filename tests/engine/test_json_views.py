"""Sessions and messages as clients get them: stored text, with the patches that are not stored."""

import msgspec
import pytest

from kedge.domain import wire
from kedge.domain.file_states import Absent, Present
from kedge.domain.messages import MessageWithParts, TurnSummary, UserMessage
from kedge.domain.sessions import FileDiff, SessionInfo
from kedge.engine.diffs.diffs import ROOM
from kedge.engine.engine import Engine
from kedge.engine.json_views import message_text, message_texts, session_text, session_texts
from kedge.engine.session_query import Listing
from kedge.errors import InvalidId, SessionBusy
from kedge.store.queries.changes import NewChange
from tests.engine.diffs.scene import PLAIN, Talk


async def summed_up(talk: Talk, *files: str, lines: int = 1) -> None:
    """The last prompt says that its turn added these files of so many lines."""
    prompt = (await talk.session.message(talk.prompts[-1])).info
    assert isinstance(prompt, UserMessage)
    diffs = [FileDiff(file=file, additions=lines, deletions=0, status="added") for file in files]
    await talk.session.put_message(
        msgspec.structs.replace(prompt, summary=TurnSummary(diffs=diffs))
    )


async def shown(talk: Talk) -> list[list[FileDiff]]:
    """What clients see of what each prompt's turn changed."""
    page = await message_texts(talk.engine, talk.session.id, before=None, limit=100)
    found = [each.info for each in wire.decode(page.body, list[MessageWithParts])]
    prompts = [info for info in found if isinstance(info, UserMessage)]
    return [info.summary.diffs if info.summary else [] for info in prompts]


async def test_a_list_is_the_same_as_text(any_engine: Engine) -> None:
    """Page by page, with the cursors that values have."""
    made = [await any_engine.sessions.create(f"n{n}") for n in range(5)]
    seen: list[SessionInfo] = []
    cursor: str | None = None
    while len(seen) < len(made):
        page = await session_texts(any_engine, Listing(limit=2, cursor=cursor))
        assert page.cursor == (await any_engine.sessions.list(limit=2, cursor=cursor)).cursor
        seen += wire.decode(page.text, list[SessionInfo])
        cursor = page.cursor
    assert cursor is None
    assert seen == [session.info for session in (await any_engine.sessions.list()).sessions]
    assert wire.decode(await session_text(any_engine, made[0].id), SessionInfo) == made[0].info
    with pytest.raises(InvalidId):
        await session_text(any_engine, "bad")


async def test_other_projects_and_times_can_be_listed(engine: Engine) -> None:
    """A project by its id, and what changed before a time."""
    session = await engine.sessions.create("one")
    listed = engine.sessions.list
    assert [each.id for each in (await listed(project=engine.project.id)).sessions] == [session.id]
    assert (await listed(project="other")).sessions == []
    assert (await engine.sessions.search("one", project="other")).hits == []
    updated = session.info.time.updated
    for search in (None, "one"):
        assert (await listed(before=updated, search=search)).sessions == []
        assert len((await listed(before=updated + 1, search=search)).sessions) == 1


async def test_patches_are_filled_in(any_engine: Engine) -> None:
    """Of every prompt of a page that changed something, and nowhere else."""
    talk = await Talk.begin(any_engine)
    for name in ("a", "b"):
        await talk.prompt()
        await talk.answer()
        await talk.change(name, None, f"{name}\n")
        await summed_up(talk, name)
    await talk.prompt()
    first, second, third = await shown(talk)
    assert [each.file for each in (*first, *second)] == ["a", "b"]
    assert first == await talk.session.diff(talk.prompts[0])
    assert third == []
    single = await message_text(any_engine, talk.session.id, talk.prompts[1])
    info = wire.decode(single, MessageWithParts).info
    assert isinstance(info, UserMessage)
    assert info.summary == TurnSummary(diffs=second)
    assert await talk.session.message(talk.answers[0]) == wire.decode(
        await message_text(any_engine, talk.session.id, talk.answers[0]), MessageWithParts
    )


async def test_a_page_has_room_for_so_many_patches(engine: Engine) -> None:
    """All prompts of a page share it; what finds none is still counted."""
    talk = await Talk.begin(engine)
    for name, lines in (("a", 6_000), ("b", 6_000), ("c", 1)):
        await talk.prompt()
        await talk.answer()
        await talk.change(name, None, ("x" * 99 + "\n") * lines)
        await summed_up(talk, name, lines=lines)
    found = [each for diffs in await shown(talk) for each in diffs]
    assert [each.patch is None for each in found] == [False, True, False]
    assert sum(len(each.patch or "") for each in found) <= ROOM


async def test_what_a_revert_took_out_has_no_patch(engine: Engine) -> None:
    """A prompt says over HTTP what it says in events; only the patches are made when it is read."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.change("a", None, "a\n")
    await summed_up(talk, "a", "gone")
    ((kept, gone),) = await shown(talk)
    assert kept.patch is not None
    assert (gone.file, gone.patch) == ("gone", None)


async def test_copies_show_what_they_are_copies_of(any_engine: Engine) -> None:
    """A fork's prompts, and those of its forks, have the patches of the origin's."""
    talk = await Talk.begin(any_engine)
    await talk.prompt()
    await talk.answer()
    await talk.change("a", None, "a\n")
    await summed_up(talk, "a")
    own = await shown(talk)
    fork = await talk.session.fork()
    copy = Talk(any_engine, await fork.fork(), talk.snapshots)
    assert await shown(copy) == own == [await talk.session.diff(talk.prompts[0])]
    await copy.prompt()
    await copy.answer()
    await copy.change("b", None, "b\n")
    await summed_up(copy, "b")
    assert [[each.file for each in diffs] for diffs in await shown(copy)] == [["a"], ["b"]]
    await talk.session.delete()
    stored = FileDiff(file="a", additions=1, deletions=0, status="added")
    assert (await shown(copy))[0] == [stored]


async def test_what_came_after_a_fork_is_nobody_s_copy(engine: Engine) -> None:
    """A message of the fork at the place of another one of the origin has its own changes only."""
    talk = await Talk.begin(engine)
    fork = Talk(engine, await talk.session.fork(), talk.snapshots)
    await talk.prompt()
    await talk.answer()
    await talk.change("a", None, "a\n")
    asked = (await talk.session.message(talk.prompts[0])).info
    later = msgspec.structs.replace(asked.time, created=asked.time.created + 1)
    fork.prompts.append("msg_other")
    await fork.session.put_message(
        msgspec.structs.replace(asked, id="msg_other", sessionID=fork.session.id, time=later)
    )
    await summed_up(fork, "a")
    assert [each.patch for each in (await shown(fork))[0]] == [None]


async def test_what_cannot_be_read_is_shown_without_a_patch(engine: Engine) -> None:
    """The message is still an answer when the objects of its diff are gone."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.add(
        [NewChange(path=b"a", before=Absent(), after=Present("1" * 40, PLAIN), source="declared")]
    )
    await summed_up(talk, "a")
    stored = FileDiff(file="a", additions=1, deletions=0, status="added")
    assert await shown(talk) == [[stored]]


async def test_words_that_look_like_keys_change_nothing(engine: Engine) -> None:
    """What people write is never taken for a revert or a diff."""
    words = '"revert":{"diffs":[{'
    session = await engine.sessions.create(words, metadata={"revert": {"messageID": words}})
    talk = Talk(engine, session, await session.snapshots())
    await talk.prompt()
    assert wire.decode(await session_text(engine, session.id), SessionInfo) == session.info
    assert await shown(talk) == [[]]


async def test_a_busy_session_keeps_its_messages(any_engine: Engine) -> None:
    """None is removed while a turn runs, and each as soon as it is over."""
    session = await any_engine.sessions.create()
    async with session.turn("hello") as turn:
        with pytest.raises(SessionBusy):
            await session.remove_message(turn.message.id)
    assert await session.remove_message(turn.message.id)
