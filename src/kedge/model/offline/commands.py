"""The offline model's commands, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from kedge.domain import wire_errors
from kedge.domain.providers import (
    NO_LIMITS,
    Limits,
    ModelApi,
    ModelInfo,
    ProviderInfo,
    capabilities,
    modalities,
    model_info,
)
from kedge.model.port import ModelFailure

# Commands that call tools.


@dataclass(frozen=True, slots=True)
class Write:
    """Write a file."""

    file: str
    content: str


@dataclass(frozen=True, slots=True)
class EditFile:
    """Replace a text in a file, everywhere if `all`."""

    file: str
    old: str
    new: str
    all: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a file."""

    file: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read a file or a directory."""

    file: str
    offset: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Bash:
    """Run a command."""

    command: str


@dataclass(frozen=True, slots=True)
class Glob:
    """Find files by name."""

    pattern: str
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Grep:
    """Find text in files."""

    pattern: str
    path: str | None = None
    include: str | None = None


@dataclass(frozen=True, slots=True)
class ReadSkill:
    """Read a skill."""

    name: str


@dataclass(frozen=True, slots=True)
class ApplyPatch:
    """Apply a patch."""

    text: str


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One entry of the todo list."""

    content: str
    status: str = "pending"
    priority: str = "medium"


@dataclass(frozen=True, slots=True)
class WriteTodos:
    """Set the todo list."""

    items: tuple[TodoItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to choose from."""

    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the user a question."""

    question: str
    options: tuple[Option, ...]
    multiple: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read a page of the web."""

    url: str
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Give another agent a task, whose commands are a text."""

    agent: str
    text: str
    again: bool = False
    """Whether the last task goes on."""
    background: bool = False


@dataclass(frozen=True, slots=True)
class PlanExit:
    """Ask whether the plan is to be carried out."""


@dataclass(frozen=True, slots=True)
class CallTool:
    """Call any tool with any text as its arguments, JSON or not."""

    name: str
    raw: str = "{}"


@dataclass(frozen=True, slots=True)
class Structured:
    """Give the structured answer that the prompt wants: this text, JSON or not, or an example that
    fits its schema."""

    raw: str | None = None


# Commands that call no tool.


@dataclass(frozen=True, slots=True)
class Say:
    """Say a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Output a text as a thought."""

    text: str


@dataclass(frozen=True, slots=True)
class Show:
    """Say the results of the last calls."""


@dataclass(frozen=True, slots=True)
class Help:
    """List the commands."""


@dataclass(frozen=True, slots=True)
class Huge:
    """Say this many characters."""

    size: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a while."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class FinishWith:
    """Report this as the reason why the step ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail as `kind` says, at the first `times` attempts or at all of them."""

    kind: str
    times: int | None = None
    after: int | None = None
    """Milliseconds that the provider asks to wait."""


Offered: TypeAlias = (
    Write
    | EditFile
    | Delete
    | Read
    | Bash
    | Glob
    | Grep
    | ReadSkill
    | ApplyPatch
    | WriteTodos
    | Ask
    | Task
    | Fetch
    | PlanExit
)
Calling: TypeAlias = Offered | CallTool | Structured
Speaking: TypeAlias = Say | Think | Show | Help | Huge
Command: TypeAlias = Calling | Speaking | Wait | FinishWith | Fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The number of pieces in which something is streamed, and the pause between two of them."""

    pieces: int
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One command with its prefixes."""

    command: Command
    joined: bool = False
    """Whether it belongs to the same step as the line before."""
    tolerant: bool = False
    """Whether the script continues if a call of its step fails."""
    times: int | None = 1
    """In how many steps it is repeated; None is forever."""
    pace: Pace | None = None


PROVIDER = "kedge"
MODEL = "offline"


def offline_info() -> ModelInfo:
    """The model; it has no limits, costs nothing, and accepts any file without reading it."""
    return model_info(
        id=MODEL,
        providerID=PROVIDER,
        api=ModelApi(id=MODEL, url="", npm="kedge"),
        name="Offline",
        family="offline",
        abilities=capabilities(
            temperature=False,
            reasoning=True,
            attachment=True,
            input=modalities(image=True, pdf=True),
        ),
    )


def offline_models(configured: Mapping[str, Limits]) -> dict[str, ModelInfo]:
    """The offline model, and others like it that a configuration gives limits to."""
    offline = offline_info()
    named = {MODEL: NO_LIMITS, **configured}
    return {
        id: msgspec.structs.replace(
            offline, id=id, name=offline.name if id == MODEL else f"Offline, {id}", limit=limit
        )
        for id, limit in named.items()
    }


def offline_provider(configured: Mapping[str, Limits] | None = None) -> ProviderInfo:
    """The provider of the offline model, which always exists."""
    return ProviderInfo(
        id=PROVIDER,
        name="kedge",
        source="custom",
        env=[],
        options={},
        models=offline_models(configured or {}),
    )


TOO_LONG = (
    "The conversation is too long for the offline model: it has about {} tokens, and the"
    " configuration allows {}."
)
_PASSING = {
    "overloaded": (529, "The offline model plays an overloaded provider"),
    "rate-limit": (429, "The offline model plays a provider whose rate limit is reached"),
    "server": (500, "The offline model plays a provider with an internal error"),
    "connection": (None, "The offline model plays a connection that could not be made"),
    "cut": (None, "The offline model plays a connection that was lost in the middle"),
}
_LASTING = {
    "request": wire_errors.api(
        "The offline model plays a provider that refuses the request (fail request).",
        statusCode=400,
        isRetryable=False,
    ),
    "auth": wire_errors.provider_auth(
        PROVIDER, "The offline model plays a provider that refuses the key (fail auth)."
    ),
    "context": wire_errors.context_overflow(
        "The offline model plays a conversation that is too long for it (fail context)."
    ),
    "filter": wire_errors.content_filter(
        "The offline model plays a provider whose filter stopped the answer (fail filter)."
    ),
    "length": wire_errors.output_length(),
    "unknown": wire_errors.unknown(
        "The offline model plays an error without a name (fail unknown)."
    ),
}
FAULTS = (*_PASSING, *_LASTING)


def fault(kind: str, after: int | None) -> ModelFailure:
    """The failure for a kind; `after` is the time that the provider asks to wait, in ms."""
    if kind in _LASTING:
        return ModelFailure(_LASTING[kind])
    status, message = _PASSING[kind]
    failure = wire_errors.api(
        f"{message} (fail {kind}).",
        statusCode=status,
        isRetryable=True,
        responseHeaders=None if after is None else {"retry-after-ms": str(after)},
    )
    return ModelFailure(
        failure, retryable=True, retry_after=None if after is None else after / 1000
    )
