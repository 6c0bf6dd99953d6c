"""What tests of subtasks ask of a scene: calls that give tasks, and the sessions of these."""

import asyncio
from typing import Any

from kedge.domain.messages import MessageWithParts
from kedge.domain.parts import ToolCompleted, ToolError, ToolPart, ToolRunning
from kedge.domain.sessions import SessionInfo
from kedge.engine.session import Session
from tests.agent.world import Scene, tools_of
from tests.support.timeouts import PATIENCE


async def calls(scene: Scene, session: Session | None = None) -> list[ToolPart]:
    """The calls of `task` in a session, oldest first."""
    found = await scene.messages(session)
    return [part for each in found for part in tools_of(each) if part.tool == "task"]


def metadata_of(part: ToolPart) -> dict[str, Any]:
    """What clients are told of a call beside its output."""
    assert isinstance(part.state, ToolRunning | ToolCompleted | ToolError)
    return part.state.metadata or {}


def output_of(part: ToolPart) -> str:
    """What a call gave back."""
    assert isinstance(part.state, ToolCompleted), part.state
    return part.state.output


def result(id: str, text: str, *, state: str = "completed") -> str:
    """A task's result as the model gets it."""
    return f'<task id="{id}" state="{state}">\n<task_result>\n{text}\n</task_result>\n</task>'


async def children(scene: Scene, session: Session | None = None) -> list[Session]:
    """The subtasks of a session, oldest first."""
    found = await (session or scene.session).children()
    return sorted(found, key=lambda each: each.info.time.created)


async def info_of(session: Session) -> SessionInfo:
    """A session as it is stored now."""
    return (await session.refresh()).info


async def begin(scene: Scene, text: str, **options: Any) -> asyncio.Task[MessageWithParts]:  # noqa: ANN401
    """Ask, and let it run."""
    task = asyncio.create_task(scene.prompt(text, **options))
    scene.tasks.append(task)
    return task


async def child_of(scene: Scene, number: int = 0) -> Session:
    """A subtask of the session, when its first words were heard."""
    async with asyncio.timeout(PATIENCE):
        while len(found := await children(scene)) <= number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await scene.heard.until(
        lambda event: (
            getattr(event, "sessionID", "") == found[number].id
            and type(event).__name__ == "PartDelta"
        )
    )
    return found[number]
