"""Those who connect when there is no room: they are told so, instead of waiting for nothing.

granian accepts so many connections at once and leaves all others in the kernel's queue, where
nobody ever says anything to them.
"""

import asyncio
import math
import os
import select
import socket
from contextlib import suppress

_LOOK = 0.05
"""Seconds between two looks at the queue while somebody is in it."""
_LOOKS = 5
"""Looks after which it is clear that nobody accepts: granian takes much less than one."""
_AT_ONCE = 4
"""Clients that are refused at the same time, as each needs a descriptor."""
_PATIENCE = 0.5
"""Seconds in which a client that is refused has to ask."""
_LINGER = 0.1
"""Seconds in which it can send the rest: what comes later takes the answer away again."""
_BODY = b'{"name":"Crowded","data":{"message":"too many clients are connected; try again later"}}'
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Overflow:
    """Refuses whoever waits at a listening socket while as many are connected as may be."""

    def __init__(self, listener: socket.socket, connections: int) -> None:
        # A descriptor of its own for the same queue.
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
        """Let go of the socket."""
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
        # Most are gone from the queue before the first look.
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
        """The next client; None if nobody is left, or no descriptor to speak with them."""
        self._give_spare()
        try:
            client, _ = self._listener.accept()
        except OSError:
            return None
        finally:
            self._keep_spare()
        return client

    def _keep_spare(self) -> None:
        """Keep a descriptor for the next client, if there is one."""
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
        # Not even one is left to look with.
        return math.inf
