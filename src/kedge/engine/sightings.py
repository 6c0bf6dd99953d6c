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
    """A process that has not ended."""

    pid: int
    parent: int
    group: int
    session: int
    """0 where the system does not tell."""
    started: int
    """Comparable with others of the same boot."""


def processes() -> dict[int, Seen]:
    """All processes that can be seen from here."""
    found = _from_proc() if _has_proc() else _from_ps()
    return {each.pid: each for each in found}


def process(pid: int) -> Seen | None:
    """One process, if it has not ended."""
    if _has_proc():
        return _read(pid)
    return next(_from_ps("-p", str(pid)), None)


def marks(pid: int) -> frozenset[str]:
    """The calls that a process was started for; none where that is not told."""
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
    try:
        stat = (_PROC / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        # It ended while the list was read, or it is hidden from us.
        return None
    # The name of the program is in brackets and may itself hold spaces and brackets.
    state, parent, group, session, *rest = stat.rpartition(")")[2].split()
    if state in ("Z", "X"):
        return None
    return Seen(pid, int(parent), int(group), int(session), int(rest[15]))


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
