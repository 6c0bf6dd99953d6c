"""Processes of this machine as the system shows them: which exist, and which of them runs a
session.

A process id alone means nothing after a reboot, in another container or once the number is reused;
so an owner is named by machine, boot, pid namespace, pid and the time the process started.
"""

import calendar
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kedge.domain import wire
from kedge.domain.values import Value

UNKNOWN = "?"
"""The start time of a process that exists, but cannot be inspected."""

_ENGINES: set[str] = set()
"""The open engines of this process."""


class Owner(Value, frozen=True, kw_only=True):
    """One engine in one process."""

    machine: str
    boot: str
    namespace: str
    pid: int
    start: str
    engine: str

    def same_place(self, other: "Owner") -> bool:
        """Whether the other's process can be looked up from here."""
        mine = (self.machine, self.boot, self.namespace)
        return mine == (other.machine, other.boot, other.namespace)


def this_process(engine: str) -> Owner:
    """The owner for an engine of this process, alive from now on until it is forgotten."""
    _ENGINES.add(engine)
    return Owner(
        machine=machine(),
        boot=_boot(),
        namespace=_namespace(),
        pid=os.getpid(),
        start=process_start(os.getpid()) or "",
        engine=engine,
    )


def owner_lives(text: str, expired: bool, here: Owner) -> bool:
    """Whether an owner may still write: decided by its process if that can be looked up from here,
    else by the expiry of its lease."""
    owner = wire.decode(text, Owner)
    if not owner.same_place(here):
        return not expired
    if (owner.pid, owner.start) == (here.pid, here.start):
        return owner.engine in _ENGINES
    return process_start(owner.pid) in (owner.start, UNKNOWN)


def engine_of(text: str) -> str:
    """The engine of an owner."""
    return wire.decode(text, Owner).engine


def forget_engine(owner: Owner) -> None:
    """Mark an engine as closed, though its process lives on."""
    _ENGINES.discard(owner.engine)


def process_start(pid: int) -> str | None:
    """When a process started, in a form to compare; None if it is gone."""
    if _has_proc():
        try:
            fields = _stat_fields(pid)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # The processes of other users may be hidden, but not that they exist.
            return UNKNOWN if _exists(pid) else None
        return None if fields[0] in ("Z", "X") else fields[19]
    return _said("ps", "-o", "lstart=", "-p", str(pid)) or None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _said(*command: str) -> str:
    # Times must read the same in every environment.
    env = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False
    ).stdout.strip()


@cache
def machine() -> str:
    """An identifier of this machine."""
    for place in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        path = Path(place)
        if path.is_file() and (text := path.read_text("ascii", "replace").strip()):
            return text
    return platform.node()


def boot() -> str:
    """An identifier of the space of process ids: they differ by boot and by container."""
    return f"{_boot()} {_namespace()}".strip()


@cache
def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    if path.is_file():
        return path.read_text("ascii").strip()
    return _said("sysctl", "-n", "kern.bootsessionuuid")


@cache
def _namespace() -> str:
    path = Path("/proc/self/ns/pid")
    return os.readlink(path) if path.exists() else ""


MARK = "KEDGE_CALL"
"""The variable that names the calls a process belongs to: ids of calls, the outermost first,
separated by colons."""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Seen:
    """A process."""

    pid: int
    parent: int
    group: int
    session: int
    """0 where the system does not say."""
    started: int
    """Comparable within the same boot."""
    has_ended: bool = False
    """Whether it is a zombie: it has ended, and its parent has not waited for it."""


def processes() -> dict[int, Seen]:
    """All visible processes."""
    found = _from_proc() if _has_proc() else _from_ps()
    return {each.pid: each for each in found}


def process(pid: int) -> Seen | None:
    """One process, if it has not ended."""
    if _has_proc():
        return _read(pid)
    return next(_from_ps("-p", str(pid)), None)


def ended_children() -> list[Seen]:
    """The zombies among this process's children: ended, and not waited for."""
    found = (_stat(int(name)) for name in os.listdir(_PROC) if name.isdecimal())
    me = os.getpid()
    return [each for each in found if each is not None and each.has_ended and each.parent == me]


def marks(pid: int) -> frozenset[str]:
    """The calls that a process was started for; empty if that is not visible."""
    if pid == os.getpid():
        # A server protects its memory, also against itself if it reads it this way.
        return frozenset(filter(None, os.environ.get(MARK, "").split(":")))
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        # It has just ended, it is another user's, or there is no such file here.
        return frozenset()
    prefix = f"{MARK}=".encode()
    for each in environ.split(b"\0"):
        if each.startswith(prefix):
            return frozenset(each[len(prefix) :].decode("ascii", "replace").split(":"))
    return frozenset()


def _has_proc() -> bool:
    return (_PROC / "self" / "stat").exists()


def _from_proc() -> Iterator[Seen]:
    for name in os.listdir(_PROC):
        if name.isdecimal() and (found := _read(int(name))) is not None:
            yield found


def _read(pid: int) -> Seen | None:
    found = _stat(pid)
    return None if found is None or found.has_ended else found


def _stat(pid: int) -> Seen | None:
    try:
        state, parent, group, session, *rest = _stat_fields(pid)
    except OSError:
        # It ended while the list was read, or is hidden.
        return None
    # A process of which only the first thread has ended looks the same, and goes on with others.
    has_ended = state in ("Z", "X") and int(rest[13]) <= 1
    return Seen(pid, int(parent), int(group), int(session), int(rest[15]), has_ended)


def _stat_fields(pid: int) -> list[str]:
    stat = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    # The program's name is in parentheses and may itself hold spaces and parentheses.
    return stat.rpartition(")")[2].split()


def _from_ps(*which: str) -> Iterator[Seen]:
    # Times must read the same in every environment.
    env = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    command = ["ps", *(which or ("-ax",)), "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
    for line in said.splitlines():
        pid, parent, group, state, *words = line.split()
        if not state.startswith("Z"):
            moment = time.strptime(" ".join(words), "%a %b %d %H:%M:%S %Y")
            yield Seen(int(pid), int(parent), int(group), 0, calendar.timegm(moment))
