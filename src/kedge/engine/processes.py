"""The processes of running commands: stored before they start, and ended with everything that they
started, also when another process takes over a dead one's session.

No process is ended by its number alone, which may have been reused. A process belongs to a command
if it is the stored one, by number and start time; if its environment carries the command's mark; if
it is in the session or group of such a process; or if such a process started it.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from kedge.domain.child_processes import Process
from kedge.engine.os_process import MARK, Seen, boot, machine, marks, process, processes
from kedge.store.port import Store
from kedge.store.queries.fences import Fence
from kedge.store.queries.processes import call_of, drop_process, put_process

_log = logging.getLogger(__name__)
_GRACE = 1.0
"""Seconds in which a process may end by itself after SIGTERM."""
_PATIENCE = 5.0
"""Seconds in which the system should have ended a killed process."""
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.2


class Drain(Protocol):
    """A reader of the output of processes that outlived their command."""

    def close(self) -> None:
        """Stop reading."""


class Processes:
    """The processes of one engine's commands."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._drains: set[Drain] = set()
        self._closed = False
        self.leaders: set[int] = set()
        """Processes of this process that run a command and are waited for."""

    async def remember(self, fence: Fence, part_id: str, pid: int) -> Process | None:
        """Store a process that waits to begin; None if it has ended already."""
        self.leaders.add(pid)
        seen = await asyncio.to_thread(process, pid)
        if seen is None:
            return None
        found = Process(
            session_id=fence.session_id,
            part_id=part_id,
            machine=machine(),
            boot=boot(),
            pid=pid,
            pgid=seen.group,
            started=seen.started,
        )
        await self._store.write(partial(put_process, found, fence))
        return found

    async def forget(self, ended: Process) -> None:
        """Forget a command that is over; processes that it left running belong to no command from
        now on."""
        self.leaders.discard(ended.pid)
        await self._store.write(partial(drop_process, ended))

    async def call_around(self) -> str | None:
        """The call of an agent that this very process belongs to, in this database; None if a
        person started it, as far as the system shows."""
        marked, started = await asyncio.to_thread(_line_of_this_process)
        return await self._store.read(partial(call_of, marked, machine(), boot(), started))

    def keep(self, drain: Drain) -> None:
        """Keep reading output until the engine closes, so that no process is ended by a broken
        pipe."""
        if self._closed:
            drain.close()
        else:
            self._drains.add(drain)

    def let_go(self, drain: Drain) -> None:
        """Stop tracking a reader: there is no more output."""
        self._drains.discard(drain)

    def close(self) -> None:
        """Close the readers of what was left running."""
        self._closed = True
        for each in list(self._drains):
            each.close()
        self._drains.clear()


def marked_call() -> str | None:
    """The innermost call that the environment of this process names, in whatever database."""
    calls = os.environ.get(MARK, "").split(":")
    return calls[-1] or None


async def end_processes(known: Sequence[Process]) -> bool:
    """End the remaining processes of commands on this machine; return whether none are left.

    They get SIGTERM first, and SIGKILL if they do not end.
    """
    here = [each for each in known if (each.machine, each.boot) == (machine(), boot())]
    asked: set[int] = set()
    for number, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, _PATIENCE)):
        deadline = asyncio.get_running_loop().time() + patience
        pause = _FIRST_PAUSE
        while found := await asyncio.to_thread(belonging, here):
            await asyncio.to_thread(_send, number, found, asked)
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return True
    _log.warning("cannot end the processes %s", ", ".join(map(str, sorted(found))))
    return False


def belonging(known: Iterable[Process]) -> dict[int, Seen]:
    """The remaining processes of commands that ran here."""
    wanted = list(known)
    if not wanted:
        return {}
    seen = processes()
    # Only processes young enough to be started by one of them are inspected.
    first = min(each.started for each in wanted)
    marked = {pid: marks(pid) for pid, each in seen.items() if each.started >= first}
    found: set[int] = set()
    for each in wanted:
        found |= _of_command(each, seen, marked)
    return {pid: seen[pid] for pid in found}


def _of_command(
    command: Process, seen: Mapping[int, Seen], marked: Mapping[int, frozenset[str]]
) -> set[int]:
    sure = {pid for pid, calls in marked.items() if command.part_id in calls}
    leader = seen.get(command.pid)
    if leader is not None and leader.started == command.started:
        sure.add(leader.pid)
    for kind in ("group", "session"):
        # The number of a group or session is not reused while it has a member.
        if any(getattr(seen[pid], kind) == command.pgid for pid in sure):
            sure |= {pid for pid, each in seen.items() if getattr(each, kind) == command.pgid}
    me = os.getpid()
    inside = command.part_id in marked.get(me, ())
    lines = {pid: line_of(pid, seen) for pid in seen}
    return {
        pid
        for pid, above in lines.items()
        if (pid in sure or not sure.isdisjoint(above))
        # A command may have started this very process and its ancestors.
        and pid not in lines.get(me, ())
        and pid != me
        and not (inside and me in above)
    }


def _line_of_this_process() -> tuple[list[str], dict[int, int]]:
    """The calls that this process and its ancestors are marked with, and when each started."""
    seen, me = processes(), os.getpid()
    line = [me, *line_of(me, seen)]
    return sorted(frozenset().union(*map(marks, line))), {pid: seen[pid].started for pid in line}


def line_of(pid: int, seen: Mapping[int, Seen]) -> set[int]:
    """The ancestors of a process, as far as they were seen."""
    found: set[int] = set()
    each = seen.get(seen[pid].parent)
    # The processes are read one after another, so a line of ancestors may seem to contain a cycle.
    while each is not None and each.pid not in found:
        found.add(each.pid)
        each = seen.get(each.parent)
    return found


def _send(number: signal.Signals, found: Mapping[int, Seen], asked: set[int]) -> None:
    for each in found.values():
        if number == signal.SIGKILL:
            _send_one(each, number)
        elif each.pid not in asked:
            asked.add(each.pid)
            _send_one(each, number)
            # A stopped process does not handle SIGTERM.
            _send_one(each, signal.SIGCONT)


def _send_one(target: Seen, number: signal.Signals) -> None:
    # It may have ended meanwhile, and its number with it.
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if process(target.pid) == target:
                os.kill(target.pid, number)
            return
        handle = os.pidfd_open(target.pid)
        try:
            now = process(target.pid)
            if now is not None and now.started == target.started:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
