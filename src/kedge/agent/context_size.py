"""How much a model can take in, how much a conversation is, and what of it stays when it is
compacted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from kedge.agent.model_input import ModelTurn, turns_of
from kedge.config.values import CompactionConfig
from kedge.domain.conversation import PlacedMessage, PromptState
from kedge.domain.messages import UserMessage
from kedge.domain.parts import ToolCompleted, ToolPart
from kedge.domain.providers import ModelInfo
from kedge.domain.sessions import TokenCount
from kedge.model.port import Media, ModelRequest, ToolResult

_MOST_OUTPUT = 32_000
_MOST_RESERVED = 20_000
_TAIL = (2_000, 15_000)
"""The bounds of what is kept beside a summary, in tokens."""
_CHARACTERS_A_TOKEN = 4
_MEDIA = 1_600
"""The tokens of a picture, approximately."""
_UNPRUNED = 40_000
"""So many tokens of outputs are never pruned: the newest ones."""
_WORTH_PRUNING = 20_000
_OUTPUT_LIMIT = "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX"
_NO_AUTO, _NO_PRUNE = "OPENCODE_DISABLE_AUTOCOMPACT", "OPENCODE_DISABLE_PRUNE"


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What a model can take in, in tokens."""

    usable: int
    """How much a request may have, so that there is room for the answer."""
    start: int
    """From how much on the conversation is compacted."""


def context_size(
    info: ModelInfo, config: CompactionConfig, environ: Mapping[str, str]
) -> ContextSize | None:
    """What a model can take in; None if that is not known.

    At least half of it is used: many models are listed with an output as long as their context.
    """
    limit = info.limit
    if not limit.context:
        return None
    cap = _number(environ.get(_OUTPUT_LIMIT)) or _MOST_OUTPUT
    output = min(limit.output, cap) if limit.output else cap
    if limit.input:
        reserved = min(_MOST_RESERVED, output) if config.reserved is None else config.reserved
        usable = max(limit.input - reserved, limit.input // 2)
    else:
        usable = max(limit.context - output, limit.context // 2)
    share = config.threshold
    start = usable if share is None else min(usable, round(share * limit.context))
    return ContextSize(usable, max(1, start))


def is_automatic(config: CompactionConfig, environ: Mapping[str, str]) -> bool:
    """Whether conversations are compacted without being asked."""
    return config.auto and not _is_set(environ.get(_NO_AUTO))


def prunes(config: CompactionConfig, environ: Mapping[str, str]) -> bool:
    """Whether old outputs are pruned."""
    return config.prune and not _is_set(environ.get(_NO_PRUNE))


def _is_set(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true")


def _number(value: str | None) -> int:
    return int(value) if value and value.isascii() and value.isdigit() else 0


def total_of(tokens: TokenCount) -> float:
    """All tokens of a request and its answer: the next request begins with them."""
    return tokens.total or tokens.output + given_of(tokens)


def given_of(tokens: TokenCount) -> float:
    """The tokens of a request alone."""
    return tokens.input + tokens.cache.read + tokens.cache.write


def tokens_of_text(text: str) -> int:
    """The tokens of a text, approximately."""
    return round(len(text) / _CHARACTERS_A_TOKEN)


def tokens_of(turns: Sequence[ModelTurn]) -> int:
    """The tokens of a conversation, approximately."""
    characters = media = 0
    for turn in turns:
        for item in turn.content:
            if isinstance(item, Media):
                media += 1
                continue
            if isinstance(item, ToolResult):
                media += len(item.media)
                item = replace(item, media=())  # noqa: PLW2901
            characters += len(msgspec.json.encode(item).decode())
    return round(characters / _CHARACTERS_A_TOKEN) + media * _MEDIA


def tokens_around(request: ModelRequest) -> int:
    """The tokens of a request apart from its conversation, approximately."""
    tools = sum(
        len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.parameters))
        for tool in request.tools
    )
    return round((sum(map(len, request.system)) + tools) / _CHARACTERS_A_TOKEN)


def tokens_of_message(placed: PlacedMessage) -> int:
    """The tokens of one message of a conversation, approximately."""
    return tokens_of(turns_of([replace(placed, state=PromptState.SETTLED, joined=None)]))


def tail_budget(size: ContextSize | None, config: CompactionConfig) -> int:
    """How many tokens of the newest messages are kept beside a summary."""
    if config.preserve_recent_tokens is not None:
        return config.preserve_recent_tokens
    least, most = _TAIL
    return least if size is None else max(least, min(most, size.usable // 4))


def tail_start(
    messages: Sequence[PlacedMessage], sizes: Sequence[int], budget: int, most_turns: int | None
) -> int:
    """The index of the first message that is kept beside a summary; the number of messages if none
    is.

    Whole turns are kept while they fit; of the next one, the messages that fit.
    """
    begins = [n for n, each in enumerate(messages) if isinstance(each.message.info, UserMessage)]
    start, left, end = len(messages), budget, len(messages)
    for turns, begin in enumerate(reversed(begins)):
        if most_turns is not None and turns >= most_turns:
            return start
        size = sum(sizes[begin:end])
        if size > left:
            while end - 1 > begin and sizes[end - 1] <= left:
                end -= 1
                left -= sizes[end]
            return end
        start, left, end = begin, left - size, begin
    return start


def outputs_to_prune(messages: Sequence[PlacedMessage]) -> list[tuple[str, str]]:
    """The calls whose outputs are old enough to be pruned, each by its message and part; none if
    that is not worth it. `messages` begin behind the newest summary."""
    turns, total, worth = 0, 0, 0
    found: list[tuple[str, str]] = []
    for each in reversed(messages):
        if isinstance(each.message.info, UserMessage):
            turns += 1
            continue
        if turns < 2:
            continue
        for part in reversed(each.message.parts):
            if not (isinstance(part, ToolPart) and isinstance(part.state, ToolCompleted)):
                continue
            if part.state.time.compacted is not None:
                return found if worth > _WORTH_PRUNING else []
            if part.tool == "skill":
                continue
            size = tokens_of_text(part.state.output)
            total += size
            if total > _UNPRUNED:
                worth += size
                found.append((each.message.info.id, part.id))
    return found if worth > _WORTH_PRUNING else []
