"""A server that is killed in the middle of everything, and started again."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kedge.testing.replay import Replay
from tests.server.event_recorder import RecordedEvent, listening
from tests.server.process import killable as server
from tests.server.world import Client
from tests.support.servers import scratch
from tests.support.timeouts import PATIENCE

PROMPTS = (
    "slow 20000 20ms huge 20KB",
    "todo [x] begin | [~] go on\nwrite {name}.txt some text\nbash sleep 1000",
    "say Let me think.\nslow 20 20ms think Well, well, well.\nwait 1000s",
)
"""None of them is ever done."""
SESSIONS = 10
CLIENTS = 50


class Follower:
    """A client that knows what the events told it, and nothing else."""

    def __init__(self, cursor: str) -> None:
        self._cursor = cursor
        self._replay = Replay()
        self._at_work: Counter[str] = Counter()
        self._news = asyncio.Condition()
        self._hears = asyncio.Event()

    async def follow(self, client: Client, head: str | None = None) -> None:
        """Listen until the server is gone, or until everything up to a cursor was heard."""
        self._at_work.clear()
        async with listening(client, after=self._cursor) as recorder:
            while self._cursor != head and (event := await recorder.next()) is not None:
                self._hears.set()
                async with self._news:
                    self._cursor = event.cursor or self._cursor
                    self._replay.apply(json.dumps(event.event))
                    self._at_work.update(_at_work(event))
                    self._news.notify_all()
        self._hears.clear()

    async def until_it_hears(self) -> None:
        """Wait for the first event."""
        async with asyncio.timeout(PATIENCE):
            await self._hears.wait()

    async def until_at_work(self, sessions: list[str], most: int) -> None:
        """Wait until something is under way in every session, and much in one of them."""
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(
                lambda: (
                    all(self._at_work[each] for each in sessions)
                    and max(self._at_work.values()) >= most
                )
            )

    def known(self) -> dict[str, Any]:
        """What it knows, as the server would tell it."""
        return {
            id: {
                "info": each.info,
                "messages": [{"info": info, "parts": parts} for info, parts in each.messages],
                "todos": each.todos,
                "status": each.status,
            }
            for id, each in self._replay.state().sessions.items()
        }


def _at_work(event: RecordedEvent) -> list[str]:
    """The session that speaks or runs a command, if the event tells of that."""
    part = event.properties.get("part", {})
    runs = part.get("tool") == "bash" and part["state"]["status"] == "running"
    if event.type == "message.part.delta" or runs:
        return [event.properties["sessionID"]]
    return []


async def told(client: Client) -> dict[str, Any]:
    """What the server tells those who ask."""
    statuses = (await client.get("/session/status")).json
    found = {}
    for info in (await client.get("/session")).json:
        id = info["id"]
        found[id] = {
            "info": info,
            "messages": [
                _without_patches(each) for each in (await client.get(f"/session/{id}/message")).json
            ],
            "todos": (await client.get(f"/session/{id}/todo")).json,
            "status": statuses.get(id, {"type": "idle"}),
        }
    return found


def _without_patches(message: Any) -> Any:  # noqa: ANN401 - any JSON
    """A message as it is stored: what changed in files is added when somebody asks."""
    for diff in message["info"].get("summary", {}).get("diffs", []):
        diff.pop("patch", None)
    return message


async def newest(client: Client) -> str:
    """The cursor of what happened last."""
    async with listening(client) as recorder:
        greeting = await recorder.next()
        assert greeting is not None
        assert greeting.cursor is not None
        return greeting.cursor


def configure(environ: Mapping[str, str], **said: Any) -> None:  # noqa: ANN401 - any configuration
    """Write the person's own configuration."""
    path = Path(environ["XDG_CONFIG_HOME"], "opencode", "opencode.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(said))


async def ask_all(client: Client, sessions: list[str]) -> None:
    """Give every session something to do that lasts."""
    for number, session in enumerate(sessions):
        text = PROMPTS[number % len(PROMPTS)].replace("{name}", session)
        assert await ask(client, session, text, "prompt_async") == 204


async def ask(client: Client, session: str, text: str, route: str) -> int:
    """Send a prompt."""
    body = {"parts": [{"type": "text", "text": text}]}
    return (await client.post(f"/session/{session}/{route}", body)).status


async def check_news(client: Client, sessions: list[str]) -> None:
    """Whoever listens anew, without a cursor, hears how the turns ended that were cut off, because
    OpenCode's terminal UI never asks."""
    for target in ("/event", "/global/event"):
        news = Replay()
        waiting = set(sessions)
        async with listening(client, target) as recorder:
            await recorder.until("server.connected")
            while waiting and (event := await recorder.next()) is not None:
                news.apply(json.dumps(event.event))
                if event.type == "session.idle":
                    waiting.discard(event.properties["sessionID"])
        for state in news.state().sessions.values():
            *_, (answer, _) = state.messages
            assert answer["role"] == "assistant"
            assert answer["error"]["name"] == "MessageAbortedError"
            assert state.status == {"type": "idle"}


@pytest.mark.parametrize("kills", [1, pytest.param(12, marks=pytest.mark.torture)])
async def test_clients_go_on_after_a_kill(tmp_path: Path, kills: int) -> None:
    """Every client goes on with the last cursor that it has, and then knows exactly what the server
    tells those who ask."""
    (tmp_path / "work").mkdir()
    environ = scratch(tmp_path / "home")
    port, made, recorders = 0, list[str](), list[Follower]()
    for number in range(kills):
        with server(tmp_path, environ, port) as (process, client):
            if not made:
                port = int(client.url.rpartition(":")[2])
                start = (await newest(client)).partition("-")[0] + "-0"
                recorders = [Follower(start) for _ in range(CLIENTS)]
                made = [(await client.post("/session", {})).json["id"] for _ in range(SESSIONS)]
            following = [asyncio.create_task(recorder.follow(client)) for recorder in recorders]
            for recorder in recorders:
                await recorder.until_it_hears()
            await ask_all(client, made)
            await recorders[0].until_at_work(made, 10 * number)
            process.kill()
            await asyncio.gather(*following)
        with server(tmp_path, environ, port) as (_, client):
            await check_news(client, made)
            # Some go on at once, and all when more has happened.
            head = await newest(client)
            await asyncio.gather(*(recorder.follow(client, head) for recorder in recorders[::2]))
            assert await ask(client, made[0], "say I am back.", "message") == 200
            head = await newest(client)
            await asyncio.gather(*(recorder.follow(client, head) for recorder in recorders))
            truth = await told(client)
        assert truth.keys() == set(made)
        assert all(each["status"] == {"type": "idle"} for each in truth.values())
        for recorder in recorders:
            assert recorder.known() == truth


async def test_what_a_client_has_heard_survives_a_kill(tmp_path: Path) -> None:
    """All but the last 50 ms, by the server's own stamps: the ids of events tell when they were
    made."""
    (tmp_path / "work").mkdir()
    environ = scratch(tmp_path / "home")
    heard: list[tuple[int, str]] = []
    with server(tmp_path, environ, 0) as (process, client):
        session = (await client.post("/session", {})).json["id"]
        async with listening(client, "/event") as recorder:
            assert await ask(client, session, "slow 20000 5ms huge 20KB", "prompt_async") == 204
            while (event := await recorder.next()) is not None:
                if event.type == "message.part.delta":
                    heard.append((_made_at(event), event.properties["delta"]))
                if len(heard) == 60:
                    process.kill()
    # When the last piece was announced, nothing was unstored that was 50 ms older than the last but
    # one; its own stamp may come later. One more for the fractions of milliseconds.
    until = heard[-2][0] - 51
    old = "".join(text for made, text in heard if made <= until)
    with server(tmp_path, environ, 0) as (_, client):
        answer = await _closed_answer(client, session)
        (text,) = [part["text"] for part in answer["parts"] if part["type"] == "text"]
    assert len(old) > 0
    assert text.startswith(old)
    said = "".join(text for _, text in heard)
    assert text.startswith(said) or said.startswith(text)


async def _closed_answer(client: Client, session: str) -> Any:  # noqa: ANN401 - any JSON
    """The answer of a session that is recovered, perhaps while the server already answers."""
    async with asyncio.timeout(PATIENCE):
        while True:
            _, answer = (await client.get(f"/session/{session}/message")).json
            if "completed" in answer["info"]["time"]:
                return answer


def _made_at(event: RecordedEvent) -> int:
    """Milliseconds of the clock of the server; they wrap, but not within a test."""
    return int(event.event["id"][4:16], 16) // 4096


def idle_in(heard: list[RecordedEvent]) -> set[str]:
    """The sessions that are said to be idle."""
    return {each.properties["sessionID"] for each in heard if each.type == "session.idle"}


async def test_dialogs_of_a_killed_server_are_closed(tmp_path: Path) -> None:
    """Whoever listens anew, without a cursor, hears how everything ended that the sessions asked:
    what was open is rejected, and what was answered last may not have been heard of."""
    (tmp_path / "work").mkdir()
    environ = scratch(tmp_path / "home")
    configure(environ, permission={"edit": "ask"})
    with server(tmp_path, environ, 0) as (process, client):
        one, two = [(await client.post("/session", {})).json["id"] for _ in range(2)]
        async with listening(client) as recorder:
            assert await ask(client, one, "write a.txt A\nwrite b.txt B", "prompt_async") == 204
            first = (await recorder.until("permission.asked"))[-1].properties["id"]
            await client.post(f"/permission/{first}/reply", {"reply": "once"})
            second = (await recorder.until("permission.asked"))[-1].properties["id"]
            assert await ask(client, two, "ask Which? | Red | Blue", "prompt_async") == 204
            third = (await recorder.until("question.asked"))[-1].properties["id"]
        process.kill()
    with server(tmp_path, environ, 0) as (_, client):
        for target in ("/event", "/global/event"):
            heard: list[RecordedEvent] = []
            async with listening(client, target) as recorder:
                while not {one, two} <= idle_in(heard):
                    heard += await recorder.until("session.idle")
            ended = {
                each.properties["requestID"]: (each.type, each.properties.get("reply"))
                for each in heard
                if each.type.startswith(("permission.", "question."))
            }
            assert ended == {
                first: ("permission.replied", "once"),
                second: ("permission.replied", "reject"),
                third: ("question.rejected", None),
            }
        assert (await client.post(f"/permission/{second}/reply", {"reply": "once"})).status == 404
