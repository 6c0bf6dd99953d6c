"""Pages of messages that are kept: never older than what is stored, never more than there is room
for."""

from functools import partial

import msgspec
import pytest

from kedge.domain.values import plain
from kedge.engine import pages as module
from kedge.engine.engine import Engine
from kedge.engine.json_views import message_texts
from kedge.engine.pages import MessageTexts, PageKey, Pages
from kedge.engine.session import Session
from kedge.errors import SessionNotFound, SnapshotError
from kedge.snapshot.objects.store import ObjectStore
from tests.engine.diffs.scene import Talk
from tests.engine.engine_factory import EngineFactory
from tests.engine.test_json_views import summed_up


async def page(engine: Engine, session: Session, limit: int = 100) -> MessageTexts:
    """The newest messages as a client gets them."""
    return await message_texts(engine, session.id, before=None, limit=limit)


async def check(engine: Engine, session: Session) -> None:
    """See that clients get what is stored, and that the same page is handed out again."""
    found = await page(engine, session)
    stored = (await session.messages()).messages
    assert msgspec.json.decode(found.body) == plain(stored)
    assert (await page(engine, session)).body is found.body


async def test_a_kept_page_is_never_older_than_what_is_stored(any_place: EngineFactory) -> None:
    """Whatever changes a message or a part, in this process or in another."""
    async with any_place.open() as engine, any_place.open() as other:
        session = await engine.sessions.create("s")
        await check(engine, session)
        async with session.turn("Speak") as turn:
            await check(engine, session)
            async with turn.step() as step:
                part = await step.text("one")
                await check(engine, session)
                async with step.speak() as out:
                    await out.write("two")
                    await check(engine, session)
                await check(engine, session)
                async with step.tool("read", {}) as call:
                    await check(engine, session)
                    call.output = "found"
                await check(engine, session)
            await check(engine, session)
        await check(engine, session)
        elsewhere = await other.sessions.get(session.id)
        await elsewhere.put_part(msgspec.structs.replace(part, text="changed"))
        await check(engine, session)
        await elsewhere.remove_part(part.messageID, part.id)
        await check(engine, session)
        await elsewhere.remove_message(part.messageID)
        await check(engine, session)
        async with elsewhere.turn("More"):
            pass
        await check(engine, session)


async def test_a_change_elsewhere_leaves_a_page_alone(engine: Engine) -> None:
    """Pages are kept session by session, and for each limit and cursor."""
    one, two = [await engine.sessions.create(name) for name in ("one", "two")]
    for session in (one, two):
        async with session.turn("Ask"):
            pass
    kept, short = await page(engine, one), await page(engine, one, limit=1)
    async with two.turn("Ask again"):
        pass
    assert (await page(engine, one)).body is kept.body
    assert (await page(engine, one, limit=1)).body is short.body


async def test_a_page_that_is_kept_goes_with_its_session(engine: Engine) -> None:
    """And is there again when the session is restored."""
    session = await engine.sessions.create("s")
    kept = await page(engine, session)
    await session.delete()
    with pytest.raises(SessionNotFound):
        await page(engine, session)
    await engine.sessions.restore(session.id)
    assert (await page(engine, session)).body == kept.body


async def test_compaction_does_not_bring_an_old_page_back(engine: Engine) -> None:
    """Events that are dropped may have been the newest ones of their session."""
    session = await engine.sessions.create("s")
    for prompt in ("one", "two"):
        async with session.turn(prompt) as turn, turn.step() as step:
            await step.text(prompt)
        await check(engine, session)
        await engine.upkeep.compact()
        await check(engine, session)


async def test_pages_with_patches_are_not_kept(engine: Engine) -> None:
    """These depend on more than the events of their session."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.change("a", None, "new\n")
    await summed_up(talk, "a")
    first = await page(engine, talk.session)
    assert b'"patch"' in first.body
    assert (await page(engine, talk.session)).body is not first.body


async def test_pages_whose_patches_could_not_be_read_are_not_kept(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patches are there as soon as they can be read."""
    talk = await Talk.begin(engine)
    await talk.prompt()
    await talk.answer()
    await talk.change("a", None, "new\n")
    await summed_up(talk, "a")
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "read", _fail)
        assert b'"patch"' not in (await page(engine, talk.session)).body
    assert b'"patch"' in (await page(engine, talk.session)).body


def _fail(*_: object) -> None:
    raise SnapshotError("the disk is busy")


def test_there_is_room_for_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were not asked for for longest go; a large page is not kept."""
    monkeypatch.setattr(module, "_ROOM", 10)
    monkeypatch.setattr(module, "_LARGEST", 6)
    pages = Pages()
    key = partial(PageKey, "ses_1", None)
    four = MessageTexts(b"four", None)
    for limit in (1, 2):
        pages.keep(key(limit), 1, four)
    pages.keep(key(1), 1, four)
    pages.keep(key(3), 1, four)
    assert [pages.find(key(limit), 1) for limit in (1, 2, 3)] == [four, None, four]
    assert pages.find(key(1), 2) is None
    pages.keep(key(1), 2, MessageTexts(b"seven b", None))
    assert pages.find(key(1), 1) is pages.find(key(1), 2) is None
    pages.keep(key(4), 1, MessageTexts(b"sixsix", None))
    assert pages.find(key(3), 1) is four
