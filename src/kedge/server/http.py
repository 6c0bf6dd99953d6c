"""HTTP on a socket: granian, embedded in the process's own event loop.

It is not run by its command line, which forks: subscribers, leases and running turns belong to one
process, which one signal ends.
"""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from kedge.domain.errors import CannotListen
from kedge.server.gate import App
from kedge.server.overflow import Overflow
from kedge.server.settings import ServerSettings

if TYPE_CHECKING:
    from granian.server.embed import Server

_BACKLOG = 1024
_MOST_CONNECTIONS = 4096
_LEAST_CONNECTIONS = 8
_MOST_DESCRIPTORS = 4 * _MOST_CONNECTIONS
_OWN_DESCRIPTORS = 48
"""What the server itself may need: about 30 for its files and threads, the rest for commands."""
_HEADER_PATIENCE = 60_000
"""Milliseconds in which the head of the next request has to be there. As long as clients keep idle
connections: one that the server closes first may just be about to be used."""
SEND_PATIENCE = 30
"""Seconds after which the kernel closes the socket of a client that takes nothing of what was sent:
it does not read, or its machine is gone."""
IDLE_PATIENCE = 60
"""Seconds after which a client that nothing was sent to is asked for a sign of life."""
_END_PATIENCE = 0.5
"""Seconds in which connections end that nobody needs any more."""


def listening_socket(settings: ServerSettings) -> socket.socket:
    """A socket of our own: granian's would share its port with any other server."""
    family, address = find_address(settings.hostname, settings.port)
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise CannotListen(f"{settings.hostname} is no address of this machine: {error}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _limit_silence(made)
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


def find_address(hostname: str, port: int) -> tuple[int, Any]:
    """The family and address of a name."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            hostname, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError, OverflowError) as error:
        raise CannotListen(f"{hostname} is no address of this machine: {error}") from None
    return family, address


def _limit_silence(listener: socket.socket) -> None:
    """Have the kernel let go of clients that are silent for too long; those that are accepted
    inherit it. Nobody else can: granian waits for as long as a client takes nothing."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", SEND_PATIENCE * 1000),
        ("TCP_KEEPIDLE", IDLE_PATIENCE),
        ("TCP_KEEPINTVL", IDLE_PATIENCE // 4),
    ):
        # Not every system knows all of them.
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def url_of(hostname: str, listener: socket.socket) -> str:
    shown = f"[{hostname}]" if ":" in hostname else hostname
    return f"http://{shown}:{listener.getsockname()[1]}"


@asynccontextmanager
async def http_server(app: App, listener: socket.socket) -> AsyncIterator[Callable[[], None]]:
    connections = _connections()
    overflow = Overflow(listener, connections)
    server = _server(app, listener, connections)

    stop: Callable[[], None] = server.stop

    def stop_accepting() -> None:
        overflow.close()
        stop()

    serving = asyncio.create_task(server.serve())
    try:
        yield stop_accepting
    finally:
        stop_accepting()
        # It waits for requests that are only half there, and cannot be told not to: those it lets
        # go of by itself when their time is over.
        await asyncio.wait([serving], timeout=_END_PATIENCE)


def _connections() -> int:
    """How many clients may be connected at once, idle ones included: some systems allow a process
    few descriptors unless it asks for more, and files and programs need them too."""
    allowed = _descriptors()
    connections = min(_MOST_CONNECTIONS, allowed // 2, allowed - _OWN_DESCRIPTORS)
    if connections < _LEAST_CONNECTIONS:
        raise CannotListen(
            f"this process may open {allowed} files, and a server needs"
            f" {_OWN_DESCRIPTORS + _LEAST_CONNECTIONS}; allow it more with `ulimit -n`"
        )
    return connections


def _descriptors() -> int:
    """How many descriptors this process may have, after asking for as many as could be of use."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < _MOST_DESCRIPTORS:
        wanted = (
            _MOST_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _MOST_DESCRIPTORS)
        )
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, wanted), most))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _server(app: App, listener: socket.socket, connections: int) -> "Server":
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
        backpressure=connections,
        log_enabled=False,
        http1_settings=HTTP1Settings(header_read_timeout=_HEADER_PATIENCE),
    )
