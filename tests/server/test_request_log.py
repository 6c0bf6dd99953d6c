"""What the log says of requests, and what it keeps to itself."""

import base64
import logging
import re

import pytest

from tests.agent.world import World
from tests.server.world import serve

_NAME = "kedge.server.requests"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log, with what is only worth mentioning."""
    caplog.set_level(logging.INFO, _NAME)
    return caplog


def lines(log: pytest.LogCaptureFixture) -> list[str]:
    """What was said of requests."""
    return [record.getMessage() for record in log.records if record.name == _NAME]


async def test_each_request_is_a_line(world: World, log: pytest.LogCaptureFixture) -> None:
    """With its method, path, status, time and size; also if it is refused or unknown."""
    async with serve(world, log_requests=True) as served:
        reply = await served.get("/global/health")
        await served.post("/nothing", {"text": "my words"})
        await served.get("/global/health", headers={"host": "evil.example"})
    first, second, third = lines(log)
    found = re.fullmatch(r"GET /global/health 200 \d+\.\d ms (\d+) bytes", first)
    assert found is not None, first
    assert int(found[1]) == len(reply.body)
    assert second.startswith("POST /nothing 404 ")
    assert third.startswith("GET /global/health 403 ")


async def test_nothing_secret_is_told(world: World, log: pytest.LogCaptureFixture) -> None:
    """Neither tokens nor what people look for, and nothing that moves a cursor."""
    token = base64.b64encode(b"opencode:hunter2").decode()
    async with serve(world, log_requests=True, password="hunter2") as served:
        await served.get(f"/session?auth_token={token}&limit=3&search=private")
        await served.get(f"/a%1b[2Jb?token={token}&sk-private=1")
    first, second = lines(log)
    assert first.startswith("GET /session?limit=3&… 200 ")
    assert second.startswith("GET /a\\x1b[2Jb?… 401 ")


async def test_a_stream_is_told_at_both_ends(world: World, log: pytest.LogCaptureFixture) -> None:
    """So that people see who listens."""
    async with (
        serve(world, log_requests=True) as served,
        served.connected() as (reader, writer),
    ):
        writer.write(served.request("GET", "/event"))
        await reader.readuntil(b"server.connected")
        assert lines(log) == ["GET /event 200 stream begins"]
    (_, end) = lines(log)
    assert re.fullmatch(r"GET /event 200 \d+\.\d ms \d+ bytes", end)


async def test_without_it_nothing_is_told(world: World, log: pytest.LogCaptureFixture) -> None:
    """Whatever the level of the log is."""
    async with serve(world) as served:
        await served.get("/global/health")
    assert lines(log) == []
