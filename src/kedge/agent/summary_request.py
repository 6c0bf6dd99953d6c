"""The request for a summary: the conversation as plain text, and how it is to be summarized."""

from collections.abc import Iterator, Sequence

import msgspec

from kedge.agent.context_size import tokens_of_text
from kedge.agent.model_input import PRUNED
from kedge.domain.conversation import PlacedMessage
from kedge.domain.messages import UserMessage
from kedge.domain.parts import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCompleted,
    ToolError,
    ToolPart,
)

_TAGS = _CONVERSATION, _PRIOR_SUMMARY = "conversation", "prior-summary"
_CUTS = ((2_000, None), (500, None), (100, 2_000), (100, 500))
"""To how many characters outputs of tools are cut, and all other texts: the first that let the
request fit."""

_HOW = """\
Write the summary of this conversation. Whoever continues the work sees your summary instead of \
the conversation, so what you leave out is lost.{prior}

Answer with these sections in Markdown, in this order, and nothing else:

## Objective
What the user wants, in one or two sentences.

## Important Details
What the user decided, asked for and ruled out, and what was found out on the way.

## Work State
### Completed
### Active
### Blocked

## Next Move
The next steps, the first one first. If everything that was asked for is done, say so.

## Relevant Files
Each file with the reason why it matters.

Keep paths, commands, names and error messages exactly as they are. Write "(none)" in a section \
without content. Do not go on with the work and do not answer questions of the conversation."""

_PRIOR = """ The text in <prior-summary> stands for what came before: merge it into yours, and \
drop only what no longer holds."""


def summary_request(
    messages: Sequence[PlacedMessage], prior: str | None, most_tokens: int | None
) -> str:
    """The text that asks for a summary of these messages; `prior` is the summary before."""
    text = ""
    for cut, cut_text in _CUTS:
        lines = [_cut(line, cut_text) for each in messages for line in _lines(each, cut)]
        told = [_inside(_CONVERSATION, "\n".join(lines))]
        if prior is not None:
            told.append(_inside(_PRIOR_SUMMARY, prior))
        told.append(_HOW.format(prior="" if prior is None else _PRIOR))
        text = "\n\n".join(told)
        if most_tokens is None or tokens_of_text(text) <= most_tokens:
            break
    return text


def _inside(tag: str, text: str) -> str:
    # What it quotes must not end it, nor begin to look like the other one.
    for name in _TAGS:
        text = text.replace(f"</{name}>", f"<\\/{name}>")
    return f"<{tag}>\n{text}\n</{tag}>"


def _lines(placed: PlacedMessage, cut: int) -> Iterator[str]:
    is_user = isinstance(placed.message.info, UserMessage)
    for part in placed.message.parts:
        yield from _lines_of_user(part) if is_user else _lines_of_model(part, cut)


def _lines_of_user(part: Part) -> Iterator[str]:
    match part:
        case TextPart(text=text, ignored=ignored) if text.strip() and not ignored:
            yield f"[User]: {text}"
        case FilePart():
            yield f"[User]: {attached(part)}"


def _lines_of_model(part: Part, cut: int) -> Iterator[str]:
    match part:
        case TextPart(text=text) if text.strip():
            yield f"[Assistant]: {text}"
        case ReasoningPart(text=text) if text.strip():
            yield f"[Assistant reasoning]: {text}"
        case ToolPart(tool=tool, state=state):
            yield f"[Assistant tool call]: {tool}({msgspec.json.encode(state.input).decode()})"
            if isinstance(state, ToolCompleted):
                output = PRUNED if state.time.compacted is not None else state.output
                yield f"[Tool result]: {_cut(output, cut)}"
                for each in state.attachments or ():
                    yield f"[Tool result]: {attached(each)}"
            elif isinstance(state, ToolError):
                yield f"[Tool error]: {_cut(state.error, cut)}"


def attached(file: FilePart) -> str:
    """A file as text."""
    return f"[Attached {file.mime}: {file.filename or 'file'}]"


def _cut(text: str, length: int | None) -> str:
    return text if length is None or len(text) <= length else f"{text[:length]}[truncated]"
