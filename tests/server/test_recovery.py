"""A server that always starts, and says what became of everything that it was asked."""

import asyncio
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import kedge
from kedge.domain.child_processes import Process
from kedge.domain.events import EventProperties
from kedge.domain.messages import AssistantMessage
from kedge.engine.processes import end_processes
from kedge.server import ServerSettings, serving
from kedge.server.sse.hub import events_of_recovery
from tests.server.event_recorder import listening
from tests.server.process import killable
from tests.server.world import Client
from tests.support.servers import scratch
from tests.support.timeouts import PATIENCE

Messages = list[dict[str, Any]]


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    """Of a server whose folder is there."""
    (tmp_path / "work").mkdir()
    return scratch(tmp_path / "home")


async def ask(client: Client, session: str, text: str, id: str | None = None) -> None:
    """Send a prompt, which is acknowledged."""
    body = {"parts": [{"type": "text", "text": text}], **({"messageID": id} if id else {})}
    assert (await client.post(f"/session/{session}/prompt_async", body)).status == 204


async def ask_in_vain(client: Client, session: str, text: str) -> None:
    """Send a prompt that ends the server."""
    request = client.request(
        "POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]}
    )
    async with client.connected() as (reader, writer):
        writer.write(request)
        assert await reader.read() == b""


async def made(client: Client, directory: Path | None = None) -> str:
    """A new session."""
    where = "" if directory is None else f"?directory={directory}"
    return str((await client.post(f"/session{where}", {})).json["id"])


async def messages(client: Client, session: str) -> Messages:
    """The whole conversation."""
    found: Messages = (await client.get(f"/session/{session}/message")).json
    return found


async def settled(client: Client, session: str) -> Messages:
    """The conversation when every prompt in it has an answer that is over."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await messages(client, session)
            infos = [each["info"] for each in found]
            asked = {info["id"] for info in infos if info["role"] == "user"}
            last = {info["parentID"]: info for info in infos if info["role"] == "assistant"}
            if asked == last.keys() and all(map(_is_over, last.values())):
                return found
            await asyncio.sleep(0.05)


def _is_over(info: Mapping[str, Any]) -> bool:
    return "completed" in info["time"] and ("error" in info or info.get("finish") == "stop")


async def until(path: Path) -> str:
    """What a command has written, when it has."""
    async with asyncio.timeout(PATIENCE):
        while not (text := _text(path)).endswith("\n"):  # noqa: ASYNC110 - another writes it
            await asyncio.sleep(0.02)
    return text


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def error_of(message: Mapping[str, Any]) -> str:
    """What an answer says that went wrong; empty if nothing did."""
    return str(message["info"].get("error", {}).get("data", {}).get("message", ""))


def without_summaries(messages: Messages) -> Messages:
    """Without what is said of a prompt's changes: that may come a moment after its end."""
    told = [
        {**each["info"], "summary": None} if each["info"]["role"] == "user" else each["info"]
        for each in messages
    ]
    return [{**each, "info": info} for each, info in zip(messages, told, strict=True)]


def prompts(messages: Messages) -> list[str]:
    """The ids of what was asked, oldest first."""
    return [each["info"]["id"] for each in messages if each["info"]["role"] == "user"]


def answers_to(messages: Messages, id: str) -> Messages:
    """The answers to a prompt."""
    return [each for each in messages if each["info"].get("parentID") == id]


@pytest.mark.parametrize("gone", ["folder", "store", "both"])
async def test_a_session_without_its_folder_keeps_nobody_waiting(
    tmp_path: Path, environ: Mapping[str, str], gone: str
) -> None:
    """Two sessions ran a command where now nothing is: the server starts, and both are closed."""
    lost = tmp_path / "lost"
    lost.mkdir()
    with killable(tmp_path, environ) as (process, client):
        sessions = [await made(client, lost), await made(client, lost), await made(client)]
        for number, session in enumerate(sessions):
            await ask(client, session, f"bash echo $$ > {number}; sleep 1000")
        places = [lost / "0", lost / "1", tmp_path / "work" / "2"]
        pids = [int(await until(place)) for place in places]
        process.kill()
    if gone in ("folder", "both"):
        shutil.rmtree(lost)
    if gone in ("store", "both"):
        shutil.rmtree(tmp_path / "data" / "snapshots")
    with killable(tmp_path, environ) as (_, client):
        for session in sessions:
            *_, answer = await settled(client, session)
            assert "process that ran this session ended" in error_of(answer)
        assert (await client.get("/session/status")).json == {}
        assert not any(map(_lives, pids))
        await ask(client, sessions[2], "say I am back.")
        assert (await settled(client, sessions[2]))[-1]["parts"][1]["text"] == "I am back."


async def test_a_prompt_that_was_acknowledged_is_run_once(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    """It waited behind a turn that was cut off: that is not run again, but the prompt is, once, and
    whoever repeats it gets its own answer."""
    log = tmp_path / "work" / "log"
    id = "msg_000000000001AAAAAAAAAAAAAA"
    with killable(tmp_path, environ) as (process, client):
        session = await made(client)
        await ask(client, session, "bash echo first >> log; echo up > up; sleep 1000")
        await until(tmp_path / "work" / "up")
        await ask(client, session, "bash echo second >> log", id)
        process.kill()
    with killable(tmp_path, environ) as (process, client):
        found = await settled(client, session)
        first, second = prompts(found)
        assert second == id
        assert "process that ran this session ended" in error_of(answers_to(found, first)[-1])
        assert not any(error_of(each) for each in answers_to(found, second))
        assert log.read_text() == "first\nsecond\n"
        await ask(client, session, "say Something else.")
        await settled(client, session)
        body = {"parts": [{"type": "text", "text": "whatever"}], "messageID": id}
        repeated = (await client.post(f"/session/{session}/message", body)).json
        assert repeated == answers_to(found, second)[-1]
        process.kill()
    with killable(tmp_path, environ) as (_, client):
        later = (await settled(client, session))[: len(found)]
        assert without_summaries(later) == without_summaries(found)
    assert log.read_text() == "first\nsecond\n"


async def test_a_prompt_that_ends_the_server_is_not_run_for_ever(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    """The attempt is stored before it is made: the third server does not try."""
    deadly = {**environ, "KEDGE_FAILPOINT": "turn-begun"}
    with killable(tmp_path, deadly) as (process, client):
        session = await made(client)
        await ask_in_vain(client, session, "say Hello.")
        assert process.wait(PATIENCE) == -signal.SIGKILL
    with killable(tmp_path, deadly) as (process, _):
        assert process.wait(PATIENCE) == -signal.SIGKILL
    with killable(tmp_path, environ) as (process, client):
        _, answer = await settled(client, session)
        assert error_of(answer).startswith("Not run: ")
        await ask(client, session, "say Hello again.")
        *_, answer = await settled(client, session)
        assert not error_of(answer)
        process.terminate()
        assert process.wait(PATIENCE) == 0


async def test_what_is_asked_since_is_run_alone(tmp_path: Path, environ: Mapping[str, str]) -> None:
    """A prompt that was overtaken while no server was there to run it says so."""
    log = tmp_path / "work" / "log"
    deadly = {**environ, "KEDGE_FAILPOINT": "turn-begun"}
    with killable(tmp_path, deadly) as (process, client):
        session = await made(client)
        await ask_in_vain(client, session, "bash echo first >> log")
        assert process.wait(PATIENCE) == -signal.SIGKILL
    async with kedge.open(tmp_path / "work", data_dir=tmp_path / "data") as engine:
        handle = await engine.sessions.get(session)
        assert len((await handle.messages()).messages) == 1, "opening the library runs nothing"
        async with handle.turn("Another") as turn, turn.step() as step:
            await step.text("Yes.")
    with killable(tmp_path, environ) as (_, client):
        found = await settled(client, session)
        first, second = prompts(found)
        (told,) = answers_to(found, first)
        assert error_of(told).startswith("Not run: ")
        assert not error_of(answers_to(found, second)[-1])
    assert not log.exists()


async def test_a_turn_that_is_cut_between_two_steps_says_so(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    """Not only one that was in the middle of a word or a command."""
    with killable(tmp_path, {**environ, "KEDGE_FAILPOINT": "step-ended"}) as (process, client):
        session = await made(client)
        await ask(client, session, "bash echo done > done\nsay Never.")
        assert process.wait(PATIENCE) == -signal.SIGKILL
    with killable(tmp_path, environ) as (_, client):
        *_, answer = await settled(client, session)
        assert answer["info"]["finish"] == "tool-calls"
        assert "process that ran this session ended" in error_of(answer)


async def test_recovery_keeps_only_its_own_session_waiting(
    tmp_path: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a command is being ended that does not want to end, others are answered; a prompt of
    its session is answered when it is over."""
    with killable(tmp_path, environ) as (process, client):
        stubborn, other = await made(client), await made(client)
        await ask(client, stubborn, "bash echo $$ > pid; sleep 1000")
        pid = int(await until(tmp_path / "work" / "pid"))
        process.kill()
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def end_late(left: Sequence[Process]) -> bool:
        begun.set()
        await goes_on.wait()
        return await end_processes(left)

    monkeypatch.setattr("kedge.engine.runs.end_processes", end_late)
    async with serving(
        tmp_path / "work",
        settings=ServerSettings(port=0),
        data_dir=tmp_path / "data",
        environ=environ,
    ) as running:
        client = Client(running.url, {})
        await begun.wait()
        await ask(client, other, "say Hello.")
        assert not error_of((await settled(client, other))[-1])
        asked = asyncio.create_task(ask(client, stubborn, "say Here I am."))
        statuses = (await client.get("/session/status")).json
        assert statuses[stubborn] == {"type": "busy"}
        assert not asked.done()
        goes_on.set()
        await asked
        assert not error_of((await settled(client, stubborn))[-1])
        assert not _lives(pid)


async def test_a_session_that_is_deleted_first_leaves_no_process(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    """Nobody may have come to it before: its command ends all the same, and what waited there is
    not run when it is restored."""
    with killable(tmp_path, environ) as (process, client):
        sessions = [await made(client) for _ in range(20)]
        for number, session in enumerate(sessions):
            await ask(client, session, f"bash trap '' TERM; echo $$ > {number}; sleep 1000")
            await ask(client, session, "bash echo ran >> log")
        pids = [int(await until(tmp_path / "work" / f"{number}")) for number in range(20)]
        process.kill()
    with killable(tmp_path, environ) as (process, client):
        deleted = await asyncio.gather(
            *(client.ask("DELETE", f"/session/{session}") for session in sessions)
        )
        assert {each.status for each in deleted} == {200}
        assert not any(map(_lives, pids))
        process.terminate()
        assert process.wait(PATIENCE) == 0
    async with kedge.open(tmp_path / "work", data_dir=tmp_path / "data") as engine:
        for session in sessions:
            handle = await engine.sessions.restore(session)
            last = (await handle.messages()).messages[-1].info
            assert isinstance(last, AssistantMessage)
            assert last.error is not None
    assert not (tmp_path / "work" / "log").exists()


async def test_who_comes_back_hears_of_the_turn_that_was_cut_off(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    """Also if a prompt waited behind it, which is answered by now."""
    with killable(tmp_path, environ) as (process, client):
        session = await made(client)
        await ask(client, session, "bash echo up > up; sleep 1000")
        await until(tmp_path / "work" / "up")
        await ask(client, session, "say Second.")
        process.kill()
    with killable(tmp_path, environ) as (_, client):
        found = await settled(client, session)
        cut = answers_to(found, prompts(found)[0])[-1]
        async with listening(client) as recorder:
            heard = await recorder.until("session.idle")
        told = [each.properties for each in heard if each.type == "message.updated"]
        assert cut["info"] in [each["info"] for each in told]
        parts = [each.properties for each in heard if each.type == "message.part.updated"]
        assert {part["id"] for part in cut["parts"]} <= {each["part"]["id"] for each in parts}


async def test_idle_is_told_only_with_everything_that_came_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that ends while a listener is told about it is told as busy: the events of its end
    follow. Idle without the answers would be the last word on a dialog that is still open."""
    async with kedge.open(tmp_path) as engine:
        session = await engine.sessions.create()
        over = asyncio.Event()

        async def ask_in_a_turn() -> None:
            async with session.turn("Work") as turn:
                asking = asyncio.ensure_future(engine.asks.permission(turn, "bash", ["ls"]))
                await over.wait()
            await asyncio.gather(asking, return_exceptions=True)

        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            run = group.create_task(ask_in_a_turn())
            async with engine.events.subscribe(after=engine.events.start) as events:
                async for event in events:
                    if event.type == "permission.asked":
                        break
            read_ends = engine.asks.ends

            async def read_ends_just_before_the_end(session_id: str) -> list[EventProperties]:
                ends = await read_ends(session_id)
                over.set()
                await asyncio.wait({run})
                return ends

            monkeypatch.setattr(engine.asks, "ends", read_ends_just_before_the_end)
            types = [each.type for each in await events_of_recovery(engine, session.id)]
            assert "permission.replied" not in types
            assert "session.idle" not in types
        monkeypatch.undo()
        later = [each.type for each in await events_of_recovery(engine, session.id)]
        assert later[-3:] == ["permission.replied", "session.status", "session.idle"]


def _lives(pid: int) -> bool:
    """Whether a process still runs, and is not only waiting to be forgotten."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
