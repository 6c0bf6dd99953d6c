"""Sessions over HTTP: make, read, change, fork and remove them."""

from kedge.domain.sessions import Todo
from tests.server.world import Served


async def test_a_session_is_made_and_read(served: Served) -> None:
    """What is not said has OpenCode's defaults, and reading gives the same object."""
    made = (await served.post("/session")).json
    assert made["directory"] == str(served.world.folder)
    assert made["title"].startswith("New session - ")
    assert (made["path"], made["cost"]) == ("", 0)
    assert None not in made.values()
    assert (await served.get(f"/session/{made['id']}")).json == made


async def test_a_session_is_made_with_everything(served: Served) -> None:
    """Whatever the body type says it is, as OpenCode does for this route."""
    parent = (await served.post("/session", {"title": ""})).json
    body = {
        "parentID": parent["id"],
        "title": "Beta",
        "agent": "plan",
        "model": {"id": "m", "providerID": "p"},
        "metadata": {"k": [1, None]},
        "permission": [{"permission": "edit", "pattern": "*", "action": "ask"}],
        "workspaceID": "wrk_1",
        "unknown": 1,
    }
    reply = await served.post("/session", body, headers={"content-type": "text/plain"})
    del body["workspaceID"], body["unknown"]
    assert {**reply.json, **body} == reply.json
    assert parent["title"] == ""
    child = (await served.post("/session", {"parentID": parent["id"]})).json
    assert child["title"].startswith("Child session - ")
    children = (await served.get(f"/session/{parent['id']}/children")).json
    assert {each["id"] for each in children} == {reply.json["id"], child["id"]}


async def test_what_is_no_new_session_is_refused(served: Served) -> None:
    """With 400, and nothing is made."""
    for raw in (b'{"title":', b'{"title":5}', b'{"parentID":"bad"}', b"null", b"[]", b"title=x"):
        reply = await served.post("/session", raw=raw)
        assert (reply.status, reply.json["name"]) == (400, "BadRequest"), raw
    assert (await served.post("/session", {"parentID": "ses_nope"})).status == 404
    assert (await served.get("/session")).json == []


async def test_a_session_is_made_where_the_request_says(served: Served) -> None:
    """The query beats the header, and the session keeps its directory whatever later ones say."""
    below = served.world.folder / "sub dir"
    below.mkdir()
    header = {"x-opencode-directory": str(below).replace(" ", "%20")}
    made = (await served.post("/session", headers=header)).json
    assert (made["directory"], made["path"]) == (str(below), "sub dir")
    other = (await served.post(f"/session?directory={served.world.folder}", headers=header)).json
    assert other["path"] == ""
    again = await served.get(f"/session/{made['id']}?directory=/")
    assert again.json == made
    assert (await served.post("/session?directory=/does/not/exist")).status == 404


async def test_a_patch_changes_what_it_names(served: Served) -> None:
    """Metadata replaces, rules are added; null and unknown keys change nothing."""
    made = (await served.post("/session", {"title": "old", "metadata": {"a": 1}})).json
    url = f"/session/{made['id']}"
    rule = {"permission": "bash", "pattern": "*", "action": "ask"}
    for raw in (b"{}", b'{"title":null}', b'{"time":{}}', b'{"time":null}', b'{"unknown":1}'):
        assert (await served.patch(url, raw=raw)).json == made
    assert (await served.patch(url, {"title": "new"})).json == {**made, "title": "new"}
    assert (await served.patch(url, {"metadata": {"b": 2}})).json["metadata"] == {"b": 2}
    await served.patch(url, {"permission": [rule]})
    assert (await served.patch(url, {"permission": [rule]})).json["permission"] == [rule, rule]


async def test_a_session_goes_into_the_archive_and_out_again(served: Served) -> None:
    """Any number is kept; null takes it out, which OpenCode cannot."""
    made = (await served.post("/session")).json
    url = f"/session/{made['id']}"
    for at in (1700000000000, 0, -5):
        assert (await served.patch(url, {"time": {"archived": at}})).json["time"]["archived"] == at
    assert [each["id"] for each in (await served.get("/session")).json] == [made["id"]]
    assert (await served.patch(url, {"time": {"archived": None}})).json == made


async def test_what_is_no_patch_is_refused(served: Served) -> None:
    """With 400, and 404 where there is no session."""
    url = f"/session/{(await served.post('/session')).json['id']}"
    for raw in (
        b'{"title":3}',
        b'{"time":{"archived":"x"}}',
        b"{bad",
        b"",
        b'{"time":{"archived":1e300}}',
    ):
        reply = await served.patch(url, raw=raw)
        assert (reply.status, reply.json["data"]["kind"]) == (400, "Payload"), raw
    assert (await served.patch("/session/ses_nope", {"title": "x"})).status == 404


async def test_a_removed_session_takes_its_subtasks_and_comes_back(served: Served) -> None:
    """Gone from every route, listed as deleted, and restored as it was; a fork stays."""
    made = (await served.post("/session")).json
    child = (await served.post("/session", {"parentID": made["id"]})).json
    url = f"/session/{made['id']}"
    fork = (await served.post(f"{url}/fork")).json
    reply = await served.delete(url)
    assert (reply.status, reply.json) == (200, True)
    for target in (url, f"/session/{child['id']}", f"{url}/message", f"{url}/todo"):
        assert (await served.get(target)).status == 404
    assert (await served.get(f"/session/{fork['id']}")).status == 200
    assert (await served.delete(url)).status == 404
    deleted = (await served.get("/session/deleted?limit=1")).json
    rest = await served.get("/session/deleted")
    assert deleted == rest.json[:1]
    assert {each["id"] for each in rest.json} == {made["id"], child["id"]}
    assert all(each["time"]["deleted"] >= each["time"]["created"] for each in rest.json)
    assert (await served.post(f"{url}/restore")).json == made
    assert (await served.get(f"{url}/children")).json == [child]
    assert (await served.get("/session/deleted")).json == []


async def test_ids_that_are_none_are_refused(served: Served) -> None:
    """With 400 where OpenCode has a server error; unknown ones are not found."""
    for target in ("", "/children", "/todo", "/message", "/diff", "/forks", "/tails"):
        reply = await served.get(f"/session/bad{target}")
        assert (reply.status, reply.json["data"]["kind"]) == (400, "Params"), target
        if target != "/diff":
            missing = await served.get(f"/session/ses_nope{target}")
            assert missing.status == 404
            body = {"name": "NotFoundError", "data": {"message": "Session not found: ses_nope"}}
            assert missing.json == body


async def test_only_busy_sessions_have_a_status(served: Served) -> None:
    """An idle one is left out."""
    made = (await served.post("/session")).json
    assert (await served.get("/session/status")).json == {}
    session = await served.running.backend.engine.sessions.get(made["id"])
    async with session.turn("hello"):
        assert (await served.get("/session/status")).json == {made["id"]: {"type": "busy"}}
    assert (await served.get("/session/status")).json == {}


async def test_todos_are_listed(served: Served) -> None:
    """As they are now, in order."""
    made = (await served.post("/session")).json
    url = f"/session/{made['id']}/todo"
    assert (await served.get(url)).json == []
    session = await served.running.backend.engine.sessions.get(made["id"])
    await session.set_todos([Todo(content="plan", status="pending", priority="high")])
    plan = {"content": "plan", "status": "pending", "priority": "high"}
    assert (await served.get(url)).json == [plan]


async def test_a_busy_session_is_stopped_and_removed(served: Served) -> None:
    """What runs in it is ended first, where OpenCode lets it run into an error."""
    made = (await served.post("/session")).json
    url = f"/session/{made['id']}"
    body = {"parts": [{"type": "text", "text": "bash echo begun > begun.txt; sleep 600"}]}
    assert (await served.post(f"{url}/prompt_async", body)).status == 204
    await served.world.until("begun.txt", lambda text: text == "begun\n")
    assert (await served.delete(url)).json is True
    assert (await served.get("/session/status")).json == {}
    assert (await served.get(url)).status == 404
    restored = (await served.post(f"{url}/restore")).json
    assert restored["id"] == made["id"]
    answer = (await served.get(f"{url}/message")).json[-1]["info"]
    assert answer["error"]["name"] == "MessageAbortedError"
