"""Which processes there are on this machine, as the system tells it; nothing is done to them."""

import calendar
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "KEDGE_CALL"
"""The variable that tells which call a process belongs to: ids of calls, the outermost first, with
colons between them."""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Seen:
    """A process."""

    pid: int
    parent: int
    group: int
    session: int
    """0 where the system does not tell."""
    started: int
    """Comparable with others of the same boot."""
    has_ended: bool = False
    """Whether only its parent's wish to hear of its end keeps its number."""


def processes() -> dict[int, Seen]:
    """All processes that can be seen from here."""
    found = _from_proc() if _has_proc() else _from_ps()
    return {each.pid: each for each in found}


def process(pid: int) -> Seen | None:
    """One process, if it has not ended."""
    if _has_proc():
        return _read(pid)
    return next(_from_ps("-p", str(pid)), None)


def ended_children() -> list[Seen]:
    """The children of this process that have ended, and whose end nobody has taken note of."""
    found = (_stat(int(name)) for name in os.listdir(_PROC) if name.isdecimal())
    me = os.getpid()
    return [each for each in found if each is not None and each.has_ended and each.parent == me]


def marks(pid: int) -> frozenset[str]:
    """The calls that a process was started for; none where that is not told."""
    if pid == os.getpid():
        # A server closes its memory, also to itself if it asks in this way.
        return frozenset(filter(None, os.environ.get(MARK, "").split(":")))
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        # It has just ended, or it is another user's, or there is no such file here.
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
        stat = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        # It ended while the list was read, or it is hidden from us.
        return None
    # The name of the program is in brackets and may itself hold spaces and brackets.
    state, parent, group, session, *rest = stat.rpartition(")")[2].split()
    # One whose first thread alone has ended looks the same, and goes on with others.
    has_ended = state in ("Z", "X") and int(rest[13]) <= 1
    return Seen(pid, int(parent), int(group), int(session), int(rest[15]), has_ended)


def _from_ps(*which: str) -> Iterator[Seen]:
    # Times must read the same for whoever asks.
    env = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    command = ["ps", *(which or ("-ax",)), "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
    for line in said.splitlines():
        pid, parent, group, state, *words = line.split()
        if not state.startswith("Z"):
            moment = time.strptime(" ".join(words), "%a %b %d %H:%M:%S %Y")
            yield Seen(int(pid), int(parent), int(group), 0, calendar.timegm(moment))
