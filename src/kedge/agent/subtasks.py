"""What a prompt says of other agents: subtasks that it gives them, and names that it mentions."""

from collections.abc import Sequence
from typing import Any

from kedge.agent.agents import Agents
from kedge.agent.runner import PromptParts
from kedge.agent.step import store_failure, store_output
from kedge.agent.subagents import Subagents
from kedge.agent.tools.bash import PersonAsker
from kedge.agent.tools.call import Call
from kedge.agent.tools.task import TaskArguments
from kedge.agent.tools.tool import ToolFailure
from kedge.config.values import ToolOutputConfig
from kedge.domain.conversation import PromptState
from kedge.domain.errors import KedgeError
from kedge.domain.messages import MessageModel
from kedge.domain.parts import AgentPart, Part, SubtaskPart
from kedge.engine.prompts import Prompt
from kedge.engine.turns import Turn

_GO_ON = "Say what came of the task above, and go on with your work."


def with_mentions(given: PromptParts, agents: Agents, agent: str) -> PromptParts:
    """The parts of a prompt, with what the model is told about each agent that it mentions. Raises
    `AgentNotFound` if a subtask is for an unknown one."""
    if not isinstance(given, list | tuple):
        return given
    parts: list[Part | dict[str, Any]] = []
    for part in given:
        parts.append(part)
        kind, name = _named(part)
        if kind == "subtask" and name is not None:
            _ = agents.get(name)
        if kind == "agent" and name is not None:
            denied = agents.rulebook(agent).decide("task", name).action == "deny"
            parts.append({"type": "text", "text": _mention(name, denied), "synthetic": True})
    return parts


def _named(part: Part | dict[str, Any]) -> tuple[str | None, str | None]:
    """The kind of a part that names an agent, and the name."""
    match part:
        case AgentPart(name=name):
            return "agent", name
        case SubtaskPart(agent=name):
            return "subtask", name
        case {"type": "agent", "name": str(name)}:
            return "agent", name
        case {"type": "subtask", "agent": str(name)}:
            return "subtask", name
    return None, None


def _mention(name: str, denied: bool) -> str:
    more = " You may call it here, because the person asked for it." if denied else ""
    return (
        f"The person wants the agent {name} for this: call the tool task with subagent_type {name},"
        f" and write into its prompt what it has to do and to know.{more}"
    )


async def run_subtasks(
    turn: Turn, prompts: Sequence[str], subagents: Subagents, *, limit: ToolOutputConfig
) -> bool:
    """Run the subtasks of some prompts of a turn, one after the other; return whether there were
    any."""
    parts = [
        part
        for id in prompts
        for part in (await turn.session.message(id)).parts
        if isinstance(part, SubtaskPart)
    ]
    for part in parts:
        await _run(turn, part, subagents, limit)
    if any(part.command is not None for part in parts):
        # Otherwise some models would take the task's result for the end of the conversation.
        text = {"type": "text", "text": _GO_ON, "synthetic": True}
        follow = Prompt(
            turn.engine,
            turn.session.id,
            [text],
            agent=turn.agent,
            model=turn.model,
            message_id=None,
        )
        await follow.queue(PromptState.WAITING)
        await turn.next_prompt()
    return bool(parts)


async def _run(
    turn: Turn, part: SubtaskPart, subagents: Subagents, limit: ToolOutputConfig
) -> None:
    """Run a subtask as the only call of a step."""
    wanted = TaskArguments(
        description=part.description,
        prompt=part.prompt,
        subagent_type=part.agent,
        command=part.command,
    )
    model = part.model and MessageModel(
        providerID=part.model.providerID, modelID=part.model.modelID
    )
    async with turn.step(model=model or turn.model, agent=part.agent) as step:
        async with step.tool("task", _input(wanted)) as running:
            call = Call(step, running, PersonAsker(), limit=limit, subagents=subagents)
            try:
                output = await subagents.run(call, wanted, is_persons=True)
                await store_output(running, output, call)
            except (ToolFailure, KedgeError) as error:
                await store_failure(running, str(error), call)
        step.finish = "tool-calls"


def _input(wanted: TaskArguments) -> dict[str, Any]:
    given = {
        "prompt": wanted.prompt,
        "description": wanted.description,
        "subagent_type": wanted.subagent_type,
        "command": wanted.command,
    }
    return {name: value for name, value in given.items() if value is not None}
