"""Permissions and questions over HTTP: listed, answered, and over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.domain.events import PermissionAsked, QuestionAsked
from kedge.engine.session import Session
from tests.agent.world import Heard, World, listening
from tests.server.world import Reply, Served, serve


@asynccontextmanager
async def asking(
    served: Served, text: str
) -> AsyncIterator[tuple[Session, Heard, asyncio.Task[Reply]]]:
    """A session whose turn asks something before it can be over."""
    engine = served.running.backend.engine
    session = await engine.sessions.create("Given")
    async with listening(engine) as heard:
        body = {"parts": [{"type": "text", "text": text}]}
        path = f"/session/{session.id}/message"
        yield session, heard, asyncio.create_task(served.post(path, body))


def error_in(reply: Reply) -> Any:  # noqa: ANN401 - any JSON
    """What the first call of an answer failed with, if it did."""
    states = [part["state"] for part in reply.json["parts"] if part["type"] == "tool"]
    return states[0].get("error") if states else None


@pytest.mark.parametrize("old", [True, False])
async def test_a_permission(served: Served, old: bool) -> None:
    """It is listed for its directory while the turn waits, on either route, and gone when it is
    answered."""
    served.world.configure(permission={"edit": "ask"})
    async with asking(served, "read a.txt\nwrite a.txt two\nsay done") as (session, heard, turn):
        id = (await heard.asked(PermissionAsked)).id
        (listed,) = (await served.get("/permission")).json
        assert (listed["id"], listed["sessionID"], listed["permission"]) == (id, session.id, "edit")
        assert listed["patterns"] == ["a.txt"]
        assert (await served.get(f"/permission?directory={served.world.root}")).json == []
        path = f"/session/{session.id}/permissions/{id}" if old else f"/permission/{id}/reply"
        said = {"response": "once"} if old else {"reply": "once"}
        reply = await served.post(path, said)
        assert (reply.status, reply.json) == (200, True)
        assert (await served.get("/permission")).json == []
        assert (await turn).json["info"]["finish"] == "stop"
        again = await served.post(path, said)
        assert (again.status, again.json) == (
            404,
            {
                "_tag": "PermissionNotFoundError",
                "requestID": id,
                "message": f"Permission request not found: {id}",
            },
        )
    assert served.world.read("a.txt") == "two\n"


async def test_permissions_that_are_rejected(served: Served) -> None:
    """A rejection ends the turn; with a message the model hears it and goes on."""
    served.world.configure(permission={"edit": "ask"})
    for said in ({"reply": "reject"}, {"reply": "reject", "message": "not that one"}):
        async with asking(served, "read a.txt\nwrite a.txt two\nsay after all") as (_, heard, turn):
            id = (await heard.asked(PermissionAsked)).id
            assert (await served.post(f"/permission/{id}/reply", said)).json is True
            reply = await turn
            if "message" in said:
                assert reply.json["info"]["finish"] == "stop"
            else:
                assert "rejected" in error_in(reply)
    assert served.world.read("a.txt") == "one\n"


async def test_permissions_that_nobody_asked_for(served: Served) -> None:
    """Unknown ones are not found, and what is no reply is refused."""
    session = await served.running.backend.engine.sessions.create("Given")
    for path in ("/permission/per_unknown/reply", f"/session/{session.id}/permissions/per_unknown"):
        said = {"reply": "once", "response": "once"}
        missing = await served.post(path, said)
        assert (missing.status, missing.json["_tag"]) == (404, "PermissionNotFoundError")
        for wrong in ({}, {"reply": "zzz", "response": "zzz"}):
            assert (await served.post(path, wrong)).status == 400
        bad = await served.post(path.replace("per_unknown", "bad"), said)
        assert (bad.status, bad.json["data"]["kind"]) == (400, "Params")
    other = await served.post("/session/ses_nope/permissions/per_unknown", {"response": "once"})
    assert other.status == 404


async def allow(served: Served, word: str, **said: Any) -> bool:  # noqa: ANN401 - as on the wire
    """Have a file written, and say `always` if somebody is asked; tells whether that was so."""
    async with asking(served, f"write {word}.txt {word}\nsay done") as (_, heard, turn):
        waiting = asyncio.create_task(heard.asked(PermissionAsked))
        await asyncio.wait({waiting, turn}, return_when=asyncio.FIRST_COMPLETED)
        was_asked = waiting.done()
        if was_asked:
            reply = {"reply": "always", **said}
            assert (await served.post(f"/permission/{waiting.result().id}/reply", reply)).json
        waiting.cancel()
        assert (await turn).json["info"]["finish"] == "stop"
    return was_asked


async def test_always_ends_with_the_server(world: World) -> None:
    """As the dialog of OpenCode's terminal UI says; unless it is said to last."""
    world.configure(permission={"edit": "ask"})
    async with serve(world) as served:
        assert await allow(served, "one")
        assert not await allow(served, "two")
        [rule] = (await served.get("/permission/allowed")).json
        assert (rule["permission"], rule["pattern"], rule["lasting"]) == ("edit", "*", False)
    async with serve(world) as served:
        assert (await served.get("/permission/allowed")).json == []
        assert await allow(served, "three", lasting=True)
    async with serve(world) as served:
        assert not await allow(served, "four")


async def test_what_is_allowed_can_be_taken_back(world: World) -> None:
    """One thing after the other; what is not there is not found."""
    world.configure(permission={"edit": "ask"})
    async with serve(world) as served:
        for lasting in (True, False):
            assert await allow(served, "one", lasting=lasting)
            [rule] = (await served.get("/permission/allowed")).json
            assert rule["lasting"] is lasting
            path = f"/permission/allowed/{rule['id']}"
            elsewhere = await served.delete(f"{path}?directory={world.root}")
            assert (elsewhere.status, elsewhere.json["name"]) == (404, "NotFoundError")
            assert (await served.delete(path)).json is True
            assert (await served.get("/permission/allowed")).json == []
            assert (await served.delete(path)).status == 404


async def test_a_question(served: Served) -> None:
    """It is listed while the turn waits; the model hears the answer."""
    async with asking(served, "ask Which colour? | Red | Blue\nshow") as (session, heard, turn):
        id = (await heard.asked(QuestionAsked)).id
        (listed,) = (await served.get("/question")).json
        assert (listed["id"], listed["sessionID"]) == (id, session.id)
        assert [option["label"] for option in listed["questions"][0]["options"]] == ["Red", "Blue"]
        path = f"/question/{id}/reply"
        for wrong in ({}, {"answers": "Red"}, {"answers": [["Red"], ["Blue"]]}):
            assert (await served.post(path, wrong)).status == 400
        reply = await served.post(path, {"answers": [["Red"]]})
        assert (reply.status, reply.json) == (200, True)
        assert (await served.get("/question")).json == []
        assert "Red" in (await turn).json["parts"][1]["text"]
        again = await served.post(path, {"answers": [["Blue"]]})
        assert (again.status, again.json["_tag"]) == (404, "QuestionNotFoundError")


async def test_a_question_that_is_rejected(served: Served) -> None:
    """The turn ends, and another rejection finds nothing."""
    async with asking(served, "ask Which colour? | Red | Blue\nsay done") as (_, heard, turn):
        path = f"/question/{(await heard.asked(QuestionAsked)).id}/reject"
        assert (await served.post(path)).json is True
        assert "dismissed" in error_in(await turn)
        assert (await served.post(path)).status == 404
    assert (await served.post("/question/bad/reject")).status == 400


async def test_an_abort_takes_back_what_was_asked(served: Served) -> None:
    """Nobody is asked for what nobody waits for."""
    served.world.configure(permission={"edit": "ask"})
    async with asking(served, "read a.txt\nwrite a.txt two") as (session, heard, turn):
        await heard.asked(PermissionAsked)
        assert (await served.post(f"/session/{session.id}/abort")).json is True
        assert (await served.get("/permission")).json == []
        assert (await turn).json["info"]["error"]["name"] == "MessageAbortedError"


async def test_sessions_outside_of_the_root_get_no_answers(world: World) -> None:
    """What such a session asks is neither shown nor answered."""
    (world.folder / "inside").mkdir()
    world.configure(permission={"edit": "ask"})
    async with world.at_work() as scene:
        turn = asyncio.create_task(scene.prompt("write new.txt made", None))
        id = (await scene.heard.asked(PermissionAsked)).id
        async with serve(world, root=str(world.folder / "inside")) as served:
            for route, body in (("reply", {"reply": "once"}), ("reply", {"reply": "reject"})):
                reply = await served.post(f"/permission/{id}/{route}", body)
                assert (reply.status, reply.json["name"]) == (403, "PathRefused")
            place = f"directory={world.folder / 'inside'}"
            assert (await served.get(f"/permission?{place}")).json == []
        await scene.engine.asks.reply_permission(id, "once")
        await turn
