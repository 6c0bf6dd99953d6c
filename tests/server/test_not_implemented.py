"""What is not built says so, in JSON."""

from kedge.server.routes import not_implemented
from tests.server.world import Served


async def test_each_says_that_it_is_not_built(served: Served) -> None:
    """Whatever is sent with it, the answer is a 501 with a reason, never a page and never a lie."""
    for route in not_implemented.routes.all:
        path = route.path.replace("{sessionID}", "ses_x").replace("{", "").replace("}", "")
        reply = await served.ask(route.method, path, raw=b"{bad", headers={"content-type": "a/b"})
        assert reply.status == 501, path
        assert reply.json["name"] == "NotImplemented"
        assert reply.json["data"]["message"].startswith("Not built: ")


async def test_a_path_may_have_any_number_of_names(served: Served) -> None:
    """Where a route ends with a star, and only there."""
    for path in ("x", "a/b/c.txt", "%2A", "*/x", "a%2Fb", "list", "../x"):
        assert (await served.get(f"/api/fs/read/{path}")).status == 501, path
    assert (await served.ask("DELETE", "/api/fs/read/a/b")).status == 405
    for path in ("read", "list/a", "reads/a", "find/a"):
        assert (await served.get(f"/api/fs/{path}")).status == 404, path


def test_each_is_described() -> None:
    """The description says in its summary that it is not built."""
    assert all(route.summary.startswith("Not built: ") for route in not_implemented.routes.all)


def test_of_sessions_only_sharing_is_not_built() -> None:
    """Everything else that clients do with a session works."""
    paths = {route.path for route in not_implemented.routes.all}
    assert {path for path in paths if path.startswith("/session")} == {"/session/{sessionID}/share"}
    assert not {"/command", "/skill", "/agent"} & paths
