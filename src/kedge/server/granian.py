"""HTTP on a socket: granian, embedded in the event loop of this process.

It is not started by its command line, which forks: subscribers, leases and running turns belong to
one process, which one signal ends.

granian accepts a fixed number of connections and leaves all others in the kernel's queue, where
they would wait without an answer. `Overflow` refuses those.
"""

import asyncio
import math
import os
import resource
import select
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from kedge.domain.errors import CannotListen
from kedge.server.security import App
from kedge.server.settings import ServerSettings

if TYPE_CHECKING:
    from granian.server.embed import Server

_LOOK = 0.05
"""Seconds between two checks of the queue while a client is in it."""
_LOOKS = 5
"""Checks after which it is clear that granian does not accept: it takes much less than one."""
_AT_ONCE = 4
"""Clients that are refused at the same time; each needs a descriptor."""
_PATIENCE = 0.5
"""Seconds that a client that will be refused has for sending its request."""
_LINGER = 0.1
"""Seconds that it has for sending the rest: data that comes after the close would discard the
answer."""
_BODY = b'{"name":"Crowded","data":{"message":"too many clients are connected; try again later"}}'
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Overflow:
    """Refuses clients that wait at the listening socket when all connections are in use."""

    def __init__(self, listener: socket.socket, connections: int) -> None:
        # A second descriptor for the same queue.
        self._listener = listener.dup()
        self._listener.setblocking(False)
        self._queue = select.poll()
        self._queue.register(self._listener, select.POLLIN)
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._refusing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._spare: int | None = None
        self._keep_spare()
        self._wait()

    def close(self) -> None:
        """Stop watching and close the socket."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is None:
            self._loop.remove_reader(self._listener)
        else:
            self._timer.cancel()
        for task in self._refusing:
            task.cancel()
        self._listener.close()
        self._give_spare()

    def _wait(self) -> None:
        self._looks = 0
        self._timer = None
        self._loop.add_reader(self._listener, self._on_client)

    def _on_client(self) -> None:
        # Most clients have left the queue before the first check.
        self._loop.remove_reader(self._listener)
        self._timer = self._loop.call_later(_LOOK, self._look)

    def _look(self) -> None:
        if not self._queue.poll(0):
            self._wait()
            return
        self._looks += 1
        self._timer = self._loop.call_later(_LOOK, self._look)
        if self._looks >= _LOOKS and _open_descriptors() > self._connections:
            self._refuse()

    def _refuse(self) -> None:
        while len(self._refusing) < _AT_ONCE:
            client = self._accepted()
            if client is None:
                return
            client.setblocking(False)
            task = self._loop.create_task(_say_no(client))
            self._refusing.add(task)
            task.add_done_callback(self._refusing.discard)

    def _accepted(self) -> socket.socket | None:
        """The next client; None if none is waiting or no descriptor is free for it."""
        self._give_spare()
        try:
            client, _ = self._listener.accept()
        except OSError:
            return None
        finally:
            self._keep_spare()
        return client

    def _keep_spare(self) -> None:
        """Reserve a descriptor for the next client, if one is free."""
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _give_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None


async def _say_no(client: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with client, suppress(OSError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await loop.sock_recv(client, 65536)
            await loop.sock_sendall(client, _ANSWER)
            client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LINGER):
            while await loop.sock_recv(client, 65536):
                pass


def _open_descriptors() -> float:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        # Not even one descriptor is free for listing them.
        return math.inf


_BACKLOG = 1024
_MOST_CONNECTIONS = 4096
_LEAST_CONNECTIONS = 8
_MOST_DESCRIPTORS = 4 * _MOST_CONNECTIONS
_OWN_DESCRIPTORS = 48
"""Descriptors that the server itself may need: about 30 for files and threads, the rest for
commands."""
_HEADER_PATIENCE = 60_000
"""Milliseconds in which the head of the next request must arrive. As long as clients keep idle
connections: closing one earlier could hit a client that is about to use it."""
SEND_PATIENCE = 30
"""Seconds after which the kernel closes the connection of a client that receives nothing of what
was sent: it does not read, or its machine is gone."""
IDLE_PATIENCE = 60
"""Idle seconds after which the kernel starts to send a client keep-alive probes."""
_END_PATIENCE = 0.5
"""Seconds that connections have for closing at shutdown."""


def listening_socket(settings: ServerSettings) -> socket.socket:
    """A socket of our own: granian's would share its port with any other server."""
    family, address = find_address(settings.hostname, settings.port)
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise CannotListen(
            f"{settings.hostname} is not an address of this machine: {error}"
        ) from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _limit_silence(made)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise CannotListen(
            f"port {settings.port} of {settings.hostname} cannot be used"
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
        raise CannotListen(f"{hostname} is not an address of this machine: {error}") from None
    return family, address


def _limit_silence(listener: socket.socket) -> None:
    """Have the kernel close connections that are silent for too long; accepted sockets inherit the
    options. granian cannot do it: it waits as long as a client receives nothing."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_USER_TIMEOUT", SEND_PATIENCE * 1000),
        ("TCP_KEEPIDLE", IDLE_PATIENCE),
        ("TCP_KEEPINTVL", IDLE_PATIENCE // 4),
    ):
        # Not every system has all of these options.
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
        # It waits for half-sent requests and cannot be told not to; it drops those by itself when
        # their time is up.
        await asyncio.wait([serving], timeout=_END_PATIENCE)


def _connections() -> int:
    """How many clients may be connected at once, including idle ones. Some systems allow a process
    only few descriptors unless it asks for more, and files and programs need descriptors too."""
    allowed = _descriptors()
    connections = min(_MOST_CONNECTIONS, allowed // 2, allowed - _OWN_DESCRIPTORS)
    if connections < _LEAST_CONNECTIONS:
        raise CannotListen(
            f"this process may open {allowed} files, and a server needs"
            f" {_OWN_DESCRIPTORS + _LEAST_CONNECTIONS}; allow it more with `ulimit -n`"
        )
    return connections


def _descriptors() -> int:
    """How many descriptors this process may have, after raising the limit as far as is useful."""
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
        # granian documents neither this attribute nor the holder, but it pickles holders this way.
        _shd: Any
        _sfd: Any

        def _init_shared_socket(self) -> None:
            self._ssp = None
            # It closes the descriptor that it is given.
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
