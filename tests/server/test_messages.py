"""Messages and parts over HTTP: read page by page, changed and removed."""

from typing import Any

from kedge.domain.values import plain
from kedge.engine.session import Session
from tests.server.world import Reply, Served


async def filled(served: Served, count: int) -> Session:
    """A session with prompts that nobody answered."""
    session = await served.running.backend.engine.sessions.create("filled")
    for number in range(count):
        url = f"/session/{session.id}/message"
        body = {"noReply": True, "parts": [{"type": "text", "text": f"{number} ü\U0001f41f"}]}
        assert (await served.post(url, body)).status == 200
    return session


def texts(reply: Reply) -> list[str]:
    """The first text of each message."""
    return [each["parts"][0]["text"][0] for each in reply.json]


async def test_messages_are_what_the_library_says(served: Served) -> None:
    """The text that is stored, joined: the same as the values, key by key."""
    session = await filled(served, 2)
    await served.post(f"/session/{session.id}/message", {"parts": [text("say hello")]})
    values = (await session.messages()).messages
    found = (await served.get(f"/session/{session.id}/message")).json
    assert found == plain(values)
    one = await served.get(f"/session/{session.id}/message/{values[0].info.id}")
    assert one.json == found[0]


async def test_pages_go_back_to_the_first_message(served: Served) -> None:
    """The newest come first, oldest first on each page; the header has the address of the next."""
    session = await filled(served, 7)
    url = f"/session/{session.id}/message"
    page = await served.get(f"{url}?limit=3&directory=%2F")
    assert texts(page) == ["4", "5", "6"]
    assert page.headers["access-control-expose-headers"] == "Link, X-Next-Cursor"
    cursor = page.headers["x-next-cursor"]
    link, _, rel = page.headers["link"].partition(">; ")
    assert rel == 'rel="next"'
    assert link == f"<{served.url}{url}?limit=3&directory=%2F&before={cursor}"
    second = await served.get(link.removeprefix(f"<{served.url}"))
    assert texts(second) == ["1", "2", "3"]
    last = await served.get(f"{url}?limit=3&before={second.headers['x-next-cursor']}")
    assert texts(last) == ["0"]
    assert "link" not in last.headers
    for query in ("", "?limit=0", "?limit=7", "?limit=99999"):
        whole = await served.get(url + query)
        assert texts(whole) == list("0123456")
        assert "x-next-cursor" not in whole.headers


async def test_pages_that_make_no_sense_are_refused(served: Served) -> None:
    """With 400, and a cursor of another session too."""
    session, other = await filled(served, 2), await filled(served, 2)
    url = f"/session/{session.id}/message"
    foreign = (await served.get(f"/session/{other.id}/message?limit=1")).headers["x-next-cursor"]
    own = (await served.get(f"{url}?limit=1")).headers["x-next-cursor"]
    for query in ("limit=-1", "limit=abc", "limit=1.5", "before=garbage&limit=2", f"before={own}"):
        reply = await served.get(f"{url}?{query}")
        assert (reply.status, reply.json["data"]["kind"]) == (400, "Query"), query
    assert (await served.get(f"{url}?limit=1&before={foreign}")).status == 400


async def test_a_message_that_is_not_there(served: Served) -> None:
    """Is not found, whether or not its session is; an id that is none is refused."""
    session = await filled(served, 0)
    for home in (session.id, "ses_nope"):
        reply = await served.get(f"/session/{home}/message/msg_x")
        assert (reply.status, reply.json["data"]["message"]) == (404, "Message not found: msg_x")
    reply = await served.get(f"/session/{session.id}/message/bad")
    assert reply.status == 400
    assert reply.json["data"] == {
        "message": 'Expected a string starting with "msg", got "bad"\n  at ["messageID"]',
        "kind": "Params",
    }


async def test_parts_are_stored_and_removed(served: Served) -> None:
    """A whole part, new or changed; its ids must be those of the path."""
    session = await filled(served, 1)
    message = (await served.get(f"/session/{session.id}/message")).json[0]
    part = message["parts"][0]
    url = f"/session/{session.id}/message/{part['messageID']}/part/{part['id']}"
    edited = {**part, "text": "edited", "unknown": {"kept": True}}
    assert (await served.patch(url, edited)).json == edited
    new = {**part, "id": "prt_zzz", "text": "new"}
    assert (await served.patch(url.replace(part["id"], "prt_zzz"), new)).json == new
    assert await parts_of(served, part) == [edited, new]
    for body in ({"text": "x"}, {**part, "id": "prt_other"}, {**part, "sessionID": "ses_x"}):
        assert (await served.patch(url, body)).status == 400
    assert (await served.patch(url.replace(part["id"], "bad"), part)).status == 400
    assert (await served.patch(url.replace(session.id, "ses_nope"), part)).status == 404
    for _ in range(2):
        reply = await served.delete(url)
        assert (reply.status, reply.json) == (200, True)
    assert await parts_of(served, part) == [new]
    assert (await served.delete(url.replace(session.id, "ses_nope"))).status == 404


async def test_messages_are_removed_while_nothing_runs(served: Served) -> None:
    """True whether or not it was there; 409 while the session is busy."""
    session = await filled(served, 2)
    url = f"/session/{session.id}/message"
    first = (await served.get(url)).json[0]["info"]["id"]
    async with session.turn("hello"):
        busy = await served.delete(f"{url}/{first}")
        assert busy.status == 409
        assert busy.json == {
            "_tag": "SessionBusyError",
            "sessionID": session.id,
            "message": f"Session is busy: {session.id}",
        }
    for _ in range(2):
        assert (await served.delete(f"{url}/{first}")).json is True
    assert len((await served.get(url)).json) == 2
    assert (await served.delete(f"{url}/bad")).status == 400
    assert (await served.delete(f"/session/ses_nope/message/{first}")).status == 404


async def test_a_prompt_shows_what_its_turn_changed(served: Served) -> None:
    """The patches are not stored, but they are in what clients read, page or single message."""
    session = await filled(served, 1)
    url = f"/session/{session.id}/message"
    await served.post(url, {"parts": [text("write new.txt hello")]})
    await served.post(url, {"parts": [text("write other.txt bye")]})
    prompts = [each["info"] for each in (await served.get(url)).json if is_prompt(each)]
    diffs = [prompt.get("summary", {"diffs": []})["diffs"] for prompt in prompts]
    assert [[each["file"] for each in found] for found in diffs] == [[], ["new.txt"], ["other.txt"]]
    for found in diffs[1:]:
        assert found[0]["patch"].startswith(f"Index: {found[0]['file']}\n")
        assert (found[0]["additions"], found[0]["status"]) == (1, "added")
    stored = await session.message(prompts[1]["id"])
    assert stored.info.summary.diffs[0].patch is None  # type: ignore[union-attr]
    single = await served.get(f"{url}/{prompts[1]['id']}")
    assert single.json["info"] == prompts[1]


def is_prompt(message: dict[str, Any]) -> bool:
    """Whether a person wrote it."""
    return bool(message["info"]["role"] == "user")


def text(said: str) -> dict[str, str]:
    """A part of a prompt."""
    return {"type": "text", "text": said}


async def parts_of(served: Served, part: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the message that a part belongs to."""
    found = await served.get(f"/session/{part['sessionID']}/message/{part['messageID']}")
    parts: list[dict[str, Any]] = found.json["parts"]
    return parts
