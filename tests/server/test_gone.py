"""A server whose database or data folder is taken away."""

import os
import shutil

import pytest

from kedge.domain.errors import SnapshotError
from tests.agent.world import World
from tests.server.event_recorder import listening
from tests.server.test_asks import asking
from tests.server.world import Served, serve


async def test_a_database_that_is_gone_is_told(served: Served) -> None:
    """Streams end, every route that needs it answers 503 and says what happened, and when it is
    there again all is well."""
    session = (await served.post("/session", {})).json["id"]
    file = served.world.database
    away = f"{file}.away"
    async with listening(served) as recorder:
        await recorder.until("server.connected")
        os.rename(file, away)
        while await recorder.next() is not None:
            pass
        assert recorder.ended is False
    for method, target in (
        ("GET", "/session"),
        ("GET", f"/session/{session}/message"),
        ("POST", "/session"),
        ("GET", "/event"),
        ("GET", "/global/event"),
    ):
        reply = await served.ask(method, target, {} if method == "POST" else None)
        assert reply.status == 503
        assert f"{file} is gone" in reply.json["data"]["message"]
    health = await served.get("/global/health")
    assert (health.status, health.json["healthy"]) == (503, False)
    assert f"{file} is gone" in health.json["message"]
    assert os.path.basename(file) not in os.listdir(served.world.root)
    os.rename(away, file)
    assert (await served.get("/global/health")).status == 200
    assert [each["id"] for each in (await served.get("/session")).json] == [session]
    async with listening(served) as recorder:
        assert recorder.status == 200


async def test_snapshots_that_are_gone_are_told(world: World) -> None:
    """Prompts are answered, a revert says that it cannot be done instead of doing half, and so does
    the server when it ends."""
    with pytest.raises(SnapshotError, match="not sealed"):
        await _undo_without_snapshots(world)


async def _undo_without_snapshots(world: World) -> None:
    async with serve(world) as served:
        async with asking(served, "write new.txt one\nsay done") as (session, _, turn):
            assert (await turn).json["info"]["finish"] == "stop"
        shutil.rmtree(world.root / "data" / "snapshots")
        body = {"parts": [{"type": "text", "text": "write other.txt two\nsay done"}]}
        reply = await served.post(f"/session/{session.id}/message", body)
        assert reply.json["info"]["finish"] == "stop"
        message = (await served.get(f"/session/{session.id}/message")).json[0]["info"]["id"]
        undone = await served.post(f"/session/{session.id}/revert", {"messageID": message})
        assert undone.status == 503
        assert "the snapshot store failed" in undone.json["data"]["message"]
        assert [world.read(name) for name in ("new.txt", "other.txt")] == ["one\n", "two\n"]
