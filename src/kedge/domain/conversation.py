"""A conversation as those who answer prompts read it: messages with their places, and what becomes
of prompts."""

from dataclasses import dataclass
from enum import IntEnum

from kedge.domain.messages import MessageWithParts


class PromptState(IntEnum):
    """What becomes of a prompt: above 0 until it is answered, and 0 or less from then on."""

    JOINED = -3
    """It is answered with a newer prompt that was taken up along with it; what is stored is less
    than this by the place of that one."""
    NOTE = -2
    """Nobody is to answer it: it is read with the next prompt."""
    FAILED = -1
    """Its run failed before it began to answer, and nothing but an event tells of it. In a fork:
    it had no answer when the fork was made."""
    SETTLED = 0
    """A run began to answer it, or it says in an answer of its own why none did."""
    WAITING = 1
    """The run that there is will take it up."""
    TAKEN = 2
    """A run has it, and has said nothing yet. If the run dies, the prompt is left."""
    LEFT = 3
    """Its run died before it began to answer. It may be run once more."""
    TAKEN_LAST = 4
    """As `TAKEN`, for the last time: if the run dies, the prompt is spent."""
    SPENT = 5
    """It is not to be run; that has yet to be told."""
    WAITING_LAST = 6
    """As `WAITING`, for a program that answers by itself: if its run dies, the prompt is spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMessage:
    """A message as a value, with its place in the session and what becomes of it."""

    message: MessageWithParts
    pos: int
    state: PromptState = PromptState.SETTLED
    """Of a prompt; an answer has none."""
    joined: int | None = None
    """Where the newer prompt is that it was answered with."""
    size: int = 0
    """How long its JSON text is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Messages that follow a position, and what happened to others since a place in the log."""

    messages: list[PlacedMessage]
    more: bool
    """Whether further ones follow."""
    head: int
    """Where the log ended when this was read."""
    updated: frozenset[str]
    """Messages that were written, apart from their parts."""
    changed: frozenset[str]
    """Messages that are gone, or of which a part was written or is gone."""
    answered: frozenset[str]
    """Prompts that have an answer of their own behind the position."""

    @property
    def is_touched(self) -> bool:
        """Whether anything was written since, new messages included."""
        return bool(self.updated or self.changed)
