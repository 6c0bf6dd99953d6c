"""Asking the offline model in a line, and playing the agent that does what it calls for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kedge.domain.messages import ANSWER_TOOL
from kedge.model.offline import OfflineModel
from kedge.model.port import (
    AssistantTurn,
    Finished,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCalled,
    ToolResult,
    ToolSpec,
    ToolUse,
    UserTurn,
)

NAMES = (
    *("read", "write", "edit", "apply_patch", "bash", "glob", "grep", "todowrite", "question"),
    *("webfetch", "plan_exit", ANSWER_TOOL),
)
TOOLS = tuple(ToolSpec(name=name, description=name, parameters={}) for name in NAMES)
Turn = UserTurn | AssistantTurn


def said_by_person(*texts: str | Text | ToolResult) -> UserTurn:
    """A turn of a person, or of tools."""
    return UserTurn(content=tuple(Text(text=t) if isinstance(t, str) else t for t in texts))


def said_by_model(text: str = "Well.") -> AssistantTurn:
    """An answer without calls."""
    return AssistantTurn(content=(Text(text=text),))


def request(
    *turns: Turn | str, tools: Sequence[ToolSpec] = TOOLS, attempt: int = 1
) -> ModelRequest:
    """A request; a bare text is a turn of a person."""
    made = tuple(said_by_person(turn) if isinstance(turn, str) else turn for turn in turns)
    return ModelRequest(system=(), turns=made, tools=tuple(tools), attempt=attempt)


async def events(asked: ModelRequest) -> list[ModelEvent]:
    """Everything that is heard."""
    async with OfflineModel().stream(asked) as stream:
        return [event async for event in stream]


@dataclass(frozen=True)
class Answer:
    """What was heard, in short."""

    text: str
    thought: str
    calls: tuple[ToolCalled, ...]
    finish: Finished


async def ask(*turns: Turn | str, **rest: int) -> Answer:
    """The answer to a conversation."""
    return in_short(await events(request(*turns, **rest)))  # type: ignore[arg-type]  # attempt


def in_short(heard: Sequence[ModelEvent]) -> Answer:
    """The answer that events make."""
    finish = heard[-1]
    assert isinstance(finish, Finished)
    return Answer(
        text="".join(event.text for event in heard if isinstance(event, TextDelta)),
        thought="".join(event.text for event in heard if isinstance(event, ReasoningDelta)),
        calls=tuple(event for event in heard if isinstance(event, ToolCalled)),
        finish=finish,
    )


def succeed(call: ToolCalled) -> ToolResult:
    """What a tool gives back that did what it was asked."""
    return ToolResult(call_id=call.call_id, name=call.name, output=f"{call.name} done")


def refuse(call: ToolCalled) -> ToolResult:
    """What a tool gives back that failed."""
    return ToolResult(call_id=call.call_id, name=call.name, output="no", is_error=True)


async def run(
    *turns: Turn | str, tool: Callable[[ToolCalled], ToolResult] = succeed, most: int = 20
) -> list[Answer]:
    """The answers of a whole turn, each call of a tool being answered by `tool`."""
    history = list(request(*turns).turns)
    answers: list[Answer] = []
    while len(answers) < most:
        answers.append(await ask(*history))
        if not answers[-1].calls:
            break
        history += after(answers[-1], tool)
    return answers


def after(
    answer: Answer, tool: Callable[[ToolCalled], ToolResult] = succeed
) -> Iterator[AssistantTurn | UserTurn]:
    """The turns that an answer with calls adds to a conversation."""
    calls = (ToolUse(call_id=c.call_id, name=c.name, input=c.input or {}) for c in answer.calls)
    texts = (Text(text=answer.text),) if answer.text else ()
    yield AssistantTurn(content=(*texts, *calls), model="kedge/offline")
    yield said_by_person(*(tool(call) for call in answer.calls))
