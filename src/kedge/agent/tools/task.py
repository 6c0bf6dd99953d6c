"""The tool `task`: gives work to another agent, in a session of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, Tool, ToolFailure, schema_of, tool
from kedge.domain.agents import AgentInfo
from kedge.model.port import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskArguments:
    """What a task is, as the model or a person says."""

    description: str
    prompt: str
    subagent_type: str
    task_id: str | None = None
    command: str | None = None
    background: bool | None = None


@tool(
    "task",
    description="""
    Gives a task to another agent. It works in a session of its own, with the same files, and knows
    nothing of this conversation; you get its last message, and the person does not see that.

    - Write into the prompt all that it needs: what to find out or to change, what you know already,
      what to leave alone, and what its last message has to say.
    - Give tasks that do not depend on each other in one message: they run at the same time. Do not
      let two of them change the same files.
    - Do not give away what you can do in one or two calls yourself.
    - Its answer names the task. Pass that as `task_id` to go on with the same agent, which then
      remembers what it did.
    - What it reports may be wrong. Check what matters before you build on it.
    """,
)
async def _task(
    call: Call,
    description: Annotated[str, "What the task is, in three to five words"],
    prompt: Annotated[str, "The task, with all that the agent needs to know"],
    subagent_type: Annotated[str, "The name of the agent"],
    task_id: Annotated[str | None, "An earlier task of this session to go on with"] = None,
    command: Annotated[str | None, "The command that asked for this, if one did"] = None,
    background: Annotated[
        bool | None, "Do not wait: you are told when the task has ended. Do not ask for it before"
    ] = None,
) -> Output:
    if call.subagents is None:
        raise ToolFailure("There are no other agents here. Do it yourself.")
    wanted = TaskArguments(
        description=description,
        prompt=prompt,
        subagent_type=subagent_type,
        task_id=task_id,
        command=command,
        background=background,
    )
    return await call.subagents.run(call, wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTool(Tool):
    """The tool as one agent is offered it."""

    agents: Sequence[AgentInfo] = ()
    """Those that it may name."""
    has_background: bool = False

    @property
    def spec(self) -> ToolSpec:
        """The definition for the model."""
        listed = [f"- {each.name}: {each.description or 'not described'}" for each in self.agents]
        told = "\n".join(
            [self.description, "", "The agents:", *listed] if listed else [self.description]
        )
        return ToolSpec(name=self.name, description=told, parameters=self._parameters())

    def _parameters(self) -> dict[str, Any]:
        given = schema_of(self.arguments)
        if self.has_background:
            return given
        shown = {name: each for name, each in given["properties"].items() if name != "background"}
        return {**given, "properties": shown}


task = TaskTool(**{each.name: getattr(_task, each.name) for each in fields(_task)})
