"""A server from its start to its end, and as a process that signals stop."""

import asyncio
import ctypes
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any
from urllib.parse import parse_qsl

from kedge.agent import Agent
from kedge.config.display import printable, shortened
from kedge.domain.errors import KedgeError
from kedge.engine.open import open as open_engine
from kedge.engine.session import Session
from kedge.engine.settings import Settings
from kedge.server.app import Application, StartupGate
from kedge.server.granian import http_server, listening_socket, url_of
from kedge.server.grants import adopting
from kedge.server.requests import Backend
from kedge.server.responses import Message, Receive, Send
from kedge.server.routes import ALL
from kedge.server.security import App, Gate, Scope
from kedge.server.settings import ServerSettings
from kedge.server.sse.hub import Streams, streaming

_request_log = logging.getLogger("kedge.server.requests")
_SHOWN = frozenset({"directory", "limit", "messageID", "path", "scope"})
"""Parameters that hold neither a secret nor what people look for."""


class RequestLog:
    """An ASGI application that tells of each request to another."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Of a stream, both the beginning and the end are told."""
        began = monotonic()
        asked = _asked(scope)
        status, size = "-", 0

        async def counting(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = str(message["status"])
                if (b"content-type", b"text/event-stream") in message["headers"]:
                    _request_log.info("%s %s stream begins", asked, status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            # Without a status nothing was answered: the client left, or the server stops.
            _request_log.info(
                "%s %s %.1f ms %d bytes", asked, status, 1000 * (monotonic() - began), size
            )


def _asked(scope: Scope) -> str:
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    shown = [f"{key}={value}" for key, value in query if key in _SHOWN]
    hidden = ["…"] if len(shown) < len(query) else []
    words = "&".join([*shown, *hidden])
    path = f"{scope['path']}?{words}" if words else scope["path"]
    return f"{scope['method']} {shortened(printable(path))}"


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
    """A server at work."""

    url: str
    backend: Backend


@asynccontextmanager
async def serving(
    directory: str | os.PathLike[str] = ".",
    *,
    settings: ServerSettings | None = None,
    engine_settings: Settings | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Running]:
    """A server on a directory, for as long as the block lasts.

    It listens before the database is open; requests that arrive meanwhile wait.
    """
    chosen = settings or ServerSettings()
    listener = listening_socket(chosen)
    url = url_of(chosen.hostname, listener)
    door = StartupGate()
    async with AsyncExitStack() as parts:
        # The last is ended first.
        gate = Gate(door, chosen)
        app = RequestLog(gate) if chosen.log_requests else gate
        stop_accepting = await parts.enter_async_context(http_server(app, listener))
        parts.push_async_callback(door.close)
        engine = await parts.enter_async_context(
            open_engine(
                directory,
                data_dir=data_dir,
                database=database,
                settings=engine_settings,
                recover=False,
            )
        )
        if not chosen.commands_may_grant:
            await parts.enter_async_context(adopting(engine.processes))
        agent = await parts.enter_async_context(Agent(engine, environ=environ))
        streams = await parts.enter_async_context(streaming(engine, chosen))
        backend = Backend(engine=engine, agent=agent, settings=chosen, streams=streams)
        # Those who wait for an answer must not be kept waiting, nor keep the engine from closing.
        parts.push_async_callback(door.close)
        parts.push_async_callback(_interrupt, agent, streams)
        parts.callback(stop_accepting)
        engine.recovery.answer_left_with(partial(_answer_left, backend))
        # Listeners are told of what is found now, so it is before they come.
        await _trying(engine.recovery.look)
        recovering = asyncio.create_task(_trying(engine.recovery.recover))
        parts.callback(recovering.cancel)
        door.open(Application(ALL, backend))
        yield Running(url, backend)


async def _trying(recovery: Callable[[], Awaitable[None]]) -> None:
    try:
        await recovery()
    except KedgeError as error:
        # The engine tries again every few seconds.
        _log.warning("what killed processes left is not in order yet: %s", error)


async def _answer_left(backend: Backend, session: Session) -> None:
    """Answer prompts that were left, if their session is for clients of this server."""
    if backend.settings.allows(session.info.directory):
        await backend.agent.answer_left(session)


async def _interrupt(agent: Agent, streams: Streams) -> None:
    """End what runs while somebody listens: who comes back later may not ask what became of it."""
    await agent.close()
    await streams.flushed()


_STOP_PATIENCE = 4.0
"""Seconds until a server that was told to stop leaves, whatever still runs: everything that was
acknowledged is stored, and what was cut off is recovered at the next start. On a busy machine it
takes some time until it is gone, and it has five seconds."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""As glibc calls them; other C libraries have none of it."""
_LARGE = 4 * 1024 * 1024


async def run(
    announce: Callable[[Running], None],
    explain: Callable[[Running], Coroutine[Any, Any, None]],
    **options: Any,  # noqa: ANN401 - as `serving`
) -> None:
    """Serve until a signal says to stop; `announce` is told of the server when it answers, and
    `explain` right afterwards, beside what clients want."""
    _keep_memory()
    stop = Stop()
    stop.listen()
    async with serving(**options) as running:
        stop.is_starting = False
        announce(running)
        explaining = asyncio.create_task(explain(running))
        await stop.wanted.wait()
        explaining.cancel()


def _keep_memory() -> None:
    """Let glibc keep the memory of large answers: by default it gives it back after each one, and
    getting it again takes longer than all that is done with it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE)


class Stop:
    """The wish that the process ends: said once it is heeded, said twice it is obeyed at once."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.is_starting = True
        """Whether nothing was promised yet, so that there is nothing to end: a start may wait for a
        locked database in threads that cannot be told to stop."""
        self._loop = asyncio.get_running_loop()
        self._was_said = False

    def listen(self) -> None:
        """Take Ctrl-C and SIGTERM as the wish.

        Not by means of the loop, which may be busy, or over while threads still work.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_starting:
            # Not by way of a buffer: another thread may be writing into it.
            os.write(2, b"kedge: interrupted before it had started\n")
        if self._was_said or self.is_starting:
            _leave(128 + number)
        self._was_said = True
        timer = threading.Timer(_STOP_PATIENCE, _leave, (0,))
        timer.daemon = True
        timer.start()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.wanted.set)


def _leave(code: int) -> None:
    logging.shutdown()
    os._exit(code)
