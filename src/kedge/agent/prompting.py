"""What may be asked of an agent, in the form in which callers say it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from kedge.domain.errors import InvalidInput
from kedge.domain.messages import MessageModel, OutputFormat
from kedge.domain.parts import Part
from kedge.engine.session import Session

PromptParts: TypeAlias = str | Sequence[Part | dict[str, Any]]
"""A prompt: text, or parts, or plain objects that have their shape."""


class AnswerOptions(TypedDict, total=False):
    """What may be said with a prompt that is to be answered; the rest is the configuration's to
    say."""

    agent: str | None
    model: MessageModel | str | None
    """The model, or `provider/model`."""
    variant: str | None
    system: str | None
    """Added to what the model is told before the conversation."""
    tools: dict[str, bool] | None
    """Tools to leave out, or `"*": False` and those to keep."""
    format: OutputFormat | None
    message_id: str | None
    """A prompt that is there already is not asked again."""


class PromptOptions(AnswerOptions, total=False):
    """What may be said with any prompt."""

    no_reply: bool
    """Only store the prompt."""


def check_session(session: object) -> None:
    """Refuse what is no session."""
    if not isinstance(session, Session):
        raise InvalidInput("give a session, as engine.sessions.get(id) does", field="session")


def check_options(options: Mapping[str, object]) -> None:
    """Refuse options that a prompt does not have."""
    if unknown_ones := sorted(set(options) - set(PromptOptions.__annotations__)):
        known = ", ".join(sorted(PromptOptions.__annotations__))
        wrong = ", ".join(unknown_ones)
        raise InvalidInput(f"a prompt has no {wrong}; it has {known}", field=unknown_ones[0])
