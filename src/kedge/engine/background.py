"""What subtasks come back with, and telling their parents the end of those that run in the
background.

The end of a background task is told once, by the process that ran it or, if that is gone, by
whichever finds the task first. If a person stopped it, it is told with the next prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kedge.domain.conversation import AlreadyTold, TaskLink
from kedge.domain.errors import SessionNotFound
from kedge.domain.messages import Answer, AssistantMessage, MessageModel
from kedge.domain.parts import TextPart, ToolError, ToolPart
from kedge.domain.sessions import NO_TOKENS, SessionInfo, TokenCount
from kedge.domain.wire_errors import is_aborted
from kedge.engine.prompts import Prompt
from kedge.store.queries.background import (
    BackgroundTask,
    background_tasks,
    defer_task,
    put_task,
)
from kedge.store.queries.totals import Totals, summed, totals_of

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

_STOPPED = (
    "A person stopped it. What it did so far stays. Do not begin it again unless you are asked to."
)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a subtask came back with."""

    session_id: str
    text: str = ""
    """Its last words or, if it failed, the reason."""
    is_error: bool = False
    is_cut_off: bool = False
    """Whether it has not come to an end of its own, or is still being stopped."""

    def block(self, summary: str | None = None) -> str:
        """The form in which models get it."""
        state = "error" if self.is_error else "completed"
        return task_block(self.session_id, state, self.text, summary, is_error=self.is_error)

    def report(self, title: str, ended: str | None = None) -> dict[str, Any]:
        """The part of a prompt that tells the parent the end of a background task."""
        ended = ended or ("failed" if self.is_error else "completed")
        text = self.block(f"Background task {ended}: {title}")
        return {"type": "text", "text": text, "synthetic": True}


def task_block(
    session_id: str, state: str, text: str, summary: str | None = None, *, is_error: bool = False
) -> str:
    """A task as models and clients know it."""
    tag = "task_error" if is_error else "task_result"
    lines = [f'<task id="{session_id}" state="{state}">']
    if summary is not None:
        lines.append(f"<summary>{summary}</summary>")
    return "\n".join([*lines, f"<{tag}>", text, f"</{tag}>", "</task>"])


class BackgroundTasks:
    """The subtasks that their parents do not wait for."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.running: set[str] = set()
        """The sessions of those that this engine runs."""

    async def put(self, session: "Session", prompt_id: str, title: str) -> None:
        """Store that the parent of a subtask does not wait for it any more."""
        assert session.info.parentID is not None
        runs = self._engine.runs
        task = BackgroundTask(
            session_id=session.id,
            parent_id=session.info.parentID,
            prompt_id=prompt_id,
            title=title,
            owner=runs.owner,
        )
        await self._engine.store.write(partial(put_task, task, ttl=runs.ttl))
        self.running.add(session.id)
        runs.keep()

    async def defer(self, session_id: str) -> None:
        """Tell the end of a task, if this is one, with the next prompt of its parent: a person
        stops it."""
        await self._engine.store.write(partial(defer_task, session_id))

    async def result(self, session_id: str, prompt_id: str) -> TaskResult:
        """What a subtask has answered to a prompt."""
        try:
            answer = await self._engine.conversations.last_answer(session_id, prompt_id)
        except SessionNotFound:
            deleted = "its session was deleted"
            return TaskResult(session_id, deleted, is_error=True, is_cut_off=True)
        if answer is None:
            return TaskResult(session_id, "it gave no answer", is_error=True, is_cut_off=True)
        is_cut_off = _is_cut_off(answer.info)
        if (why := _failure(answer)) is not None:
            return TaskResult(session_id, why, is_error=True, is_cut_off=is_cut_off)
        said = [part.text for part in answer.parts if isinstance(part, TextPart)]
        return TaskResult(session_id, said[-1] if said else "", is_cut_off=is_cut_off)

    async def left(self) -> list[BackgroundTask]:
        """The tasks that nothing runs any more, without those that a person stopped."""
        return [
            task for task in await self._engine.store.read(background_tasks) if self._is_left(task)
        ]

    def _is_left(self, task: BackgroundTask) -> bool:
        if task.is_deferred or task.session_id in self.running:
            return False
        runs = self._engine.runs
        return task.owner == runs.owner or not runs.is_open(task.owner, task.expired)

    async def tell_left(self, session_id: str) -> None:
        """Tell the end of a task that nothing runs any more. While a revert of the parent is
        pending it waits: what is stored there would make the revert final."""
        for task in await self.left():
            if task.session_id == session_id:
                await self._engine.runs.end_dead_run(task.parent_id)
                parent = await self._engine.sessions.get(task.parent_id)
                if parent.info.revert is None:
                    await self._tell([task], parent.info)

    async def tell_before_prompt(self, session: "Session") -> None:
        """Tell the end of a session's tasks that nothing runs any more, or that a person stopped:
        a prompt follows."""
        found = await self._engine.store.read(background_tasks)
        mine = [task for task in found if task.parent_id == session.id]
        due = [task for task in mine if task.is_deferred or self._is_left(task)]
        await self._tell(due, session.info)

    async def _tell(self, tasks: Sequence[BackgroundTask], parent: SessionInfo) -> None:
        for task in tasks:
            note = Prompt(
                self._engine,
                parent.id,
                [await self._report(task)],
                agent=parent.agent or "build",
                model=_model_of(parent),
                message_id=None,
                link=TaskLink(reports=task.session_id),
            )
            try:
                await note.add()
            except AlreadyTold:
                continue

    async def _report(self, task: BackgroundTask) -> dict[str, Any]:
        result = await self.result(task.session_id, task.prompt_id)
        if task.is_deferred and result.is_cut_off:
            return TaskResult(task.session_id, _STOPPED, is_error=True).report(
                task.title, "stopped"
            )
        return result.report(task.title)


def used_since(before: SessionInfo, after: SessionInfo) -> tuple[float, TokenCount]:
    """What a session and its subtasks have used between two states of it."""
    return summed(0, NO_TOKENS, _totals(after) + _totals(before).negative())


def _totals(info: SessionInfo) -> Totals:
    own, below = totals_of(info.cost, info.tokens), info.subtasks
    return own if below is None else own + totals_of(below.cost, below.tokens)


def _is_cut_off(info: AssistantMessage) -> bool:
    error = info.error
    return info.time.completed is None or (error is not None and is_aborted(error))


def _failure(answer: Answer) -> str | None:
    """Why a subtask failed, if its last message says so."""
    error = answer.info.error
    if error is not None:
        return str(error.data.get("message") or error.name)
    failed = [
        part.state.error
        for part in answer.parts
        if isinstance(part, ToolPart) and isinstance(part.state, ToolError)
    ]
    return failed[-1] if failed else None


def _model_of(info: SessionInfo) -> MessageModel | None:
    model = info.model
    if model is None:
        return None
    return MessageModel(providerID=model.providerID, modelID=model.id, variant=model.variant)
