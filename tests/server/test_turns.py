"""Prompts, commands and aborts over HTTP."""

import asyncio
import gzip
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kedge.domain.events import PartDelta, SessionErrored, SessionIdle, SessionStatusChanged
from kedge.domain.messages import AssistantMessage
from kedge.domain.sessions import Idle
from kedge.engine.session import Session
from tests.agent.world import Heard, World, listening
from tests.server.world import Reply, Served, serve
from tests.support.model_server import ModelServer, Request, Text, Wait, answer
from tests.support.model_server import Reply as ModelReply

OFFLINE = {"providerID": "kedge", "modelID": "offline"}
SHELL = {"agent": "build", "command": "true"}


def said(text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """A prompt."""
    return {"parts": [{"type": "text", "text": text}], **more}


def text_of(reply: Reply) -> str:
    """What an answer says."""
    assert reply.status == 200, reply
    return "".join(part["text"] for part in reply.json["parts"] if part["type"] == "text")


async def made(served: Served) -> Session:
    """A session with a title."""
    return await served.running.backend.engine.sessions.create("Given")


async def speaks(heard: Heard) -> None:
    """Wait for the first piece of an answer."""
    await heard.until(lambda event: isinstance(event, PartDelta))


async def test_a_prompt_is_answered(served: Served) -> None:
    """The answer comes when the turn is over, and everything is stored by then."""
    session = await made(served)
    reply = await served.post(
        f"/session/{session.id}/message", said("write new.txt hello\nsay done", unknown=1)
    )
    assert text_of(reply) == "done"
    info = reply.json["info"]
    assert (info["role"], info["finish"]) == ("assistant", "stop")
    assert served.world.read("new.txt") == "hello\n"
    assert isinstance(await session.status(), Idle)
    stored = (await session.messages()).messages
    assert stored[-1].info.id == info["id"]
    assert stored[0].info.id == info["parentID"]


async def test_an_answer_is_never_compressed(served: Served) -> None:
    """Nor is a long one, as clients are used to; other long answers are."""
    session = await made(served)
    gzipped = {"accept-encoding": "gzip"}
    path = f"/session/{session.id}/message"
    reply = await served.post(path, said("huge 4KB"), headers=gzipped)
    assert len(text_of(reply)) >= 4000
    assert "content-encoding" not in reply.headers
    asked = said("say x", noReply=True, system="long " * 1000)
    assert (await served.post(path, asked, headers=gzipped)).json["info"]["role"] == "user"
    shell = {"agent": "build", "command": "seq 1 1000"}
    reply = await served.post(f"/session/{session.id}/shell", shell, headers=gzipped)
    assert reply.headers["content-encoding"] == "gzip"
    assert b"999" in gzip.decompress(reply.body)


async def test_all_that_can_be_said_with_a_prompt(served: Served) -> None:
    """Ids, agent, model, tools, system, format and variant are the message's own."""
    session = await made(served)
    parts = [
        {"type": "text", "text": "say seen", "id": "prt_a", "metadata": {"by": "me"}},
        {"type": "file", "mime": "text/plain", "url": f"file://{served.world.folder}/a.txt"},
        {"type": "agent", "name": "plan", "source": {"value": "@plan", "start": 0, "end": 5}},
    ]
    body = {
        "parts": parts,
        "messageID": "msg_mine",
        "model": {"providerID": "kedge", "modelID": "offline"},
        "agent": "plan",
        "noReply": True,
        "tools": {"bash": False},
        "system": "Be brief.",
        "format": {"type": "text"},
    }
    reply = await served.post(f"/session/{session.id}/message", body)
    info = reply.json["info"]
    assert info.pop("time")
    assert info == {
        "id": "msg_mine",
        "sessionID": session.id,
        "role": "user",
        "agent": "plan",
        "model": {"providerID": "kedge", "modelID": "offline"},
        "tools": {"bash": False},
        "system": "Be brief.",
        "format": {"type": "text"},
    }
    found = reply.json["parts"]
    assert {part["messageID"] for part in found} == {"msg_mine"}
    (mine,) = [part for part in found if part["id"] == "prt_a"]
    assert (mine["text"], mine["metadata"]) == ("say seen", {"by": "me"})
    assert [part["name"] for part in found if part["type"] == "agent"] == ["plan"]
    assert any("one" in part["text"] for part in found if part.get("synthetic"))


async def test_a_prompt_without_waiting(served: Served) -> None:
    """It is stored when the answer comes, which says nothing."""
    session = await made(served)
    async with listening(served.running.backend.engine) as heard:
        reply = await served.post(
            f"/session/{session.id}/prompt_async", said("say later", messageID="msg_mine")
        )
        assert (reply.status, reply.body) == (204, b"")
        assert (await session.message("msg_mine")).info.id == "msg_mine"
        await heard.until(lambda event: isinstance(event, SessionIdle))
    (_, found) = (await session.messages()).messages
    assert isinstance(found.info, AssistantMessage)


REFUSED: list[Any] = [
    {},
    {"parts": "x"},
    {"parts": [{"type": "text"}]},
    {"parts": [{"type": "zzz"}]},
    {"parts": [{"type": "text", "text": 7}]},
    {"parts": [], "messageID": "bad"},
    {"parts": [{"type": "text", "text": "x", "id": "bad"}]},
    {"parts": [{"type": "text", "text": "x", "id": "prt_a"}] * 2},
    {"parts": [], "model": {"providerID": "kedge"}},
    {"parts": [], "agent": "nobody"},
    {"parts": [], "tools": {"bash": "no"}},
    {"parts": [], "format": {"type": "zzz"}},
    [],
    None,
]


async def test_a_prompt_that_is_none(served: Served) -> None:
    """Each is refused with what is wrong before anything is stored."""
    session = await made(served)
    for route in ("message", "prompt_async"):
        for body in REFUSED:
            reply = await served.post(f"/session/{session.id}/{route}", body)
            assert (reply.status, reply.json["name"]) == (400, "BadRequest"), body
            assert reply.json["data"]["message"]
    raw = await served.post(f"/session/{session.id}/message", raw=b"{bad")
    assert raw.status == 400
    wrong = await served.post(f"/session/{session.id}/message", said("x", messageID="bad"))
    assert wrong.json["data"] == {
        "message": 'Expected a string starting with "msg", got "bad"\n  at ["messageID"]',
        "kind": "Payload",
    }
    assert (await session.messages()).messages == []


@pytest.mark.parametrize(
    ("raw", "wrong"),
    [
        ('{"text": "hello"}', "parts: missing; expected an array"),
        ('{"prompt": "hello"}', "parts: missing; expected an array"),
        ('{"parts": "hello"}', "parts: expected an array; found 'hello'"),
        ('{"parts": ["hello"]}', "parts[0]: expected an object; found 'hello'"),
        ('"hello"', "expected an object; found 'hello'"),
        ("hello", "malformed JSON in line 1, column 1"),
        ("", "the body is missing; expected an object"),
    ],
)
async def test_the_shape_of_a_prompt_is_shown(served: Served, raw: str, wrong: str) -> None:
    """Whoever sends a text as it is sees what to send."""
    session = await made(served)
    reply = await served.post(f"/session/{session.id}/message", raw=raw.encode())
    shape = '{"parts": [{"type": "text", "text": "..."}]}'
    assert (reply.status, reply.json["data"]["message"]) == (400, f"{wrong}\n  send {shape}")


async def test_a_subtask_runs(served: Served) -> None:
    """In a session of its own; a prompt that wants no answer only stores it."""
    session = await made(served)
    task = {"type": "subtask", "prompt": "say hi", "description": "d", "agent": "general"}
    path = f"/session/{session.id}/message"
    kept = await served.post(path, {"parts": [task], "noReply": True})
    assert kept.json["parts"][0]["type"] == "subtask"
    assert (await served.get(f"/session/{session.id}/children")).json == []
    said = await served.post(path, {"parts": [task]})
    assert said.json["info"]["agent"] == "build"
    (child,) = (await served.get(f"/session/{session.id}/children")).json
    assert (child["title"], child["parentID"]) == ("d (@general subagent)", session.id)
    assert (await served.post(f"/experimental/session/{session.id}/background")).json is False
    unknown = await served.post(path, {"parts": [{**task, "agent": "nobody"}]})
    assert unknown.status == 400


async def test_a_subtask_is_sent_to_the_background(world: World) -> None:
    """Where the flag is set, which is told; the call that waited for it ends, and the session is
    told of its end like any prompt."""
    async with serve(world, variables={"OPENCODE_EXPERIMENTAL": "1"}) as served:
        capabilities = (await served.get("/experimental/capabilities")).json
        assert capabilities == {"backgroundSubagents": True}
        session = await made(served)
        path = f"/session/{session.id}/message"
        route = f"/experimental/session/{session.id}/background"
        assert (await served.post(route)).json is False
        assert (await served.post("/experimental/session/ses_no/background")).status == 404
        engine = served.running.backend.engine
        async with listening(engine) as heard:
            text = "task general <<A\nslow 2 300s say Half a word\nA\nsay I go on."
            asking = asyncio.create_task(served.post(path, said(text)))
            await speaks(heard)
            assert (await served.post(route)).json is True
            reply = await asking
            assert text_of(reply) == "I go on."
            (child,) = (await served.get(f"/session/{session.id}/children")).json
            assert list((await served.get("/session/status")).json) == [child["id"]]
            assert (await served.post(f"/session/{child['id']}/abort")).json is True
            await heard.caught_up()
            assert (await served.get("/session/status")).json == {}
        assert text_of(await served.post(path, said("say on"))) == "on"
        messages = (await served.get(path)).json
        told = [part for each in messages for part in each["parts"] if part.get("synthetic")]
        (text,) = [part["text"] for part in told]
        assert f"Background task stopped: {child['title'].partition(' (@')[0]}" in text


async def test_a_server_that_stops_sends_those_who_wait_away(world: World) -> None:
    """They get no answer that might be taken for the turn's; what they asked is there, and asked
    again of the next server it is answered with what became of it."""
    async with ModelServer([answer(Text.of("half "), Wait(), Text.of("whole"))]) as server:
        world.use(server)
        asked = said("go", messageID="msg_mine")
        async with serve(world) as served, listening(served.running.backend.engine) as heard:
            session = await made(served)
            path = f"/session/{session.id}/message"
            async with AsyncExitStack() as sockets:
                reader, writer = await sockets.enter_async_context(served.connected())
                writer.write(served.request("POST", path, asked))
                await speaks(heard)
                waiting = sockets.pop_all()
        assert not (await reader.read()).startswith(b"HTTP/1.1 2")
        await waiting.aclose()
        async with serve(world) as served:
            reply = await served.post(path, asked)
            assert reply.json["info"]["parentID"] == "msg_mine"
            assert reply.json["info"]["error"]["name"] == "MessageAbortedError"
    assert len(server.requests) == 1


async def test_sessions_that_are_not_there(served: Served) -> None:
    """They are not found, and cannot be spelled so; nothing runs in them either."""
    bodies = {"message": said("x"), "prompt_async": said("x"), "shell": SHELL}
    for route, body in bodies.items():
        missing = await served.post(f"/session/ses_nope/{route}", body)
        assert (missing.status, missing.json) == (
            404,
            {"name": "NotFoundError", "data": {"message": "Session not found: ses_nope"}},
        )
        assert (await served.post(f"/session/bad/{route}", body)).status == 400
    nothing = await served.post("/session/ses_nope/abort")
    assert (nothing.status, nothing.json) == (200, True)
    assert (await served.post("/session/bad/abort")).status == 400


async def test_what_cannot_be_asked_is_told_to_all(served: Served) -> None:
    """An unknown model or agent is the client's mistake, and those who listen hear of it."""
    session = await made(served)
    nowhere = {"providerID": "nobody", "modelID": "nothing"}
    async with listening(served.running.backend.engine) as heard:
        for body in (said("x", model=nowhere), said("x", agent="nobody")):
            reply = await served.post(f"/session/{session.id}/message", body)
            assert reply.status == 400
            assert "not found: no" in reply.json["data"]["message"]
        command = await served.post(f"/session/{session.id}/shell", {**SHELL, "agent": "nobody"})
        assert command.status == 400
        await heard.caught_up()
        assert len(heard.of(SessionErrored)) == 3
        assert isinstance(await session.status(), Idle)
    assert (
        text_of(await served.post(f"/session/{session.id}/message", said("say ok", model=OFFLINE)))
        == "ok"
    )


async def test_what_the_model_fails_at_is_in_the_answer(served: Served) -> None:
    """The request went well all the same."""
    session = await made(served)
    reply = await served.post(f"/session/{session.id}/message", said("fail auth"))
    assert reply.status == 200
    assert reply.json["info"]["error"]["data"]["message"]


async def test_a_client_that_goes_away_does_not_stop_the_turn(served: Served) -> None:
    """What it asked for is done and stored."""
    async with ModelServer([answer(Text.of("half "), Wait(), Text.of("whole"))]) as server:
        served.world.use(server)
        session = await made(served)
        async with listening(served.running.backend.engine) as heard:
            async with served.connected() as (_, writer):
                writer.write(served.request("POST", f"/session/{session.id}/message", said("go")))
                await server.reached()
            server.release()
            await heard.until(lambda event: isinstance(event, SessionIdle))
    newest = (await session.messages()).messages[-1]
    assert isinstance(newest.info, AssistantMessage)
    assert newest.info.finish == "stop"


async def test_prompts_while_the_session_is_busy(served: Served) -> None:
    """Each is stored at once and gets an answer of its own; a command has to wait for its turn."""
    script = [answer(Text.of("first "), Wait(), Text.of("answer")), answer(Text.of("second"))]
    async with ModelServer(script) as server:
        served.world.use(server)
        session = await made(served)
        path = f"/session/{session.id}/message"
        async with asyncio.TaskGroup() as asking:
            one = asking.create_task(served.post(path, said("one")))
            await server.reached()
            busy = await served.post(f"/session/{session.id}/shell", SHELL)
            queued = said("two", messageID="msg_two")
            later = await served.post(f"/session/{session.id}/prompt_async", queued)
            two = asking.create_task(served.post(path, queued))
            server.release()
    assert (busy.status, busy.json) == (
        409,
        {
            "_tag": "SessionBusyError",
            "sessionID": session.id,
            "message": f"Session is busy: {session.id}",
        },
    )
    assert later.status == 204
    assert (text_of(one.result()), text_of(two.result())) == ("first answer", "second")
    assert two.result().json["info"]["parentID"] == "msg_two"
    assert len(server.requests) == 2


async def test_a_prompt_that_is_sent_again_is_asked_once(served: Served) -> None:
    """A client that lost its socket gets the answer to what it asked, while it is given and
    afterwards; what nobody answered is answered then."""

    def script(request: Request) -> ModelReply:
        return answer(Text.of(f"to {request.prompt} "), Wait(), Text.of("whole"))

    async with ModelServer(script) as server:
        served.world.use(server)
        session = await made(served)
        path = f"/session/{session.id}/message"
        asked = said("one", messageID="msg_one")
        async with asyncio.TaskGroup() as asking:
            first = asking.create_task(served.post(path, asked))
            await server.reached()
            again = asking.create_task(served.post(path, asked))
            assert (await served.post(f"/session/{session.id}/prompt_async", asked)).status == 204
            server.release()
        assert text_of(first.result()) == "to one whole"
        assert again.result().json == first.result().json
        assert (await served.post(path, asked)).json == first.result().json
        assert len(server.requests) == 1
        kept = said("two", messageID="msg_two", noReply=True)
        stored = await served.post(path, kept)
        assert (await served.post(path, kept)).json == stored.json
        late = await served.post(path, {**kept, "noReply": False})
        assert text_of(late) == "to two whole"
        assert len((await session.messages()).messages) == 4


async def test_an_abort_ends_the_turn(served: Served) -> None:
    """It answers when the session is idle; whoever waits for the answer is told in it."""
    async with ModelServer([answer(Text.of("half"), Wait(), Text.of("whole"))]) as server:
        served.world.use(server)
        session = await made(served)
        async with listening(served.running.backend.engine) as heard:
            path = f"/session/{session.id}/message"
            waiting = asyncio.create_task(served.post(path, said("go")))
            await speaks(heard)
            ended = await served.post(f"/session/{session.id}/abort")
            assert (ended.status, ended.json) == (200, True)
            assert isinstance(await session.status(), Idle)
            reply = await waiting
            assert text_of(reply) == "half"
            assert reply.json["info"]["error"] == {
                "name": "MessageAbortedError",
                "data": {"message": "Aborted"},
            }


async def test_an_abort_of_an_idle_session_says_that_it_is_idle(served: Served) -> None:
    """Clients that missed it hear it."""
    session = await made(served)
    async with listening(served.running.backend.engine) as heard:
        assert (await served.post(f"/session/{session.id}/abort")).json is True
        await heard.until(lambda event: isinstance(event, SessionIdle))
        await heard.caught_up()
        assert [event.type for event in heard.events] == ["session.status", "session.idle"]
        (told,) = heard.of(SessionStatusChanged)
        assert isinstance(told.status, Idle)


async def test_a_persons_own_command(served: Served) -> None:
    """It is recorded as a call of bash, and what it does to files as the session's."""
    session = await made(served)
    path = f"/session/{session.id}/shell"
    body = {**SHELL, "command": "echo out; echo made > made.txt", "messageID": "msg_mine"}
    reply = await served.post(path, body)
    (call,) = [part for part in reply.json["parts"] if part["type"] == "tool"]
    assert (call["tool"], call["state"]["output"]) == ("bash", "out\n")
    assert reply.json["info"]["parentID"] == "msg_mine"
    assert [diff.file for diff in await session.diff()] == ["made.txt"]
    for wrong in ({"command": "true"}, {"agent": "build"}, {**SHELL, "messageID": "bad"}):
        assert (await served.post(path, wrong)).status == 400
