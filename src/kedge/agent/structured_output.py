"""Structured output: answers as a JSON object that fits a schema, which the model gives by calling
a tool."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from kedge.agent.json_schema import check_schema, mismatch
from kedge.agent.model_input import followed_by
from kedge.agent.step import Answering
from kedge.agent.tools.tool import Output, Tool, ToolFailure
from kedge.domain.errors import InvalidInput
from kedge.domain.messages import ANSWER_TOOL, JsonSchemaFormat, OutputFormat, UserMessage
from kedge.domain.wire_errors import structured_output
from kedge.engine.steps import Step
from kedge.model.port import ModelRequest, ToolSpec

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call

RETRIES = 2
"""How often the model is asked again, unless the prompt says otherwise."""
MOST_RETRIES = 100
_DESCRIPTION = """\
Gives the answer to the person's request, as data. The arguments are the answer: fill them in from \
what you found out. Call it once, when all other work is done; the turn ends with it."""
WANTED = f"""\
# The form of the answer
The answer to this prompt is read by a program. Use the other tools as you need them. When you \
know the answer, give it by calling the tool `{ANSWER_TOOL}`, with arguments that fit its schema. \
Text alone is not an answer here."""
ASKED_AGAIN = f"""\
There is no answer yet that fits. Call the tool `{ANSWER_TOOL}` now, with arguments that fit its \
schema; text alone is not read."""
LAST_CALL = f"""\
This is the last step of this turn. Call the tool `{ANSWER_TOOL}` now with what you know; no other \
tool can be called."""


def check_format(format: OutputFormat | None) -> None:
    """Refuse a format that no answer can have."""
    if not isinstance(format, JsonSchemaFormat):
        return
    if not isinstance(format.schema, Mapping):
        raise InvalidInput("format.schema must be a JSON schema", field="format.schema")
    check_schema(format.schema, "format.schema")
    if not 0 <= (format.retryCount or 0) <= MOST_RETRIES:
        raise InvalidInput(
            f"format.retryCount must be from 0 to {MOST_RETRIES}", field="format.retryCount"
        )


class AnyInput(msgspec.Struct):
    """Arguments that a schema of the client describes, and no Python type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTool(Tool):
    """The tool that takes the answer."""

    wanted: "WantedAnswer"

    @property
    def spec(self) -> ToolSpec:
        """The definition for the model, with the client's schema."""
        schema = {key: value for key, value in self.wanted.schema.items() if key != "$schema"}
        return ToolSpec(
            name=self.name, description=self.description, parameters={"type": "object", **schema}
        )

    async def __call__(self, call: "Call", input: Mapping[str, Any]) -> Output:
        """Take the answer if it fits."""
        return await self.wanted.take(input)


@dataclass(slots=True)
class WantedAnswer:
    """The structured answer to one prompt, until it is there or given up."""

    schema: Mapping[str, Any]
    retries: int = RETRIES
    value: Mapping[str, Any] | None = None
    tool: AnswerTool = field(init=False, repr=False)
    _problem: str | None = None
    """Why the last answer did not fit."""
    _misses: int = 0
    """How often the model was asked again."""
    _can_be_called: bool = True

    def __post_init__(self) -> None:
        self.tool = AnswerTool(
            name=ANSWER_TOOL,
            description=_DESCRIPTION,
            arguments=AnyInput,
            run=_never_run,
            permission=ANSWER_TOOL,
            limits_itself=True,
            wanted=self,
        )

    @classmethod
    def of(cls, prompt: UserMessage) -> "WantedAnswer | None":
        """What a prompt wants, if it wants a structured answer."""
        if not isinstance(prompt.format, JsonSchemaFormat):
            return None
        retries = prompt.format.retryCount
        return cls(prompt.format.schema, RETRIES if retries is None else retries)

    async def take(self, input: Mapping[str, Any]) -> Output:
        """Check an answer; a wrong one is an error that the model is told."""
        problem = await asyncio.to_thread(mismatch, dict(input), self.schema)
        if problem is not None:
            self._problem = problem
            raise ToolFailure(
                f"The answer does not fit the schema: {problem}. Correct it and call {ANSWER_TOOL}"
                " again."
            )
        self.value = input
        return Output(
            "Structured output captured successfully.",
            title="Structured Output",
            metadata={"valid": True},
        )

    def requested(self, request: ModelRequest, *, is_last: bool) -> ModelRequest:
        """The request of a step that should give the answer."""
        self._can_be_called = bool(request.tools)
        told = ASKED_AGAIN if self._misses else None
        if is_last:
            told = LAST_CALL
        return replace(
            request,
            system=(*request.system, WANTED),
            turns=request.turns if told is None else followed_by(request.turns, told),
            tool_choice="required",
        )

    def callable_of(self, tools: dict[str, Tool], *, is_last: bool) -> dict[str, Tool]:
        """The tools that the model may call: in the last step, the one that takes the answer."""
        return {ANSWER_TOOL: self.tool} if is_last else tools

    def settle(self, step: Step, answering: Answering, *, is_last: bool) -> bool:
        """Put the answer, or the error of a turn without one, into the step's message; return
        whether another step may bring it."""
        if self.value is not None:
            step.structured = self.value
            return False
        problem, self._problem = self._problem, None
        if answering.goes_on and problem is None and not is_last:
            # It works on it with other tools.
            return True
        final = self._final(answering, is_last=is_last)
        if final is None:
            self._misses += 1
            return True
        why = "; ".join(filter(None, (problem or f"it did not call {ANSWER_TOOL}", final)))
        step.error = structured_output(
            f"Model did not produce structured output: {why}", self._misses
        )
        return False

    def _final(self, answering: Answering, *, is_last: bool) -> str | None:
        """Why the model is not asked again, empty if there is nothing more to say; None if it
        is."""
        if answering.was_rejected:
            return "a person rejected a call"
        if not self._can_be_called:
            return "it cannot call tools, so choose another model"
        if is_last:
            return "the turn had no more steps"
        return "" if self._misses >= self.retries else None


async def _never_run() -> Output:
    raise AssertionError("the tool takes its arguments as they are")
