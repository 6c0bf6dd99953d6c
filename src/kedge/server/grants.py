"""Keeps an agent's commands from granting themselves permissions: tells their requests from those
of other clients.

A connection is traced from its port to its socket, from there to the process that holds it, and
from there to that process's ancestors. The server adopts orphans, so that every process that it
started stays its descendant. When the result is uncertain, the request is refused. Linux only.
"""

import asyncio
import ctypes
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from kedge.domain.errors import CannotListen
from kedge.engine.os_process import Seen, ended_children, process, processes
from kedge.engine.processes import Processes
from kedge.server.errors import Refused
from kedge.server.security import Scope

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_REAP_EVERY = 1.0
"""Seconds."""
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LOOKS = 3
"""How often to look for a socket that should exist: the tables are not read atomically."""
_MOST_HOLDERS = 64
_TUNNELS = ("sshd", "sshd-session", "dropbear")
_A_COMMAND = (
    "commands that this server runs may not answer, allow or start anything here: a person has to."
    " `kedge serve --commands-may-grant` lets them"
)
_UNKNOWN = (
    "it cannot be told which program sent this, and it could be a command that this server runs{}."
    " `kedge serve --commands-may-grant` lets these do everything"
)
_HIDING = ": process {} ({}), which it runs, does not show what it has open"


@dataclass(frozen=True, slots=True)
class _Socket:
    """The client's end of a connection."""

    inode: int
    """0 if no process holds it any more."""
    user: int


class CommandGuard:
    """Refuses requests that come from processes that this process started."""

    def __init__(self) -> None:
        me, seen = os.getpid(), processes()
        self._earlier = {
            (pid, each.started) for pid, each in seen.items() if me in _line(pid, seen)[1:]
        }
        """Descendants that are older than the server, such as jobs of the shell that became it by
        exec. They are not commands."""
        self._holders: dict[int, None] = {}
        """Processes that recently held a connection; they are checked first."""

    async def check(self, scope: Scope) -> None:
        """Refuse a request unless it is certain that no command sent it."""
        # granian gives ports as strings.
        (host, client_port), (_, port) = scope["client"], scope["server"]
        reason = await asyncio.to_thread(self.refusal, (host, int(client_port)), int(port))
        if reason is not None:
            raise Refused(reason)

    def refusal(self, client: tuple[str, int], port: int) -> str | None:
        """Why the client at this address may not grant anything; None if it may."""
        address = _plain(ipaddress.ip_address(client[0]))
        for _ in range(_LOOKS):
            found = list(_sockets(address, client[1], port))
            if found or not _is_of_this_machine(address):
                break
        else:
            return _UNKNOWN.format("")
        return next(filter(None, map(self._refusal_of, found)), None)

    def _refusal_of(self, end: _Socket) -> str | None:
        if not end.inode:
            return _UNKNOWN.format("")
        if _holds(os.getpid(), end.inode):
            return None
        seen = processes()
        own = [pid for pid in seen if self._is_own(pid, seen)]
        held = {pid: _holds(pid, end.inode) for pid in own}
        if True in held.values():
            return _A_COMMAND
        tunnels = False
        for pid in [*reversed(self._holders), *(pid for pid in seen if pid not in held)]:
            holds = _holds(pid, end.inode)
            if holds:
                if not self._is_outside(pid):
                    return _UNKNOWN.format("")
                self._note(pid)
                return None
            tunnels |= holds is None and _is_tunnel(pid) and self._is_outside(pid)
        hiding = next((pid for pid, holds in held.items() if holds is None), None)
        # A holder that is not visible may be of another user, or a tunnel; or else a command.
        if hiding is None and (tunnels or end.user != os.geteuid()):
            return None
        return _UNKNOWN.format("" if hiding is None else _HIDING.format(hiding, _name(hiding)))

    def _is_own(self, pid: int, seen: Mapping[int, Seen]) -> bool:
        line = _line(pid, seen)
        me = os.getpid()
        if me not in line[1:]:
            return False
        below = line[: line.index(me)]
        return not any((each, seen[each].started) in self._earlier for each in below)

    def _is_outside(self, pid: int) -> bool:
        """Whether a process is certainly not a command."""
        # Read twice: a process that lost its parent in between has other ancestors.
        first, second = _line_now(pid), _line_now(pid)
        return first is not None and first == second and not self._is_own(pid, first)

    def _note(self, pid: int) -> None:
        self._holders.pop(pid, None)
        self._holders[pid] = None
        if len(self._holders) > _MOST_HOLDERS:
            del self._holders[next(iter(self._holders))]


@asynccontextmanager
async def adopting(own: Processes) -> AsyncIterator[None]:
    """Become the parent of orphaned descendants of this process, and reap those that have
    exited."""
    if not can_tell():
        raise CannotListen("only Linux tells commands from clients; leave commands_may_grant set")
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    before = ctypes.c_int()
    if prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before)) or prctl(_PR_SET_CHILD_SUBREAPER, 1):
        raise OSError(ctypes.get_errno(), "this process cannot adopt orphans")
    reaping = asyncio.create_task(_reap_forever(own))
    try:
        yield
    finally:
        reaping.cancel()
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def can_tell() -> bool:
    """Whether this system shows enough about processes and their sockets."""
    return sys.platform == "linux" and os.path.exists(_TABLES[0])


async def _reap_forever(own: Processes) -> None:
    while True:
        await asyncio.sleep(_REAP_EVERY)
        if _some_child_ended():
            await asyncio.to_thread(_reap, own)


def _some_child_ended() -> bool:
    try:
        looked = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_ALL, 0, looked) is not None
    except ChildProcessError:
        return False


def _reap(own: Processes) -> None:
    """Reap adopted processes that have exited, but no child that other code in this process waits
    for.

    Processes that kedge starts for itself stay in its session; a command leads a session of its
    own.
    """
    session, me, ended = os.getsid(0), os.getpid(), ended_children()
    for each in ended:
        if each.session != session and each.pid not in own.leaders:
            # Other code in this process may have reaped it first.
            with suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)
    left = {each.pid for each in ended}
    for pid in [*own.leaders]:
        found = process(pid)
        if pid not in left and (found is None or found.parent != me):
            own.leaders.discard(pid)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _plain(address: Address) -> Address:
    """The IPv4 address of an IPv4-mapped IPv6 address; any other address unchanged."""
    return getattr(address, "ipv4_mapped", None) or address


def _sockets(address: Address, port: int, server_port: int) -> Iterator[_Socket]:
    """The sockets of this machine that are bound to an address and connected to the server's port:
    one, unless the server has several addresses."""
    for table in _TABLES:
        # Not every system has IPv6.
        if not os.path.exists(table):
            continue
        with open(table, encoding="ascii") as lines:
            for _, local, remote, _, _, _, _, user, _, inode, *_ in map(str.split, [*lines][1:]):
                ports = (int(local[-4:], 16), int(remote[-4:], 16))
                if ports == (port, server_port) and _decoded(local[:-5]) == address:
                    yield _Socket(int(inode), int(user))


def _decoded(digits: str) -> Address:
    """An address as the tables write it: 32-bit words in this machine's byte order."""
    words = (int(digits[at : at + 8], 16) for at in range(0, len(digits), 8))
    return _plain(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words)))


def _is_of_this_machine(address: Address) -> bool:
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _holds(pid: int, inode: int) -> bool | None:
    """Whether a process has a socket open; None if that is not visible."""
    try:
        # Each thread may have its own descriptors.
        return any(_thread_holds(pid, thread, inode) for thread in os.listdir(f"/proc/{pid}/task"))
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:
        return None


def _thread_holds(pid: int, thread: str, inode: int) -> bool:
    folder, wanted = f"/proc/{pid}/task/{thread}/fd", f"socket:[{inode}]"
    with suppress(FileNotFoundError, ProcessLookupError):
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                if os.readlink(f"{folder}/{name}") == wanted:
                    return True
    return False


def _is_tunnel(pid: int) -> bool:
    """Whether a process is, by its name, a tunnel through which people connect from other machines,
    and which hides its descriptors."""
    return _name(pid) in _TUNNELS


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
            return name.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _line(pid: int, seen: Mapping[int, Seen]) -> list[int]:
    """A process and its ancestors, as far as they were seen."""
    line: list[int] = []
    # Processes are read one after the other, so reused ids may form a cycle.
    while pid in seen and pid not in line:
        line.append(pid)
        pid = seen[pid].parent
    return line


def _line_now(pid: int) -> dict[int, Seen] | None:
    """A process and its ancestors; None if one of them is gone."""
    line: dict[int, Seen] = {}
    while pid:
        found = process(pid)
        if found is None:
            return line if _is_hidden(pid) else None
        line[pid] = found
        pid = found.parent
        if pid in line:
            return None
    return line


def _is_hidden(pid: int) -> bool:
    """Whether a process exists and belongs to a user whose processes are hidden."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False
