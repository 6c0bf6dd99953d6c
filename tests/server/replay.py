"""Recordings of OpenCode's server, played again: the same requests in the same order."""

import asyncio
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import ndiff
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from tests.server.event_recorder import listening
from tests.server.replay_events import Account
from tests.server.replay_names import Names
from tests.server.replay_recorder import StreamRecorder
from tests.server.replay_recordings import Act, Recording, Step
from tests.server.world import Client, Reply

_USUAL = {"content-type": "application/json", "vary": "Origin"}
_HEADERS = {
    *("content-encoding", "content-type", "link", "vary", "www-authenticate", "x-next-cursor"),
}
"""The headers that matter to clients, beside those of CORS."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a recording is read: what is expected where this was recorded."""

    exchange: Callable[[Step], Step]
    events: Callable[[Act], list[str]]
    seen: Callable[[list[str]], list[str]]
    """How what is seen is put in order before it is compared."""


class Model(Protocol):
    """The model that the server asks."""

    prompt: str
    """How the newest prompt begins."""

    def go_on(self) -> None:
        """Let it say the rest."""


@dataclass(kw_only=True)
class Player:
    """Plays recordings on a server that runs."""

    client: Client
    folder: Path
    names: Names
    streams: StreamRecorder | None
    """None where nothing is to be heard without a password."""
    model: Model
    reading: Reading
    _known: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _waiting: asyncio.Task[None] | None = None
    _complaints: list[str] = field(default_factory=list)

    async def play(self, recording: Recording) -> list[str]:
        """Where the server differs from what is expected."""
        self._complaints = []
        await self._arrange(recording.before)
        for act in recording.acts:
            await self._act(act)
        await self._arrange(recording.instead)
        if self.streams is not None:
            self._complaints += self.streams.contradictions(str(self.folder))
        return self._complaints

    async def _arrange(self, steps: Sequence[Step]) -> None:
        for step in steps:
            answer = await self._ask(step)
            assert answer.status == 200, (step, answer)
            for path, name in step.get("bind", {}).items():
                value = answer.json
                for key in path.split("."):
                    value = value[int(key) if key.isdigit() else key]
                self.names.bind(name, value)
        if steps:
            await self._heard(Account(str(self.folder), self._known))

    async def _act(self, act: Act) -> None:
        account = Account(str(self.folder), self._known)
        steps = [self.reading.exchange(step) for step in act.do]
        for step in steps:
            kind = next(iter(step))
            await getattr(self, f"_do_{kind}")(step)
        if self.streams is None or self.streams.ended or all(_only_asks(step) for step in steps):
            return
        for step in steps:
            await self._until_idle(str(step.get("drop", step).get("ask", "")))
        await self._heard(account)
        where = steps[0].get("ask", steps[0])
        heard = account.kinds() if act.only_kinds else account.lines(self.names.name_of)
        self._compare_lines(where, self.reading.events(act), self.reading.seen(heard))

    async def _heard(self, account: Account) -> None:
        if self.streams is None:
            return
        await self._mark()
        for event in self.streams.take():
            account.hear(event)

    async def _until_idle(self, asked: str) -> None:
        """Wait for the end of whatever runs in the session that was asked."""
        found = re.match(r"POST /session/(\{S\d+\})", asked)
        if found is None:
            return
        session = self.names.filled(found[1])
        while session in (await self.client.get("/session/status")).json:
            pass

    async def _mark(self) -> None:
        """Make a session and delete it: when that was heard, everything before it was."""
        assert self.streams is not None
        id = (await self.client.post("/session")).json["id"]
        await self.client.delete(f"/session/{id}")
        await self.streams.until_marked(id)

    async def _do_ask(self, step: Step) -> None:
        if step["ask"].startswith("POST "):
            _next_millisecond()
        if step.get("begin"):
            self._waiting = asyncio.create_task(self._answered(step))
        else:
            await self._answered(step)

    async def _do_answered(self, _: Step) -> None:
        assert self._waiting is not None
        await self._waiting

    async def _do_drop(self, step: Step) -> None:
        asked = asyncio.create_task(self._ask(step["drop"]))
        await self._do_until({"until": step["when"]})
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked

    async def _do_until(self, step: Step) -> None:
        assert self.streams is not None
        kind, _, word = step["until"].partition(" ")
        await self.streams.until(kind, word, step.get("times", 1))

    async def _do_release(self, _: Step) -> None:
        self.model.go_on()

    async def _do_idle(self, step: Step) -> None:
        await self._until_idle(f"POST /session/{step['idle']}")

    async def _do_files(self, step: Step) -> None:
        found = {path.name: path.read_text() for path in sorted(self.folder.glob("*.txt"))}
        self._compare("files", step["files"], found)

    async def _do_stream(self, step: Step) -> None:
        where = step["stream"]
        async with listening(self.client, where) as stream:
            told = {name: stream.headers.get(name) for name in step["told"]}
            self._compare(where, [step["status"], step["told"]], [stream.status, told])
            first = await stream.next()
            assert first is not None
            self._compare(where, step["first"], first.data)

    async def _do_ends(self, _: Step) -> None:
        assert self.streams is not None
        await self.streams.until_ended()

    async def _answered(self, step: Step) -> None:
        answer = await self._ask(step)
        where = step["ask"]
        told = step.get("told", {**_USUAL, **step.get("also", {})})
        self._compare(f"{where}: status", step["status"], answer.status)
        self._compare(f"{where}: header", told, _mattering(answer.headers))
        wanted, seen = step.get("answer"), _value(answer)
        if "unordered" in step:
            key = itemgetter(step["unordered"])
            wanted, seen = sorted(step["answer"], key=key), sorted(seen, key=key)
        self._compare(where, wanted, seen)

    async def _ask(self, step: Step) -> Reply:
        method, _, path = self.names.filled(step["ask"]).partition(" ")
        headers = self.names.filled(step.get("headers", {}))
        body = self.names.filled(step.get("send"))
        if isinstance(body, dict) and (texts := _texts(body)):
            self.model.prompt = texts[0]
        if isinstance(body, str):
            return await self.client.ask(method, path, raw=body.encode(), headers=headers)
        return await self.client.ask(method, path, body, headers=headers)

    def _compare(self, where: str, wanted: Any, seen: Any) -> None:  # noqa: ANN401 - JSON
        self._complaints += (f"{where}: {each}" for each in self.names.complaints(wanted, seen))

    def _compare_lines(self, where: str, wanted: list[str], seen: list[str]) -> None:
        if wanted != seen:
            self._complaints.append(f"{where}: the events are not as expected")
            self._complaints += _difference(wanted, seen)


def _value(answer: Reply) -> Any:  # noqa: ANN401 - JSON
    """The body as JSON, else as text; None if there is none."""
    body = answer.body
    if answer.headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    if answer.headers.get("content-type") == "application/json" and body:
        return json.loads(body)
    return body.decode() or None


def _texts(prompt: Mapping[str, Any]) -> list[str]:
    parts = prompt.get("parts")
    return [part["text"] for part in parts if "text" in part] if isinstance(parts, list) else []


def _only_asks(step: Step) -> bool:
    return str(step.get("ask", "")).startswith(("GET ", "HEAD ", "OPTIONS "))


def _mattering(headers: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in headers.items()
        if name in _HEADERS or name.startswith("access-control-")
    }


def _difference(wanted: list[str], seen: list[str]) -> Iterator[str]:
    return (line for line in ndiff(wanted, seen) if not line.startswith("?"))


def _next_millisecond() -> None:
    """Sessions are listed by their times: no two of them are made in the same millisecond."""
    now = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= now:
        pass
