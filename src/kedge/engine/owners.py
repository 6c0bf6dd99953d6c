"""Who runs a session: which process on which machine, and whether it is still there.

A process id alone says nothing after a reboot, in another container or once the number is used
again; so an owner is named by machine, boot, pid namespace, pid and the time the process started.
"""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from kedge.domain import wire
from kedge.domain.values import Value

UNKNOWN = "?"
"""The start of a process that is there, but of which nothing else can be seen."""

_ENGINES: set[str] = set()
"""The engines of this process that are open."""


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
    """The owner that an engine of this process is, from now on until it is forgotten."""
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
    """Whether an owner may still write: by its process if that is near, else until its lease
    expires."""
    owner = wire.decode(text, Owner)
    if not owner.same_place(here):
        return not expired
    if (owner.pid, owner.start) == (here.pid, here.start):
        return owner.engine in _ENGINES
    return process_start(owner.pid) in (owner.start, UNKNOWN)


def engine_of(text: str) -> str:
    """Which engine an owner is."""
    return wire.decode(text, Owner).engine


def forget_engine(owner: Owner) -> None:
    """The engine is closed, though its process lives on."""
    _ENGINES.discard(owner.engine)


def process_start(pid: int) -> str | None:
    """When a process started, in a form that is good for comparing; None if it is gone."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            # The processes of other users may be hidden; whether there is one can still be told.
            return UNKNOWN if _exists(pid) else None
        # The name of the program is in brackets and may itself hold spaces and brackets.
        fields = stat.rpartition(")")[2].split()
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
    # Times must read the same for whoever asks.
    env = {**os.environ, "TZ": "UTC", "LC_ALL": "C"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False
    ).stdout.strip()


@cache
def machine() -> str:
    """What tells this machine from others."""
    for place in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        path = Path(place)
        if path.is_file() and (text := path.read_text("ascii", "replace").strip()):
            return text
    return platform.node()


def boot() -> str:
    """What tells the process ids that are seen from here from those of other boots and
    containers."""
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
