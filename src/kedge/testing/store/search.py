"""Checks of the search: what is found, in which order, and what is no longer found."""

from typing import Any

from kedge.domain.cursors import PageCursor
from kedge.domain.errors import InvalidCursor
from kedge.domain.messages import Message
from kedge.domain.parts import ToolCompleted, ToolError, ToolPart, ToolState, ToolTime
from kedge.domain.sessions import SearchHit, SessionTime
from kedge.store.queries.deletion import compact_session, purge_session
from kedge.store.queries.messages import remove_message
from kedge.store.queries.parts import remove_part
from kedge.store.queries.search import index_events, search, search_sessions, words_of
from kedge.store.queries.session_lists import EVERYWHERE, directory_place
from kedge.store.queries.sessions import change_session, delete_session, restore_session
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, changed, opened, refused


async def titles_come_first_then_the_newest(database: Database) -> None:
    """Titles that match stand before parts that match, each kind newest first."""
    async with opened(database) as scene:
        one = await scene.add_session(title="An anchor")
        message = await scene.add_user(one)
        parts = [await scene.add_text(message, f"anchor {n}") for n in range(2)]
        two = await scene.add_session(title="Anchor chains")
        hits = await _hits(scene, "anchor")
        assert [(hit.session.id, hit.messageID, hit.partID) for hit in hits] == [
            (two.id, None, None),
            (one.id, None, None),
            (one.id, message.id, parts[1].id),
            (one.id, message.id, parts[0].id),
        ]
        assert all("anchor" in hit.excerpt.lower() for hit in hits)
        assert hits[0].session == two


async def words_match_by_their_beginning(database: Database) -> None:
    """All words must be there, in any order and case; the middle of a word does not match."""
    async with opened(database) as scene:
        await _texts(scene, "The Quick brown fox", "quick silver")
        assert await _found(scene, "QUI") == ["quick silver", "The Quick brown fox"]
        assert await _found(scene, "fox quick") == ["The Quick brown fox"]
        assert await _found(scene, "uick") == []
        assert await _found(scene, "quick silver fox") == []


async def every_word_finds_its_own_text(database: Database) -> None:
    """In any language: with accents or without, composed or not, folded as users expect."""
    async with opened(database) as scene:
        texts = [
            "naïve café",
            "cafe\u0301 decomposed",
            "straße",
            "한국어 문서",
            "がぎぐ ガギグ",
            "мой ёж",
            "Ελληνικός",
            "ＦＵＬＬ ｗｉｄｔｈ",  # noqa: RUF001 - letters that only look like ASCII
            "ﬁnal ligature",
            "日本語",
            "snake_case_word x2y",
        ]
        await _texts(scene, *texts)
        for text in texts:
            for word in text.split():
                assert text in await _found(scene, word), word
        assert set(await _found(scene, "cafe")) == {"naïve café", "cafe\u0301 decomposed"}
        assert await _found(scene, "STRASSE") == ["straße"]


async def odd_queries_are_only_words(database: Database) -> None:
    """Quotes, operators, NUL and texts without words are neither syntax nor an error."""
    async with opened(database) as scene:
        await _texts(scene, "one AND two", "a\0b nul", "x OR y NEAR z")
        for query in (
            '"',
            "*",
            "a:b",
            "one AND NOT",
            "NEAR(",
            "\0",
            "\ud800",
            "a' --",
            "& | ! <->",
        ):
            await _found(scene, query)
        assert await _found(scene, "") == []
        assert await _found(scene, "!?") == []
        assert await _found(scene, "and") == ["one AND two"]
        assert await _found(scene, "nul") == ["a\0b nul"]


async def tool_calls_are_found_by_input_output_and_error(database: Database) -> None:
    """Once they have ended."""
    async with opened(database) as scene:
        message = await scene.add_user(await scene.add_session())
        time = ToolTime(start=1, end=2)
        done = ToolCompleted(
            input={"path": "harbour.txt"}, output="lighthouse", title="", metadata={}, time=time
        )
        failed = ToolError(input={"command": "sail"}, error="capsized", time=time)
        ids = [await _tool(scene, message, state) for state in (done, failed)]
        for query, id in (
            ("harbour", ids[0]),
            ("lighthouse", ids[0]),
            ("sail", ids[1]),
            ("capsized", ids[1]),
        ):
            assert [hit.partID for hit in await _hits(scene, query)] == [id]


async def the_index_follows_what_changes(database: Database) -> None:
    """Running text is not found yet; changed, emptied and removed text is no longer found."""
    async with opened(database) as scene:
        info = await scene.add_session(title="oldtitle")
        message, doomed = await scene.add_user(info), await scene.add_user(info)
        running = scene.running_text(message, "streaming")
        await scene.put(running)
        one, two, three = [await scene.add_text(message, f"part{n}") for n in range(3)]
        await scene.add_text(doomed, "doomed")
        assert await _found(scene, "streaming") == []
        assert len(await _hits(scene, "part")) == 3
        await scene.put(changed(one, text="changed"))
        await scene.put(changed(two, text=""))
        await scene.write(remove_part, info.id, message.id, three.id)
        await scene.write(remove_message, info.id, doomed.id)
        await scene.write(change_session, info.id, lambda old: changed(old, title="newtitle"))
        for gone in ("part", "doomed", "oldtitle"):
            assert await _hits(scene, gone) == [], gone
        assert await _found(scene, "changed") == ["changed"]
        assert len(await _hits(scene, "newtitle")) == 1


async def deleted_sessions_are_not_found(database: Database) -> None:
    """Until they are restored; purged ones never again."""
    async with opened(database) as scene:
        info = await scene.add_session(title="hidden")
        assert len(await _hits(scene, "hidden")) == 1
        await scene.write(delete_session, info.id, START)
        assert await _hits(scene, "hidden") == []
        await scene.write(restore_session, info.id)
        assert len(await _hits(scene, "hidden")) == 1
        await scene.write(delete_session, info.id, START)
        await scene.write(purge_session, info.id, START)
        await scene.add_session(id=info.id, title="other")
        assert await _hits(scene, "hidden") == []


async def copies_of_a_fork_are_not_found(database: Database) -> None:
    """Only the original is, also after the log was compacted; the fork's own messages are."""
    async with opened(database) as scene:
        info = await scene.add_session(title="origin")
        await scene.add_text(await scene.add_user(info), "once")
        fork = await scene.fork(info)
        assert [hit.session.id for hit in await _hits(scene, "once")] == [info.id]
        head = (await scene.events())[-1].seq
        await scene.bulk(compact_session, info.id, head)
        assert [hit.session.id for hit in await _hits(scene, "once")] == [info.id]
        await scene.add_text(await scene.add_user(fork), "once more")
        assert [hit.session.id for hit in await _hits(scene, "once")] == [fork.id, info.id]


async def only_the_beginning_of_a_long_part_is_indexed(database: Database) -> None:
    """64 KiB of it; a long excerpt is cut."""
    async with opened(database) as scene:
        [text] = await _texts(scene, "near " + "filler " * 20_000 + "far")
        assert await _found(scene, "near") == [text]
        assert await _found(scene, "far") == []
        assert len((await _hits(scene, "near"))[0].excerpt) < 1000


async def hits_come_in_pages(database: Database) -> None:
    """Over both kinds, each hit once; a cursor from elsewhere is refused."""
    async with opened(database) as scene:
        for n in range(4):
            info = await scene.add_session(title=f"word {n}")
            await scene.add_text(await scene.add_user(info), f"word {n}")
        everything = [_key(hit) for hit in await _hits(scene, "word")]
        assert len(everything) == len(set(everything)) == 8
        for size in (1, 3, 4, 8):
            found, after = [], None
            while True:
                page = await scene.read(search, ["word"], after=after, limit=size)
                found += [_key(hit) for hit in page.hits]
                if page.next is None:
                    break
                after = PageCursor.parse(page.next.text("l"), "l")
            assert found == everything
        with refused(InvalidCursor):
            await scene.read(search, ["word"], after=PageCursor(1, "elsewhere"), limit=1)


async def sessions_are_found_by_what_they_hold(database: Database) -> None:
    """Each once, the latest first, in pages."""
    async with opened(database) as scene:
        infos = []
        for n in range(9):
            scene.clock.advance(1)
            info = await scene.add_session(title=("reef" if n % 3 == 0 else "calm") + f" {n}")
            for text in ("reef ahead", "reef again") if n % 3 == 1 else ("sand",):
                await scene.add_text(await scene.add_user(info), text)
            infos.append(info)
        await scene.write(delete_session, infos[7].id, START)
        while await scene.write(index_events, 50):
            pass
        expected = [infos[n].id for n in (6, 4, 3, 1, 0)]
        for size in (1, 2, 5, 9):
            found: list[str] = []
            after = None
            while True:
                page = await scene.read(search_sessions, "reef", **_ANY, after=after, limit=size)
                found += [info.id for info in page.sessions]
                if page.next is None:
                    break
                after = PageCursor.parse(page.next.text("l"), "l")
            assert found == expected


async def any_part_of_a_title_is_found(database: Database) -> None:
    """In any case and with any accents; no character has a special meaning. In parts, only
    beginnings of words are found."""
    async with opened(database) as scene:
        titles = ["Große Ärger", "100 % of a_b", "a\\b", "İstanbul", "한국어", "nul\0nul"]
        ids = {title: (await scene.add_session(title=title)).id for title in titles}
        talk = await scene.add_session(title="untitled")
        await scene.add_text(await scene.add_user(talk), "harbour % lights")
        ids["untitled"] = talk.id
        for query, expected in (
            ("ROSSE ärg", ["Große Ärger"]),
            ("sse a", ["Große Ärger"]),
            ("%", ["100 % of a_b"]),
            ("_", ["100 % of a_b"]),
            ("\\", ["a\\b"]),
            ("%%", []),
            ("_%", []),
            ("STANB", ["İstanbul"]),
            ("국", ["한국어"]),
            ("l\0n", ["nul\0nul"]),
            ("light har", ["untitled"]),
            ("arbour", []),
            ("\u0301", []),
            ("", []),
        ):
            found = await _sessions(scene, query)
            assert found == [ids[title] for title in expected], query
        await scene.write(
            change_session, ids["a\\b"], lambda old: changed(old, title="100 %, another")
        )
        assert set(await _sessions(scene, "%")) == {ids["100 % of a_b"], ids["a\\b"]}
        assert await _sessions(scene, "\\") == []
        for id in (ids["a\\b"], ids["İstanbul"]):
            await scene.write(delete_session, id, START)
        await scene.write(purge_session, ids["İstanbul"], START)
        assert await _sessions(scene, "stan") == await _sessions(scene, "other") == []
        await scene.write(restore_session, ids["a\\b"])
        assert await _sessions(scene, "other") == [ids["a\\b"]]
        await scene.add_session(id=ids["İstanbul"], title="Ankara")
        assert await _sessions(scene, "stan") == []


async def found_sessions_can_be_narrowed(database: Database) -> None:
    """To a place, to roots or children, to archived ones or not, and to those updated since a
    time or before it."""
    async with opened(database) as scene:
        root = await scene.add_session(title="reef", directory="/a")
        child = await scene.add_session(title="reef", parentID=root.id)
        kept = await scene.add_session(
            title="reef", time=SessionTime(created=1, updated=1, archived=1)
        )
        while await scene.write(index_events, 50):
            pass
        for choice, expected in (
            ({}, {root.id, child.id, kept.id}),
            ({"place": directory_place("/a")}, {root.id}),
            ({"roots": True}, {root.id, kept.id}),
            ({"roots": False}, {child.id}),
            ({"archived": True}, {kept.id}),
            ({"archived": False}, {root.id, child.id}),
            ({"start": 2}, {root.id, child.id}),
            ({"before": 2}, {kept.id}),
        ):
            wanted: dict[str, Any] = {**_ANY, **choice}
            page = await scene.read(search_sessions, "eef", **wanted, after=None, limit=10)
            assert {info.id for info in page.sessions} == expected


_ANY: dict[str, Any] = {"place": EVERYWHERE, "roots": None, "archived": None, "start": 0}


async def _sessions(scene: Scene, query: str) -> list[str]:
    """The ids of the sessions that are found."""
    while await scene.write(index_events, 50):
        pass
    page = await scene.read(search_sessions, query, **_ANY, after=None, limit=100)
    return [info.id for info in page.sessions]


def _key(hit: SearchHit) -> tuple[str, str | None]:
    return hit.session.id, hit.partID


async def _hits(scene: Scene, query: str) -> list[SearchHit]:
    while await scene.write(index_events, 5):
        pass
    page = await scene.read(search, words_of(query), after=None, limit=100)
    assert page.next is None
    return page.hits


async def _found(scene: Scene, query: str) -> list[str]:
    """The whole texts of the parts that were found."""
    texts = []
    for hit in await _hits(scene, query):
        for _, parts in await scene.messages(hit.session):
            texts += [getattr(part, "text", "") for part in parts if part.id == hit.partID]
    return texts


async def _texts(scene: Scene, *texts: str) -> list[str]:
    message = await scene.add_user(await scene.add_session(title="untitled"))
    for text in texts:
        await scene.add_text(message, text)
    return list(texts)


async def _tool(scene: Scene, message: Message, state: ToolState) -> str:
    part = ToolPart(
        id=scene.ids.part(),
        sessionID=message.sessionID,
        messageID=message.id,
        callID="c",
        tool="t",
        state=state,
    )
    await scene.put(part)
    return part.id
