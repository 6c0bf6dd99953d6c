"""The first thing that clients ask."""

from kedge import __version__
from tests.server.world import Served


async def test_the_server_answers(served: Served) -> None:
    """Health says that it does, and which version it is."""
    reply = await served.get("/global/health")
    assert reply.status == 200
    assert reply.json == {"healthy": True, "version": __version__}


async def test_unknown_routes_are_json(served: Served) -> None:
    """Never HTML, which OpenCode's SDK would take for an answer."""
    reply = await served.get("/no/such/route")
    assert reply.status == 404
    assert reply.json["name"] == "NotFoundError"


async def test_a_wrong_method_names_the_right_ones(served: Served) -> None:
    """A path that is there says what it knows."""
    reply = await served.post("/global/health")
    assert (reply.status, reply.headers["allow"]) == (405, "GET")
    assert reply.json["name"] == "MethodNotAllowed"


async def test_the_newer_name_of_health(served: Served) -> None:
    """It says the same, and never a `pid`, which clients take for OpenCode's next protocol."""
    newer, older = await served.get("/api/health"), await served.get("/global/health")
    assert newer.status == 200
    assert newer.json == older.json
    assert "pid" not in newer.json
