"""Recordings, acted again: the real agent on a real engine, with a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kedge
from kedge.agent import Agent
from kedge.agent.settings import AgentSettings
from kedge.domain import wire
from kedge.domain.errors import KedgeError
from kedge.domain.permissions import PermissionReply, PermissionRule
from kedge.domain.sessions import ModelRef
from kedge.engine.engine import Engine
from kedge.engine.event_log import Subscription
from kedge.engine.json_views import told
from kedge.engine.session import Session
from tests.agent.trace_judge import Retelling
from tests.support.model_server import (
    Answer,
    Call,
    Fault,
    Item,
    ModelServer,
    Refusal,
    Reply,
    Text,
    Thinking,
    Wait,
)

RECORDED = Path(__file__).parent / "recorded"
Action = Mapping[str, Any]
_BUSY = "session.status busy"
_OPENAI = "openai-compatible"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What was done, what the model said, and what a client of OpenCode saw of it."""

    name: str
    shows: str
    source: str
    """Where the events come from."""
    model: Sequence[Any]
    do: Sequence[Action]
    events: Sequence[str]
    first: bool
    """Whether the session has not seen a prompt yet, and so knows neither agent nor model."""
    titled: bool = True
    permission: Sequence[Mapping[str, str]] = ()
    """The rules of the session."""
    config: Mapping[str, Any] = field(default_factory=dict)
    earlier: Sequence[Action] = ()
    """What was done before the recording begins."""

    @property
    def protocols(self) -> list[str]:
        """The protocols that a model can say this in; in Anthropic's a text does not pause."""
        pauses = any({"wait"} & set(item) for said in self.model for item in said)
        is_aborted = any("abort" in action for action in self.do)
        return [_OPENAI] if pauses and not is_aborted else [_OPENAI, "anthropic"]


def recordings() -> list[Recording]:
    """All of them, by name."""
    return [
        Recording(name=path.stem, **json.loads(path.read_text("utf-8")))
        for path in sorted(RECORDED.glob("*.json"))
    ]


async def play(recording: Recording, home: Path, protocol: str) -> list[str]:
    """What a client of kedge sees of what was recorded, with a model that speaks this protocol."""
    folder = home / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    replies = [_reply(each) for each in recording.model]
    async with ModelServer(replies) as server:
        environ = configured(home, server.url, protocol, recording.config)
        async with (
            kedge.open(folder, database=str(home / "kedge.db"), data_dir=home / "data") as engine,
            Agent(engine, environ=environ, settings=AgentSettings(retry_delay=0)) as agent,
        ):
            session = await engine.sessions.create(
                "Given" if recording.titled else None,
                agent=None if recording.first else "build",
                model=None if recording.first else ModelRef(id="spoken", providerID="scripted"),
                permission=[wire.convert(rule, PermissionRule) for rule in recording.permission],
            )
            stage = Stage(engine, agent, session, server, folder)
            async with stage.listening():
                await stage.act(recording.earlier)
            async with stage.listening() as heard:
                await stage.act(recording.do)
                if not recording.titled:
                    await stage.until("session.updated title")
            return heard.told


def configured(home: Path, url: str, protocol: str, more: Mapping[str, Any]) -> dict[str, str]:
    """An environment whose configuration knows the scripted model; it is the person's own, and so
    trusted."""
    model = {"cost": {"input": 1, "output": 2}, "variants": {"high": {}}}
    config = {
        "model": "scripted/spoken",
        "small_model": "scripted/small",
        "provider": {
            "scripted": {
                "npm": f"@ai-sdk/{protocol}",
                "options": {"baseURL": url, "apiKey": "none"},
                "models": {"spoken": model, "small": model},
            }
        },
        "permission": "allow",
        **more,
    }
    path = home / "config" / "kedge" / "kedge.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(config))
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / "config"), "PATH": "/usr/bin:/bin"}


class Stage:
    """Where a recording is acted."""

    def __init__(
        self, engine: Engine, agent: Agent, session: Session, server: ModelServer, folder: Path
    ) -> None:
        self._engine = engine
        self._agent = agent
        self._session = session
        self._server = server
        self._folder = folder
        self._heard: Retelling | None = None
        self._seq = 0
        """The number of the newest event that was heard."""
        self._news = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Task[Any]] = []
        """Those who asked something and wait for the answer."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Retelling]:
        """Hear everything that happens until the session is idle at the end of the block."""
        await self._session.refresh()
        info = json.loads(wire.encode(self._session.info))
        self._heard = Retelling(self._session.info.directory, info)
        async with self._engine.events.subscribe() as events:
            self._seq = _number(events.cursor)
            self._listener = asyncio.create_task(self._listen(events))
            self._listener.add_done_callback(lambda _: self._news.set())
            try:
                yield self._heard
                await asyncio.gather(*self._waiting)
                await self._settled()
            finally:
                tasks = (self._listener, *self._waiting)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._waiting.clear()

    async def until(self, beginning: str) -> None:
        """Wait for a line that begins so."""
        assert self._heard is not None
        told = self._heard.told
        await self._wait_for(lambda: any(line.startswith(beginning) for line in told))

    async def act(self, actions: Sequence[Action]) -> None:
        """Do one thing after the other."""
        for action in actions:
            (kind, what), *more = action.items()
            await getattr(self, f"_do_{kind}")(what, **dict(more))

    async def _do_prompt(self, text: str, **more: Any) -> None:  # noqa: ANN401 - as the agent takes it
        self._waiting.append(asyncio.create_task(self._prompt(text, more)))

    async def _do_submit(self, text: str) -> None:
        await self._agent.submit(self._session, text)

    async def _do_shell(self, command: str) -> None:
        await self._agent.shell(self._session, command)

    async def _do_when(self, beginning: str) -> None:
        await self.until(beginning)

    async def _do_abort(self, _: bool) -> None:
        await self._agent.abort(self._session)

    async def _do_leave(self, _: bool) -> None:
        task = self._waiting.pop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _do_release(self, name: str) -> None:
        self._server.release(name)

    async def _do_touch(self, name: str) -> None:
        (self._folder.parent / name).touch()

    async def _do_save(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    async def _do_permit(self, reply: PermissionReply, message: str | None = None) -> None:
        ask, *_ = await self._engine.asks.permissions()
        await self._engine.asks.reply_permission(ask.id, reply, message=message)

    async def _do_answers(self, answers: list[list[str]]) -> None:
        (question,) = await self._engine.asks.questions()
        await self._engine.asks.reply_question(question.id, answers)

    async def _do_dismiss(self, _: bool) -> None:
        (question,) = await self._engine.asks.questions()
        await self._engine.asks.reject_question(question.id)

    async def _prompt(self, text: str, more: dict[str, Any]) -> None:
        parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        if "file" in more:
            name, mime = more.pop("file"), more.pop("mime", "text/plain")
            url = f"{self._folder.as_uri()}/{name}".removesuffix("/.")
            parts.append(
                {"type": "file", "mime": mime, "filename": name.partition("?")[0], "url": url}
            )
        try:
            await self._agent.prompt(self._session, parts, **more)
        except KedgeError:
            # What clients hear of it is told by the events.
            return

    async def _listen(self, events: Subscription) -> None:
        assert self._heard is not None
        async for event in events:
            if not event.type.startswith("kedge."):
                self._heard.hear(json.loads((await told(self._engine, event)).payload))
            self._seq = max(self._seq, event.seq)
            self._news.set()

    async def _wait_for(self, is_so: Callable[[], bool]) -> None:
        assert self._listener is not None
        while not is_so():
            if self._listener.done():
                # It failed, and nothing will be heard any more.
                await self._listener
            self._news.clear()
            await self._news.wait()

    async def _settled(self) -> None:
        """Wait until the session is idle and everything that was stored was heard."""
        assert self._heard is not None
        told = self._heard.told
        await self._wait_for(lambda: _BUSY not in told[_last(told, "session.idle") :])
        head = _number(await self._engine.events.head())
        await self._wait_for(lambda: self._seq >= head)


def _number(cursor: str) -> int:
    return int(cursor.rpartition("-")[2])


def _last(told: list[str], line: str) -> int:
    """Where a line stands for the last time; the beginning if it does not."""
    return max((at for at, each in enumerate(told) if each == line), default=0)


def _reply(said: Any) -> Reply:  # noqa: ANN401 - JSON
    if isinstance(said, list):
        return Answer(items=tuple(_item(each) for each in said))
    if "refuse" in said:
        headers = {"retry-after": str(said["after"])} if "after" in said else {}
        return Refusal(status=said["refuse"], headers=headers)
    return Answer(items=tuple(_item(each) for each in said["items"]), finish=said["finish"])


def _item(said: Mapping[str, Any]) -> Item:
    match said:
        case {"say": pieces}:
            return Text.of(*pieces)
        case {"think": pieces}:
            return Thinking.of(*pieces, signature="signed")
        case {"call": tool, "raw": raw}:
            return Call(name=tool, pieces=(raw,))
        case {"call": tool, "with": arguments}:
            return Call(name=tool, pieces=(json.dumps(arguments),))
        case {"wait": name}:
            return Wait(name=name)
        case {"fault": _}:
            return Fault()
    raise AssertionError(f"no model says {said}")
