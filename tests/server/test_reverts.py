"""Reverts over HTTP: the session, with a receipt beside it."""

import asyncio
from typing import Any

from kedge.domain.events import PartDelta, PartUpdated, SessionUpdated
from kedge.domain.parts import ToolPart
from kedge.engine.session import Session
from tests.agent.world import listening
from tests.server.world import Reply, Served
from tests.support.model_server import ModelServer, Text, Wait, answer


async def made(served: Served) -> Session:
    """A session with a title."""
    return await served.running.backend.engine.sessions.create("Given")


async def asked(served: Served, session: Session, text: str) -> str:
    """A prompt that is answered; gives its id."""
    body = {"parts": [{"type": "text", "text": text}]}
    reply = await served.post(f"/session/{session.id}/message", body)
    assert reply.status == 200, reply
    return str(reply.json["info"]["parentID"])


def outcomes(reply: Reply) -> dict[str, str]:
    """What the receipt of an answer says of each path."""
    assert reply.status == 200, reply
    return {entry["path"]: entry["outcome"] for entry in reply.json["receipt"]["files"]}


async def test_there_and_back(served: Served) -> None:
    """A revert takes the files back and an unrevert puts them there again; both say what they
    did."""
    session = await made(served)
    await asked(served, session, "read a.txt\nwrite a.txt two")
    second = await asked(served, session, "read a.txt\nwrite a.txt three\nwrite new.txt made")
    reply = await served.post(f"/session/{session.id}/revert", {"messageID": second})
    assert outcomes(reply) == {"a.txt": "restored", "new.txt": "deleted"}
    assert reply.json["receipt"]["applied"] is True
    assert reply.json["revert"]["messageID"] == second
    assert "-three" in reply.json["revert"]["diff"]
    assert reply.json["id"] == session.id
    assert served.world.read("a.txt") == "two\n"
    assert not (served.world.folder / "new.txt").exists()
    back = await served.post(f"/session/{session.id}/unrevert")
    assert outcomes(back) == {"a.txt": "restored", "new.txt": "recreated"}
    assert "revert" not in back.json
    assert served.world.read("a.txt") == "three\n"
    nothing = await served.post(f"/session/{session.id}/unrevert")
    assert (outcomes(nothing), nothing.json["receipt"]["applied"]) == ({}, False)


async def test_listeners_are_told_what_a_revert_did(served: Served) -> None:
    """An event that is not stored has the diff, or as many whole files of it as there is room
    for."""
    session = await made(served)
    first = await asked(served, session, "write big.txt <<END\n" + "x\n" * 40_000 + "END")
    second = await asked(served, session, "read a.txt\nwrite a.txt two")
    for id, files in ((second, ["a.txt"]), (first, ["a.txt"])):
        async with listening(served.running.backend.engine) as heard:
            reply = await served.post(f"/session/{session.id}/revert", {"messageID": id})
            await heard.caught_up()
        told = heard.events[-1]
        assert isinstance(told.properties, SessionUpdated)
        assert told.cursor is None
        state = told.properties.info.revert
        assert state is not None
        assert state.messageID == id
        assert state.diff is not None
        named = [line for line in state.diff.splitlines() if line.startswith("+++ ")]
        assert named == [f"+++ b/{file}" for file in files]
        assert reply.json["revert"]["diff"].startswith(state.diff)
    assert "big.txt" in reply.json["revert"]["diff"]
    stored = (await session.refresh()).info.revert
    assert stored is not None
    assert stored.diff is None


async def test_a_dry_run_changes_nothing(served: Served) -> None:
    """The receipt is the same, the session and the files are as before, and nobody hears of it."""
    session = await made(served)
    first = await asked(served, session, "read a.txt\nwrite a.txt two")
    path = f"/session/{session.id}/revert"
    before = (await session.refresh()).info
    async with listening(served.running.backend.engine) as heard:
        dry = await served.post(path, {"messageID": first, "dryRun": True})
        await heard.caught_up()
        assert heard.events == []
    assert (await session.refresh()).info == before
    assert served.world.read("a.txt") == "two\n"
    wet = await served.post(path, {"messageID": first})
    assert outcomes(dry) == outcomes(wet) == {"a.txt": "restored"}
    assert dry.json["receipt"] == {**wet.json["receipt"], "applied": False}
    assert "revert" not in dry.json


async def test_how_a_revert_is_done(served: Served) -> None:
    """Strategy, files and scope are asked for in the body."""
    session = await made(served)
    id = await asked(served, session, "read a.txt\nwrite a.txt two\nwrite new.txt made")
    path = f"/session/{session.id}/revert"
    served.world.put("a.txt", "mine\n")
    careful = await served.post(path, {"messageID": id, "strategy": "abort"})
    assert careful.json["receipt"]["applied"] is False
    assert outcomes(careful)["a.txt"] == "conflict"
    one = await served.post(path, {"messageID": id, "files": ["new.txt"], "scope": "files"})
    assert outcomes(one) == {"a.txt": "skipped", "new.txt": "deleted"}
    assert "revert" not in one.json
    forced = await served.post(path, {"messageID": id, "strategy": "overwrite"})
    assert outcomes(forced)["a.txt"] == "restored"
    assert served.world.read("a.txt") == "one\n"


async def test_what_cannot_be_reverted(served: Served) -> None:
    """What is not there changes nothing; what is not understood is refused."""
    session = await made(served)
    id = await asked(served, session, "read a.txt\nwrite a.txt two")
    path = f"/session/{session.id}/revert"
    for unknown in ({"messageID": "msg_unknown"}, {"messageID": id, "partID": "prt_unknown"}):
        reply = await served.post(path, unknown)
        assert outcomes(reply) == {}
        assert "revert" not in reply.json
    refused: list[Any] = [
        {},
        None,
        {"messageID": "bad"},
        {"messageID": id, "partID": "bad"},
        {"messageID": id, "strategy": "hope"},
        {"messageID": id, "scope": "most"},
        {"messageID": id, "files": "a.txt"},
        {"messageID": id, "files": ["../outside"]},
        {"messageID": id, "files": ["a\0"]},
        {"messageID": id, "dryRun": "yes"},
    ]
    for body in refused:
        reply = await served.post(path, body)
        assert reply.status in (400, 403), body
        assert reply.json["data"]["message"]
    assert served.world.read("a.txt") == "two\n"
    assert (await served.post("/session/ses_nope/revert", {"messageID": id})).status == 404
    assert (await served.post("/session/ses_nope/unrevert")).status == 404


async def test_a_busy_session(served: Served) -> None:
    """It cannot be reverted; once it was asked to stop, a revert waits for that."""
    async with ModelServer([answer(Text.of("half"), Wait(), Text.of("whole"))]) as server:
        served.world.use(server)
        session = await made(served)
        base = f"/session/{session.id}"
        async with listening(served.running.backend.engine) as heard:
            body = {"parts": [{"type": "text", "text": "go"}], "messageID": "msg_mine"}
            await served.post(f"{base}/prompt_async", body)
            await heard.until(lambda event: isinstance(event, PartDelta))
            busy = await served.post(f"{base}/revert", {"messageID": "msg_mine"})
            assert (busy.status, busy.json["_tag"]) == (409, "SessionBusyError")
            nowhere = await served.post(f"{base}/revert", {"messageID": "msg_nowhere"})
            assert nowhere.json == busy.json
            assert (await served.post(f"{base}/unrevert")).json == busy.json
            abort = asyncio.create_task(served.post(f"{base}/abort"))
            await heard.until(lambda event: event.type == "kedge.request")
            reverted = await served.post(f"{base}/revert", {"messageID": "msg_mine"})
            assert reverted.json["revert"]["messageID"] == "msg_mine"
            assert (await abort).json is True


async def parts_of(served: Served, session: Session) -> list[dict[str, Any]]:
    """The tool calls of a session."""
    reply = await served.get(f"/session/{session.id}/message")
    found = [part for message in reply.json for part in message["parts"]]
    return [part for part in found if part["type"] == "tool"]


async def test_one_call_there_and_back(served: Served) -> None:
    """The part says so, with an event, and nothing of it is there after a redo."""
    session = await made(served)
    await asked(served, session, "write one.txt 1")
    await asked(served, session, "write two.txt 2")
    first, second = await parts_of(served, session)
    url = f"/session/{session.id}"
    foretold = await served.post(f"{url}/undo", {"parts": [first["id"]], "dryRun": True})
    assert (outcomes(foretold), foretold.json["receipt"]["applied"]) == (
        {"one.txt": "deleted"},
        False,
    )
    engine = served.running.backend.engine
    async with listening(engine) as heard:
        reply = await served.post(f"{url}/undo", {"parts": [first["id"]]})
        await heard.until(lambda event: isinstance(event, PartUpdated))
    assert outcomes(reply) == {"one.txt": "deleted"}
    assert reply.json["id"] == session.id
    (told,) = (
        each.properties.part for each in heard.events if isinstance(each.properties, PartUpdated)
    )
    assert isinstance(told, ToolPart)
    assert told.undone is not None
    assert told.undone.files == 1
    assert served.world.read("two.txt") == "2\n"
    now, same = await parts_of(served, session)
    assert now.pop("undone").keys() == {"time", "files"}
    assert (now, same) == (first, second)
    again = await served.post(f"{url}/undo", {"calls": [first["callID"]], "parts": [second["id"]]})
    assert outcomes(again) == {"two.txt": "deleted"}
    back = await served.post(f"{url}/redo", {"files": ["one.txt", "two.txt"]})
    assert outcomes(back) == {"one.txt": "recreated", "two.txt": "recreated"}
    assert await parts_of(served, session) == [first, second]


async def test_undos_that_are_refused(served: Served) -> None:
    """What is not there is named, and what makes no sense is explained."""
    session = await made(served)
    await asked(served, session, "write one.txt 1")
    senseless: list[dict[str, Any]] = [
        {},
        {"parts": []},
        {"parts": ["x"]},
        {"files": "x"},
        {"strategy": "x"},
    ]
    for route in ("undo", "redo"):
        url = f"/session/{session.id}/{route}"
        for field, id in (("calls", "call_x"), ("parts", "prt_x"), ("messages", "msg_x")):
            reply = await served.post(url, {field: [id]})
            assert (reply.status, id in reply.json["data"]["message"]) == (404, True)
        for body in senseless:
            assert (await served.post(url, body)).status == 400
    reply = await served.post(f"/session/{session.id}/redo", {"files": ["one.txt"]})
    assert (outcomes(reply), reply.json["receipt"]["notes"]) == ({}, ["it is not undone"])
