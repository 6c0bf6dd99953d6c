"""A person's own shell command, recorded in the session as if the agent had run it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kedge.agent.output_limit import note_limit
from kedge.agent.tools.bash import run_shell
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import ToolFailure
from kedge.config.values import ToolOutputConfig
from kedge.domain.questions import QuestionInfo
from kedge.engine.turns import Turn

OWN_COMMAND = "The following tool was executed by the user"


class _Owner:
    """A person needs nobody's permission."""

    withheld = ()

    async def permission(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str],
        metadata: Mapping[str, Any],
        call: Call,
    ) -> None:
        """It may."""

    async def forbid(self, permission: str, texts: Iterable[str], *, call: Call) -> list[str]:
        """It may."""
        return []

    async def unasked(self, permission: str, texts: Iterable[str], *, call: Call) -> set[str]:
        """It may do all of it."""
        return set(texts)

    async def question(self, questions: Sequence[QuestionInfo], *, call: Call) -> list[list[str]]:
        """A command asks nothing."""
        raise AssertionError("a shell command asks no questions")


async def run_own_command(
    turn: Turn, *, command: str, is_protected: bool, limit: ToolOutputConfig
) -> None:
    """Run a command as the only call of the turn's only step."""
    turn.is_protected = turn.is_protected and is_protected
    async with turn.step() as step:
        async with step.tool("bash", {"command": command}) as running:
            try:
                output = await run_shell(Call(step, running, _Owner(), limit=limit), command)
            except ToolFailure as failure:
                running.fail(str(failure))
            else:
                running.output, running.title = output.text, output.title
                running.metadata = {**output.metadata, **note_limit(output.text, limit)}
        step.finish = "stop"
