"""Events that tell what a turn changed do so with the patches, which are not stored."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kedge.domain.events import FileEdited
from kedge.engine import json_views
from kedge.engine.engine import Engine
from kedge.engine.event_log import Event
from kedge.server import ServerSettings, serving
from kedge.server.sse import hub
from tests.server.event_recorder import RecordedEvent, listening
from tests.server.world import Client, Served
from tests.support.timeouts import PATIENCE

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other things does not cost patches."""
    monkeypatch.setattr(hub, "_PATCH_PATIENCE", PATIENCE)


async def asked(client: Client, text: str) -> str:
    """A new session with a prompt that is answered."""
    session = str((await client.post("/session", {})).json["id"])
    body = {"parts": [{"type": "text", "text": text}]}
    assert (await client.post(f"/session/{session}/message", body)).status == 200
    return session


def told(heard: list[RecordedEvent]) -> list[Json]:
    """What the last event with changes says of each file."""
    found = [
        each.properties["info"]["summary"]["diffs"]
        for each in heard
        if each.type == "message.updated" and each.properties["info"].get("summary")
    ]
    diffs: list[Json] = found[-1]
    return diffs


async def stored(client: Client, session: str) -> list[Json]:
    """What the prompt says when it is read."""
    messages = (await client.get(f"/session/{session}/message")).json
    diffs: list[Json] = messages[0]["info"]["summary"]["diffs"]
    return diffs


async def test_listeners_get_what_readers_get(served: Served) -> None:
    """Whoever listens, to one directory or all, sees at once what a reload would show."""
    async with listening(served) as wide, listening(served, "/event") as narrow:
        session = await asked(served, "read a.txt\nwrite a.txt two\nwrite new.txt made")
        for recorder in (wide, narrow):
            diffs = told(await recorder.until("session.idle"))
            assert {each["file"]: each["status"] for each in diffs} == {
                "a.txt": "modified",
                "new.txt": "added",
            }
            assert "+two" in diffs[0]["patch"]
            assert diffs == await stored(served, session)


async def test_they_are_made_once_for_all_listeners(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, and of whichever directories."""
    made: list[int] = []

    async def noted(engine: Engine, event: Event) -> Event:
        made.append(event.seq)
        return await json_views.told(engine, event)

    monkeypatch.setattr(hub, "told", noted)
    async with listening(served) as wide, listening(served, "/event") as a, listening(served) as b:
        await asked(served, "write new.txt made")
        heard = [told(await each.until("session.idle")) for each in (wide, a, b)]
    assert [len(diffs) for diffs in heard] == [1, 1, 1]
    assert made
    assert len(made) == len(set(made))


async def test_they_are_not_stored(served: Served) -> None:
    """The log has numbers alone; who goes on after a cursor gets the patches all the same."""
    engine = served.running.backend.engine
    start = await engine.events.head()
    session = await asked(served, "read a.txt\nwrite a.txt two")
    async with engine.events.subscribe(after=start) as events:
        async for event in events:
            assert '"patch":' not in event.payload
            if event.type == "session.idle":
                break
    async with listening(served, after=start) as recorder:
        assert told(await recorder.until("session.idle")) == await stored(served, session)


async def test_a_large_patch_is_left_out(served: Served) -> None:
    """One event has at most 256 KiB of patches; what has no room is told without, and can be
    read."""
    large = ("x" * 99 + "\n") * 5_000
    async with listening(served) as recorder:
        session = await asked(
            served, f"read a.txt\nwrite a.txt two\nwrite big.txt <<END\n{large}END"
        )
        diffs = {each["file"]: each for each in told(await recorder.until("session.idle"))}
    assert "+two" in diffs["a.txt"]["patch"]
    assert "patch" not in diffs["big.txt"]
    assert diffs["big.txt"]["additions"] == 5_000
    assert all(each["patch"] for each in await stored(served, session))


async def test_nobody_waits_for_a_slow_patch(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event is told without it."""
    monkeypatch.setattr(hub, "_PATCH_PATIENCE", 0)
    async with listening(served) as recorder:
        await asked(served, "read a.txt\nwrite a.txt two")
        (diff,) = told(await recorder.until("session.idle"))
    assert (diff["file"], diff["additions"]) == ("a.txt", 1)
    assert "patch" not in diff


async def test_what_comes_meanwhile_is_told_in_its_order(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what is not stored, and however much of it comes while patches are awaited."""
    may_go_on = asyncio.Event()

    async def slowly(engine: Engine, event: Event) -> Event:
        await may_go_on.wait()
        return await json_views.told(engine, event)

    monkeypatch.setattr(hub, "told", slowly)
    events = served.running.backend.engine.events
    async with listening(served) as recorder:
        session = await asked(served, "read a.txt\nwrite a.txt two")
        for number in range(5_000):
            events.announce(FileEdited(file=str(number)), session_id=session)
        may_go_on.set()
        last = (await served.post("/session", {})).json["id"]
        heard = await recorder.until("session.created", sessionID=last)
    assert told(heard) == await stored(served, session)
    numbers = [each.properties["file"] for each in heard if each.type == "file.edited"][-5_000:]
    assert numbers == list(map(str, range(5_000)))


async def test_a_page_of_the_log_is_not_many_times_as_large_with_patches(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who goes on after a cursor is sent so much at once, and everything in the end."""
    large = ("x" * 99 + "\n") * 1_000
    for number in range(3):
        await asked(served, f"write large{number}.txt <<END\n{large}END")
    monkeypatch.setattr(hub, "_PAGE_CHARACTERS", 150_000)
    its = served.running.backend.streams
    position, pages = 0, list[bytes]()
    while position < its.recent.position:
        page, position = await its.page(position, None)
        pages.append(page)
    assert max(map(len, pages)) < 400_000
    assert b"".join(pages).count(b'"patch":') == 3


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
async def test_another_server_fills_them_in(
    tmp_path: Path, database: str, request: pytest.FixtureRequest, patient: None
) -> None:
    """Whoever listens to a second server on the same database gets them there."""
    url = request.getfixturevalue("postgres_url") if database == "postgres" else None
    (tmp_path / "work").mkdir()
    place: Json = {"directory": tmp_path / "work", "data_dir": tmp_path / "data", "database": url}
    settings = ServerSettings(port=0)
    async with (
        serving(settings=settings, **place) as one,
        serving(settings=settings, **place) as other,
        listening(Client(other.url, {})) as recorder,
    ):
        session = await asked(Client(one.url, {}), "write new.txt made")
        assert told(await recorder.until("session.idle")) == await stored(
            Client(one.url, {}), session
        )


async def reverted(client: Client, session: str, message: str) -> list[Json]:
    """Take a session back to a message; gives its session.diff."""
    async with listening(client) as recorder:
        body = {"messageID": message}
        assert (await client.post(f"/session/{session}/revert", body)).status == 200
        heard = await recorder.until("session.diff")
    diffs: list[Json] = heard[-1].properties["diff"]
    return diffs


async def test_a_revert_is_told_with_patches(served: Served) -> None:
    """What it takes out is told as reading it told before; going back further tells more."""
    session = await asked(served, "read a.txt\nwrite a.txt two")
    body = {"parts": [{"type": "text", "text": "write a.txt three\nwrite b.txt made"}]}
    assert (await served.post(f"/session/{session}/message", body)).status == 200
    messages = (await served.get(f"/session/{session}/message")).json
    first, second = (each["info"] for each in messages if each["info"]["role"] == "user")
    whole = (await served.get(f"/session/{session}/diff")).json

    assert await reverted(served, session, second["id"]) == second["summary"]["diffs"]
    assert await reverted(served, session, first["id"]) == whole
    assert all(each["patch"] for each in whole)


async def test_a_revert_that_is_no_longer_pending_is_told_without(served: Served) -> None:
    """Who goes on after a cursor hears what it did, with patches only while they are known."""
    session = await asked(served, "read a.txt\nwrite a.txt two")
    messages = (await served.get(f"/session/{session}/message")).json
    engine = served.running.backend.engine
    start = await engine.events.head()
    live = await reverted(served, session, messages[0]["info"]["id"])
    async with listening(served, after=start) as recorder:
        assert (await recorder.until("session.diff"))[-1].properties["diff"] == live
    assert (await served.post(f"/session/{session}/unrevert", {})).status == 200
    async with engine.events.subscribe(after=start) as events:
        stored = await anext(each async for each in events if each.type == "session.diff")
    assert await json_views.told(engine, stored) == stored
