"""A server's start and shutdown, and the process around it that signals stop."""

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
from kedge.server.overview import local_url
from kedge.server.registry import registered, this_server
from kedge.server.requests import Backend
from kedge.server.responses import Message, Receive, Send
from kedge.server.routes import ALL
from kedge.server.security import App, Gate, Scope
from kedge.server.settings import ServerSettings
from kedge.server.sse.hub import Streams, streaming

_request_log = logging.getLogger("kedge.server.requests")
_SHOWN = frozenset({"directory", "limit", "messageID", "path", "scope"})
"""Parameters that contain neither a secret nor a search text."""


class RequestLog:
    """ASGI middleware that logs each request."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. A stream is logged when it begins and when it ends."""
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
            # No status means no answer: the client left, or the server stops.
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
    """A running server."""

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
    """Run a server in a directory for as long as the block lasts.

    It listens before the database is open; requests that arrive meanwhile wait.
    """
    chosen = settings or ServerSettings()
    listener = listening_socket(chosen)
    url = url_of(chosen.hostname, listener)
    door = StartupGate()
    async with AsyncExitStack() as parts:
        # The last one entered is closed first.
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
        # Waiting requests must get their refusal, and must not keep the engine from closing.
        parts.push_async_callback(door.close)
        parts.push_async_callback(_interrupt, agent, streams)
        parts.callback(stop_accepting)
        engine.recovery.answer_left_with(partial(_answer_left, backend))
        # Recover before clients connect: listeners are notified of what is found.
        await _trying(engine.recovery.look)
        recovering = asyncio.create_task(_trying(engine.recovery.recover))
        parts.callback(recovering.cancel)
        door.open(Application(ALL, backend))
        known = this_server(
            local_url(url, chosen.hostname),
            engine.store.location,
            chosen.root,
            has_password=bool(chosen.password),
        )
        parts.enter_context(registered(engine.data, known))
        yield Running(url, backend)


async def _trying(recovery: Callable[[], Awaitable[None]]) -> None:
    try:
        await recovery()
    except KedgeError as error:
        # The engine tries again every few seconds.
        _log.warning("recovery of killed processes is not complete yet: %s", error)


async def _answer_left(backend: Backend, session: Session) -> None:
    """Answer prompts that were left unanswered, if their session is within the server's root."""
    if backend.settings.allows(session.info.directory):
        await backend.agent.answer_left(session)


async def _interrupt(agent: Agent, streams: Streams) -> None:
    """Interrupt running turns while clients still listen: one that reconnects later may never ask
    how they ended."""
    await agent.close()
    await streams.flushed()


_STOP_PATIENCE = 4.0
"""Seconds until a server that was told to stop exits, whatever still runs: all acknowledged data is
stored, and unfinished work is recovered at the next start. Exiting takes some time on a busy
machine, and five seconds is all it gets."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""glibc's names; other C libraries do not have them."""
_LARGE = 4 * 1024 * 1024


async def run(
    announce: Callable[[Running], None],
    explain: Callable[[Running], Coroutine[Any, Any, None]],
    **options: Any,  # noqa: ANN401 - as `serving`
) -> None:
    """Serve until a signal says to stop. `announce` is called with the server when it answers, and
    `explain` right afterwards, while clients are already served."""
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
    """Let glibc keep the memory of large answers: by default it returns it to the system after each
    one, and allocating it again takes longer than all work done with it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE)


class Stop:
    """Stop signals. First signal: graceful stop; second: exit now."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.is_starting = True
        """Whether the server is still starting. Nothing was promised yet, so the process may just
        exit: threads of a start may wait for a locked database and cannot be cancelled."""
        self._loop = asyncio.get_running_loop()
        self._was_said = False

    def listen(self) -> None:
        """Handle Ctrl-C and SIGTERM.

        Not through the loop: it may be busy, or already closed while threads still work.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_starting:
            # Unbuffered: another thread may be writing into the buffer.
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
