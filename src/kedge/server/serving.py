"""Runs the server inside of the process's own event loop, and stops it without losing anything.

granian speaks HTTP. It is embedded rather than run by its command line, which forks: subscribers,
leases and running turns belong to one process, which one signal ends.
"""

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kedge.agent import Agent
from kedge.domain.errors import CannotListen
from kedge.engine.opening import open as open_engine
from kedge.server.app import Application, Open
from kedge.server.backend import Backend
from kedge.server.gate import Gate
from kedge.server.routes import ALL
from kedge.server.settings import ServerSettings
from kedge.server.streams import streaming

if TYPE_CHECKING:
    from granian.server.embed import Server

_log = logging.getLogger(__name__)
_BACKLOG = 1024
_MOST_CONNECTIONS = 4096
_MOST_DESCRIPTORS = 4 * _MOST_CONNECTIONS
_HEADER_PATIENCE = 10_000
"""Milliseconds in which the head of a request has to be there."""
_STOP_PATIENCE = 4.5
"""Seconds until a server that was told to stop is gone, whatever still runs: everything that was
acknowledged is stored, and what was not is recovered at the next start."""


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
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Running]:
    """A server on a directory, for as long as the block lasts.

    It listens before the database is open; requests that arrive meanwhile wait.
    """
    chosen = settings or ServerSettings()
    async with AsyncExitStack() as parts:
        listener = _listener(chosen)
        url = _url(chosen.hostname, listener)
        door = Open()
        stop_accepting = await parts.enter_async_context(_http(Gate(door, chosen), listener))
        engine = await parts.enter_async_context(
            open_engine(directory, data_dir=data_dir, database=database)
        )
        agent = await parts.enter_async_context(Agent(engine, environ=environ))
        streams = await parts.enter_async_context(streaming(engine, chosen))
        backend = Backend(engine=engine, agent=agent, settings=chosen, streams=streams)
        # The last is done first: those who still wait for an answer must not be kept waiting, nor
        # keep the agent and engine from closing.
        parts.push_async_callback(door.end)
        parts.callback(stop_accepting)
        door.begin(Application(ALL, backend))
        yield Running(url, backend)


async def run(announce: Callable[[str], None], **options: Any) -> None:  # noqa: ANN401 - as `serving`
    """Serve until a signal says to stop; `announce` is told the address when it answers."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_or_leave, stop, number)
    async with serving(**options) as running:
        announce(running.url)
        await stop.wait()
        # What hangs must not keep the process: a second later nobody would wait for it.
        loop.call_later(_STOP_PATIENCE, _leave, 0)


def _stop_or_leave(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        _leave(128 + number)
    stop.set()


def _leave(code: int) -> None:
    logging.shutdown()
    os._exit(code)


def _listener(settings: ServerSettings) -> socket.socket:
    """A socket of our own: granian's would share its port with any other server."""
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(
            settings.hostname, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        made = socket.socket(family, kind)
    except OSError as error:
        raise CannotListen(f"{settings.hostname} is no address of this machine: {error}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise CannotListen(
            f"port {settings.port} of {settings.hostname} cannot be listened on"
            f" ({error.strerror}); choose another with --port, or 0 for any"
        ) from None
    made.setblocking(False)
    return made


def _url(hostname: str, listener: socket.socket) -> str:
    shown = f"[{hostname}]" if ":" in hostname else hostname
    return f"http://{shown}:{listener.getsockname()[1]}"


@asynccontextmanager
async def _http(app: Gate, listener: socket.socket) -> AsyncIterator[Callable[[], None]]:
    server = _server(app, listener)
    stop_accepting: Callable[[], None] = server.stop
    serving = asyncio.create_task(server.serve())
    try:
        yield stop_accepting
    finally:
        stop_accepting()
        await serving


def _connections() -> int:
    """How many clients may be connected at once, idle ones included: some systems allow a process
    few descriptors unless it asks for more, and files and programs need them too."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < _MOST_DESCRIPTORS:
        wanted = (
            _MOST_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _MOST_DESCRIPTORS)
        )
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, wanted), most))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MOST_CONNECTIONS, allowed // 2)


def _server(app: Gate, listener: socket.socket) -> "Server":
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    holder: Any = SocketHolder

    class OwnSocketServer(Server):
        # granian describes neither this nor the holder, but it pickles holders just so.
        _shd: Any
        _sfd: Any

        def _init_shared_socket(self) -> None:
            self._ssp = None
            # It closes what it is given.
            self._sfd = listener.detach()
            self._shd = holder(self._sfd, False, _BACKLOG)

    return OwnSocketServer(
        app,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backpressure=_connections(),
        log_enabled=False,
        http1_settings=HTTP1Settings(header_read_timeout=_HEADER_PATIENCE),
    )
