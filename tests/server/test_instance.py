"""What surrounds a server."""

import logging
from urllib.parse import quote

import pytest

from kedge.server.routes.instance import _SECRET, LogLine, log_text
from tests.server.world import Served


async def test_paths_are_those_of_the_directory(served: Served) -> None:
    """Directory and worktree differ below a worktree's root; the rest is the server's."""
    world = served.world
    world.put("sub/x.txt", "x")
    sub = f"{world.folder}/sub"
    found = (await served.get("/path", headers={"x-opencode-directory": sub})).json
    assert found == {
        "home": str(world.root / "home"),
        "state": str(world.root / "data"),
        "config": str(world.config / "opencode"),
        "worktree": str(world.folder),
        "directory": sub,
    }


async def test_a_header_names_a_directory_in_any_script(served: Served) -> None:
    """Percent-encoded, as SDKs send it; what is no text at all is a bad request."""
    folder = served.world.root / "Füße 文"
    folder.mkdir()
    found = await served.get("/path", headers={"x-opencode-directory": quote(str(folder))})
    assert found.json["directory"] == str(folder)
    for odd in ("%ff", "%00"):
        reply = await served.get("/path", headers={"x-opencode-directory": odd})
        assert reply.status == 400, odd


EMPTY = {
    "/lsp": [],
    "/formatter": [],
    "/mcp": {},
    "/experimental/resource": {},
    "/experimental/workspace": [],
    "/experimental/workspace/status": [],
    "/experimental/capabilities": {"backgroundSubagents": False},
    "/experimental/console": {"consoleManagedProviders": [], "switchableOrgCount": 0},
}


async def test_what_kedge_lacks_is_empty(served: Served) -> None:
    """Terminal UIs ask for all of it when they start, and show nothing of what is empty."""
    assert {route: (await served.get(route)).json for route in EMPTY} == EMPTY


async def test_configured_mcp_servers_do_not_run(served: Served) -> None:
    """Whoever configured one sees why it is of no use."""
    local = {"type": "local", "command": ["x"]}
    served.world.configure(mcp={"a": local, "b": {**local, "enabled": False}})
    assert (await served.get("/mcp")).json == {
        "a": {"status": "failed", "error": "kedge does not run MCP servers yet"},
        "b": {"status": "disabled"},
    }


async def test_clients_write_into_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """One line at the level that they say; a level that there is not is a bad request."""
    line = {"service": "tui", "level": "warn", "message": "odd\x1b[2J\nthing"}
    with caplog.at_level(logging.DEBUG, "kedge.client"):
        assert (await served.post("/log", line)).json is True
        bad = await served.post("/log", {**line, "level": "loud"})
    assert (bad.status, bad.json["data"]["kind"]) == (400, "Payload")
    (record,) = [each for each in caplog.records if each.name == "kedge.client"]
    assert (record.levelname, record.getMessage()) == ("WARNING", "tui: odd\\x1b[2J\\nthing")


@pytest.mark.parametrize(
    "said",
    [
        "authorization: Bearer SECRET",
        "got 'Basic SECRET' back",
        'body {"apiKey": "SECRET"}',
        "GET /x?auth_token=SECRET&y=1",
        "MY_API_KEY=SECRET npm start",
        "password:SECRET",
        "key sk-SECRETSECRET",
    ],
)
def test_what_looks_like_a_secret_is_not_logged(said: str) -> None:
    """Clients write whole requests into logs."""
    line = LogLine(service="x", level="info", message=said, extra={"token": "SECRET", "n": 1})
    text = log_text(line)
    assert "SECRET" not in text
    assert '"n":1' in text


def test_a_line_of_the_log_is_short() -> None:
    """However much a client says."""
    text = log_text(LogLine(service="x", level="info", message="\x00" * 10**6))
    assert len(text) == 2000


def test_what_looks_like_a_secret_is_searched_for_once() -> None:
    """Looking anew at every hyphen would take hours, while nobody else is served."""
    assert _SECRET.search("-" * 10**6) is None
    assert _SECRET.search("x-_-MY-api-key: SECRET") is not None
