"""A conversation as those who answer prompts read it: messages with their places, and what becomes
of prompts."""

from dataclasses import dataclass, field
from enum import IntEnum

from kedge.domain.messages import MessageWithParts


class PromptState(IntEnum):
    """The state of a prompt: above 0 until it is answered, and 0 or less from then on."""

    JOINED = -3
    """Answered with a newer prompt that was accepted along with it; the stored number is this minus
    the position of that one."""
    NOTE = -2
    """Not to be answered: it is read with the next prompt."""
    FAILED = -1
    """Its run failed before it began to answer, and only an event says so. In a fork: it had no
    answer when the fork was made."""
    SETTLED = 0
    """A run began to answer it, or it has an answer that says why none did."""
    WAITING = 1
    """The current run will accept it."""
    TAKEN = 2
    """A run has it, and has not answered yet. If the run dies, the prompt is left."""
    LEFT = 3
    """Its run died before it began to answer. It may be run once more."""
    TAKEN_LAST = 4
    """Like `TAKEN`, for the last time: if the run dies, the prompt is spent."""
    SPENT = 5
    """Not to be run any more; it still needs an answer that says so."""
    WAITING_LAST = 6
    """Like `WAITING`, for a program that answers by itself: if its run dies, the prompt is
    spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLink:
    """What a prompt has to do with a task."""

    works_for: tuple[str, str] | None = None
    """For the prompt of a subtask: the message and the part of its parent that gave the task; by
    default the newest part. Nothing runs such a prompt again after its process died."""
    reports: str | None = None
    """The session of the background task whose end the prompt tells. It is told only once."""


NO_LINK = TaskLink()


class AlreadyTold(Exception):
    """The end of a background task was told already, or is told with the next prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMessage:
    """A message as a value, with its position in the session and its state."""

    message: MessageWithParts
    pos: int
    state: PromptState = PromptState.SETTLED
    """The state of a prompt; answers have none."""
    joined: int | None = None
    """The position of the newer prompt that it was answered with."""
    size: int = 0
    """The length of its JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarized:
    """The newest summary of a conversation, and which messages are read beside it."""

    prompt: PlacedMessage
    """The message with the compaction."""
    answer: PlacedMessage
    """The message with the summary."""
    first: int
    """The position of the first message that is read beside the summary."""
    tail: str | None = None
    """The message at this position, if some were kept that are older than the compaction."""
    parents: dict[str, int] = field(default_factory=dict)
    """The prompt that the first of them answers, if it is summarized, with its position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Messages that follow a position, and what happened to others since a position in the log."""

    messages: list[PlacedMessage]
    more: bool
    """Whether more messages follow."""
    head: int
    """The end of the log when this was read."""
    updated: frozenset[str]
    """Messages that were written, apart from their parts."""
    changed: frozenset[str]
    """Messages that were removed, or of which a part was written or removed."""
    answered: frozenset[str]
    """Prompts that have an answer of their own behind the position."""
    summary: Summarized | None = None
    """The newest summary; set if the conversation is read from its beginning."""

    @property
    def is_touched(self) -> bool:
        """Whether anything was written since, including new messages."""
        return bool(self.updated or self.changed)
