"""One call of a tool inside a real turn, with a person who answers from a script."""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kedge
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, Tool
from kedge.domain.parts import ToolPart
from kedge.domain.permissions import PermissionRule, matching
from kedge.domain.questions import QuestionInfo
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.steps import Step


class Rejected(Exception):
    """The person said no."""


@dataclass(frozen=True)
class Ask:
    """What a call asked permission for."""

    permission: str
    patterns: list[str]
    always: list[str]
    metadata: Mapping[str, Any]


@dataclass
class Person:
    """Allows what is asked, unless told otherwise, and remembers it."""

    asked: list[Ask] = field(default_factory=list)
    answers: list[list[str]] = field(default_factory=list)
    questions: list[QuestionInfo] = field(default_factory=list)
    rejects: set[str] = field(default_factory=set)
    """Permissions that are not given."""
    rules: list[PermissionRule] = field(default_factory=list)
    asks_for: set[str] = field(default_factory=set)
    """Texts for which rules alone allow nothing."""
    meanwhile: Callable[[Ask], Awaitable[None]] | None = None
    """What happens before the answer."""

    async def permission(
        self,
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str],
        metadata: Mapping[str, Any],
        call: Call,
    ) -> None:
        """Remember, let things happen, answer."""
        ask = Ask(permission, list(patterns), list(always), metadata)
        self.asked.append(ask)
        if self.meanwhile is not None:
            await self.meanwhile(ask)
        if permission in self.rejects:
            raise Rejected(permission)

    @property
    def withheld(self) -> Collection[str]:
        """Programs are told everything."""
        return ()

    async def forbid(self, permission: str, texts: Iterable[str], *, call: Call) -> list[str]:
        """Nothing is denied but what is not given."""
        if permission in self.rejects and list(texts):
            raise Rejected(permission)
        return []

    async def rule(self, permission: str, text: str, *, call: Call) -> PermissionRule:
        """The last rule of the script that matches, else one that allows everything."""
        found = matching(permission, text, self.rules)
        return found or PermissionRule(permission="*", pattern="*", action="allow")

    async def unasked(self, permission: str, texts: Iterable[str], *, call: Call) -> set[str]:
        """All but those that have to be asked for."""
        return {text for text in texts if text not in self.asks_for}

    async def question(self, questions: Sequence[QuestionInfo], *, call: Call) -> list[list[str]]:
        """The answers of the script."""
        self.questions += questions
        return self.answers

    @property
    def permissions(self) -> list[str]:
        """What was asked for, in order."""
        return [ask.permission for ask in self.asked]


@dataclass
class Scene:
    """A session in a folder, and a person beside it."""

    folder: Path
    engine: Engine
    session: Session
    person: Person = field(default_factory=Person)
    prompts: list[str] = field(default_factory=list)
    """The ids of the prompts of the turns."""

    @asynccontextmanager
    async def step(self) -> AsyncIterator[Step]:
        """A turn of one step."""
        async with self.session.turn("Go on") as turn, turn.step() as step:
            self.prompts.append(turn.message.id)
            yield step

    async def run(self, tool: Tool, **input: Any) -> Output:  # noqa: ANN401 - any arguments
        """A turn with one call."""
        async with self.step() as step:
            return await self.call(step, tool, **input)

    async def call(self, step: Step, tool: Tool, **input: Any) -> Output:  # noqa: ANN401
        """One call, stored as the loop stores it; raises what the tool raised."""
        failed: Exception | None = None
        async with step.tool(tool.name, input) as running:
            try:
                output = await tool(Call(step, running, self.person), input)
            except Exception as error:  # noqa: BLE001 - raised again below
                running.fail(str(error))
                failed = error
            else:
                running.output, running.title = output.text, output.title
                running.metadata.update(output.metadata)
        if failed is not None:
            raise failed
        return output

    async def tool_parts(self) -> list[ToolPart]:
        """All calls of the session as they are stored."""
        page = await self.session.messages()
        return [p for m in page.messages for p in m.parts if isinstance(p, ToolPart)]


@asynccontextmanager
async def scene_in(
    folder: Path,
    database: Path,
    **options: Any,  # noqa: ANN401 - as kedge.open
) -> AsyncIterator[Scene]:
    """A new session in a folder."""
    async with kedge.open(folder, database=str(database), **options) as engine:
        yield Scene(folder, engine, await engine.sessions.create())
