"""Processes of a session's commands, so that a process that takes over the session can end them."""

from collections.abc import Iterable, Mapping

from kedge.domain.child_processes import Process
from kedge.store.queries.fences import Fence, pass_fence
from kedge.store.queries.sessions import lock_session
from kedge.store.transaction import Script, row, rows, run


def put_process(process: Process, fence: Fence | None = None) -> Script[None]:
    """Store a process that is about to begin its work, for the owner of the session's lease."""
    yield from lock_session(process.session_id)
    yield from pass_fence(fence)
    yield from run(
        "process_put",
        session_id=process.session_id,
        part_id=process.part_id,
        machine=process.machine,
        boot=process.boot,
        pid=process.pid,
        pgid=process.pgid,
        started=process.started,
    )


def drop_process(process: Process) -> Script[None]:
    """Drop the process of a call that is over."""
    yield from run(
        "process_drop",
        session_id=process.session_id,
        part_id=process.part_id,
        pid=process.pid,
    )


def drop_processes(session_id: str) -> Script[None]:
    """Drop the processes of a session whose calls are all over."""
    yield from run("purge_process", session_id=session_id)


def processes_of(session_id: str) -> Script[list[Process]]:
    """The processes of a session's calls that have not ended, as far as is known."""
    found = yield from rows("process_list", session_id=session_id)
    return [
        Process(
            session_id=session_id,
            part_id=part_id,
            machine=machine,
            boot=boot,
            pid=pid,
            pgid=pgid,
            started=started,
        )
        for part_id, machine, boot, pid, pgid, started in found
    ]


def call_of(
    marks: Iterable[str], machine: str, boot: str, started: Mapping[int, int]
) -> Script[str | None]:
    """A call of this database that a process belongs to, if any: by the marks in its environment
    and its ancestors', or because it or an ancestor, given with its start, is the stored process of
    a call."""
    for mark in marks:
        # Not only of calls that still run: a process may have outlived its call.
        if (yield from row("part_anywhere", id=mark)) is not None:
            return mark
    for pid, start in started.items():
        for part_id, since in (yield from rows("process_of", machine=machine, boot=boot, pid=pid)):
            if since == start:
                return str(part_id)
    return None
