"""Streams of events as clients see them."""

import pytest

from kedge.server.sse import client
from tests.agent.world import World
from tests.server.event_recorder import listening
from tests.server.world import Served, serve


async def test_a_stream_begins_with_a_greeting(served: Served) -> None:
    """Both streams have the recorded headers, and a first frame with a cursor."""
    head = await served.running.backend.engine.events.head()
    for target in ("/event", "/global/event"):
        async with listening(served, target) as recorder:
            assert recorder.status == 200
            said = {name: recorder.headers[name] for name in recorder.headers}
            assert said["content-type"] == "text/event-stream"
            assert said["cache-control"] == "no-cache, no-transform"
            assert said["x-accel-buffering"] == "no"
            assert said["x-content-type-options"] == "nosniff"
            assert "content-encoding" not in said
            greeting = await recorder.next()
            assert greeting is not None
            assert greeting.cursor == head
            assert greeting.type == "server.connected"
            assert ("payload" in greeting.data) == (target == "/global/event")
            assert greeting.data.keys() <= {"id", "type", "properties", "payload"}


async def test_one_directory_or_all(served: Served) -> None:
    """A stream of one directory has its events bare, the other all of them with their places."""
    engine = served.running.backend.engine
    elsewhere = served.world.folder / "deeper"
    elsewhere.mkdir()
    async with (
        listening(served, "/event") as here,
        listening(served, f"/event?directory={elsewhere}") as there,
        listening(served, "/global/event") as both,
    ):
        for recorder in (here, there, both):
            await recorder.until("server.connected")
        first = await engine.sessions.create("First")
        second = await engine.sessions.create("Second", directory=elsewhere)
        assert [each.properties["sessionID"] for each in await here.until("session.created")] == [
            first.id
        ]
        assert [each.properties["sessionID"] for each in await there.until("session.created")] == [
            second.id
        ]
        heard = await both.until("session.created", sessionID=second.id)
    told = [each.data for each in heard if each.type == "session.created"]
    assert [each["directory"] for each in told] == [str(served.world.folder), str(elsewhere)]
    assert {each["project"] for each in told} == {engine.project.id}
    assert all(each.data["payload"]["type"] != "sync" for each in heard)


async def test_signs_of_life(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat carries the cursor to go on from, also when what happened is of no concern."""
    monkeypatch.setattr(client, "HEARTBEAT", 0.05)
    elsewhere = served.world.folder / "deeper"
    elsewhere.mkdir()
    engine = served.running.backend.engine
    async with listening(served, f"/event?directory={elsewhere}") as recorder:
        await recorder.until("server.heartbeat")
        await engine.sessions.create("Of no concern")
        head = await engine.events.head()
        cursor = None
        while cursor != head:
            beat = await recorder.next()
            assert beat is not None
            assert beat.type == "server.heartbeat"
            cursor = beat.cursor


async def test_a_stream_goes_on_where_it_was(served: Served) -> None:
    """With the last cursor a client gets what it missed, once, in the header or in the query."""
    engine = served.running.backend.engine
    start = await engine.events.head()
    made = [(await engine.sessions.create(f"Number {each}")).id for each in range(5)]
    for after, query in ((start, ""), (None, f"?after={start}"), (start, f"?after={start}9")):
        async with listening(served, f"/event{query}", after=after) as recorder:
            heard = await recorder.until("session.created", sessionID=made[-1])
        assert heard[0].cursor == start
        assert [each.properties["sessionID"] for each in heard[1:]] == made
    async with listening(served, after=heard[3].cursor) as recorder:
        heard = await recorder.until("session.created", sessionID=made[-1])
    assert [each.properties["sessionID"] for each in heard[1:]] == made[3:]


async def test_what_happened_before_the_server_started(world: World) -> None:
    """Cursors outlive the server, as the log does."""
    async with world.open() as engine:
        start = engine.events.start
        made = [(await engine.sessions.create(f"Number {each}")).id for each in range(300)]
    async with serve(world) as served:
        for target in ("/event", "/global/event"):
            async with listening(served, target, after=start) as recorder:
                heard = await recorder.until("session.created", sessionID=made[-1])
            created = [each for each in heard if each.type == "session.created"]
            assert [each.properties["sessionID"] for each in created] == made


async def test_cursors_of_no_use(served: Served) -> None:
    """A client with the cursor of another database is told to fetch everything anew."""
    head = await served.running.backend.engine.events.head()
    epoch = head.partition("-")[0]
    for after, reason in (
        (f"{'0' * 16}-1", "foreign"),
        ("nonsense", "foreign"),
        (f"{epoch}-999999", "future"),
    ):
        async with listening(served, after=after) as recorder:
            _, resync = await recorder.until("server.resync")
            assert resync.cursor == head
            assert resync.properties == {"cursor": head, "reason": reason}
    refused = await served.get("/event?after=nonsense")
    assert refused.status == 400
    assert refused.json["data"]["kind"] == "Query"


async def test_disposing(served: Served) -> None:
    """The streams of a directory that is disposed of end; those of everything are told."""
    folder = str(served.world.folder)
    async with (
        listening(served, "/event") as here,
        listening(served, "/event?directory=/nowhere") as there,
        listening(served) as both,
    ):
        for recorder in (here, there, both):
            await recorder.until("server.connected")
        assert (await served.post("/instance/dispose")).json is True
        told = (await here.until("server.instance.disposed"))[-1]
        assert told.data["properties"] == {"directory": folder}
        assert (await here.next(), here.ended) == (None, True)
        assert (await served.post("/global/dispose")).json is True
        await there.until("server.instance.disposed", directory="/nowhere")
        assert (await there.next(), there.ended) == (None, True)
        heard = await both.until("global.disposed")
    assert [each.data.get("directory") for each in heard] == [
        *(folder, "/nowhere", folder, "global"),
    ]


async def test_only_what_lies_in_the_root(world: World) -> None:
    """A server that is bound to a folder tells nothing of others."""
    inside = world.folder / "inside"
    inside.mkdir()
    async with serve(world, root=str(inside)) as served:
        engine = served.running.backend.engine
        start = await engine.events.head()
        async with listening(served) as live:
            await live.until("server.connected")
            await engine.sessions.create("Outside")
            wanted = await engine.sessions.create("Inside", directory=inside)
            (only,) = await live.until("session.created")
            assert only.properties["sessionID"] == wanted.id
        async with listening(served, after=start) as late:
            _, only = await late.until("session.created")
            assert only.properties["sessionID"] == wanted.id
        assert (await served.get("/event?directory=/")).status == 403
