"""Background tasks: subtasks whose end is still to be told to their parent session.

A task is stored when its parent stops waiting for it, and removed by the transaction that tells its
end, so that this is told once, whatever process tells it. One that a person stopped is deferred:
its end is told with the next prompt, and no model is asked because of it.
"""

from dataclasses import dataclass

from kedge.domain.conversation import AlreadyTold
from kedge.store.queries.leases import clock
from kedge.store.transaction import Script, row, rows, run

_DEFERRED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundTask:
    """A subtask that its parent does not wait for."""

    session_id: str
    parent_id: str
    prompt_id: str
    """The prompt of the subtask that it answers."""
    title: str
    owner: str
    """The engine that runs it; empty if it is deferred."""
    expired: bool = False
    """Whether that engine has not renewed its leases in time."""

    @property
    def is_deferred(self) -> bool:
        """Whether its end is told with the next prompt of the parent, not before."""
        return self.owner == _DEFERRED


def put_task(task: BackgroundTask, *, ttl: int) -> Script[None]:
    """Store a task, in the place of an earlier one of the same session."""
    yield from drop_task(task.session_id)
    now = yield from clock()
    yield from run(
        "background_task_add",
        session_id=task.session_id,
        parent_id=task.parent_id,
        prompt_id=task.prompt_id,
        title=task.title,
        owner=task.owner,
        time_expires=now + ttl,
    )


def drop_task(session_id: str) -> Script[None]:
    """Do not tell the end of a task."""
    yield from run("background_task_drop", session_id=session_id)


def defer_task(session_id: str) -> Script[None]:
    """Tell the end of a task with the next prompt of its parent, not by itself."""
    yield from run("background_task_defer", session_id=session_id)


def take_task(session_id: str, *, is_note: bool) -> Script[None]:
    """Remove a task because this transaction tells its end; raises `AlreadyTold`. Only a note,
    which is not to be answered, tells that of a deferred one."""
    found = yield from row("background_task_get", session_id=session_id)
    if found is None or (found[0] == _DEFERRED and not is_note):
        raise AlreadyTold(session_id)
    yield from drop_task(session_id)


def background_tasks() -> Script[list[BackgroundTask]]:
    """Every task whose end was not told yet."""
    now = yield from clock()
    return [
        BackgroundTask(
            session_id=session_id,
            parent_id=parent_id,
            prompt_id=prompt_id,
            title=title,
            owner=owner,
            expired=expires <= now,
        )
        for session_id, parent_id, prompt_id, title, owner, expires in (
            yield from rows("background_task_list")
        )
    ]
