"""What becomes of the messages of a conversation when it is compacted."""

from collections.abc import Sequence
from dataclasses import dataclass

from kedge.agent.context_size import tail_start, tokens_of_message
from kedge.agent.model_input import is_media
from kedge.domain.conversation import PlacedMessage
from kedge.domain.messages import AssistantMessage, UserMessage
from kedge.domain.parts import FilePart, TextPart, ToolCompleted, ToolPart

_WITHOUT_MEDIA = 2**40
"""More tokens than there are: the message is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What becomes of the messages of a conversation."""

    head: Sequence[PlacedMessage]
    """To be summarized."""
    tail: Sequence[PlacedMessage]
    """To be kept beside the summary."""
    replayed: Sequence[PlacedMessage] = ()
    """Prompts to be asked again."""


def plan_of(
    messages: Sequence[PlacedMessage],
    *,
    budget: int,
    most_turns: int | None,
    overflow: bool = False,
) -> CompactionPlan:
    """The plan for the messages that are read beside the newest summary; `budget` is how many
    tokens of them are kept."""
    replayed = _overflowing(messages) if overflow else []
    if replayed:
        first = replayed[0].pos
        messages = [each for each in messages if each.pos < first or waits(each)]
    start = len(messages)
    if not replayed:
        sizes = [
            _WITHOUT_MEDIA if overflow and _has_media(each) else tokens_of_message(each)
            for each in messages
        ]
        start = tail_start(messages, sizes, budget, most_turns) or len(messages)
    # What no model has read yet is not left to a summary.
    start = min([start, *(n for n, each in enumerate(messages) if waits(each))])
    return CompactionPlan(head=messages[:start], tail=messages[start:], replayed=replayed)


def _overflowing(messages: Sequence[PlacedMessage]) -> list[PlacedMessage]:
    """The prompts that did not fit: those that only the failed step has worked on, if something is
    left to summarize without them."""
    answers = [
        n for n, each in enumerate(messages) if isinstance(each.message.info, AssistantMessage)
    ]
    if not answers:
        return []
    start = answers[-2] + 1 if len(answers) > 1 else 0
    prompts = [each for each in messages[start : answers[-1]] if not waits(each)]
    return prompts if any(_is_typed(each) for each in messages[:start]) else []


def waits(placed: PlacedMessage) -> bool:
    """Whether no run has begun to answer a prompt."""
    return placed.state > 0 and isinstance(placed.message.info, UserMessage)


def _is_typed(placed: PlacedMessage) -> bool:
    return isinstance(placed.message.info, UserMessage) and any(
        not (isinstance(part, TextPart) and part.synthetic) for part in placed.message.parts
    )


def _has_media(placed: PlacedMessage) -> bool:
    return any(
        (isinstance(part, FilePart) and is_media(part))
        or (
            isinstance(part, ToolPart)
            and isinstance(part.state, ToolCompleted)
            and bool(part.state.attachments)
        )
        for part in placed.message.parts
    )


def newest_prompt(messages: Sequence[PlacedMessage]) -> UserMessage | None:
    found = [each.message.info for each in messages if not waits(each)]
    return next((info for info in reversed(found) if isinstance(info, UserMessage)), None)
