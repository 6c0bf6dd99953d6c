"""Compactions: summaries that stand for the older messages of a conversation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from kedge.domain import wire
from kedge.domain.conversation import PlacedMessage, PromptState, Summarized
from kedge.domain.events import SessionCompacted
from kedge.domain.messages import AssistantMessage, Message, UserMessage
from kedge.domain.parts import CompactionPart, Part, StepStartPart
from kedge.domain.sessions import Busy, TokenCount
from kedge.store.queries.fences import Fence
from kedge.store.queries.leases import status_event
from kedge.store.queries.messages import put_message_of, with_parts
from kedge.store.queries.parts import put_part
from kedge.store.queries.prompts import Change, put_prompt
from kedge.store.queries.sessions import about, lock_live_session
from kedge.store.rows import join_message
from kedge.store.transaction import Row, Script, row, rows, run

_LAST = 2**62
_FEW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPrompt:
    """A prompt that a compaction adds to the conversation."""

    message: UserMessage
    parts: Sequence[Part]
    change: Change


def newest_summary(session_id: str) -> Script[Summarized | None]:
    """The newest summary that is complete, if there is one.

    One whose first kept message was removed does not count: what is read without it is too much,
    but nothing is missing.
    """
    for pos, _, data in sorted(
        (yield from rows("part_compactions", session_id=session_id)), reverse=True
    ):
        prompt = yield from row("message_at", session_id=session_id, pos=pos)
        if prompt is None:
            continue
        answer = yield from _whole_answer(session_id, prompt)
        tail = wire.decode(data, _Compaction).tail_start_id
        start: Row | None = prompt
        if tail is not None:
            start = yield from row("message_get", session_id=session_id, id=tail)
        if answer is not None and start is not None:
            return (yield from _summarized(session_id, prompt, answer, start, tail))
    return None


def _whole_answer(session_id: str, prompt: Row) -> Script[Row | None]:
    found = yield from rows(
        "message_answer_rows", session_id=session_id, pos=prompt[4], parent_id=prompt[0]
    )
    for each in reversed(found):
        if is_whole_summary(wire.decode(join_message(session_id, each), Message)):
            return each
    return None


def _summarized(
    session_id: str, prompt: Row, answer: Row, start: Row, tail: str | None
) -> Script[Summarized]:
    placed = []
    for each in (prompt, answer):
        (text,) = yield from with_parts(session_id, [each])
        message = PlacedMessage(message=text.decoded(), pos=each[4], size=len(text.text))
        placed.append(message)
    parents: dict[str, int] = {}
    if start[2] is not None:
        parent = yield from row("message_get", session_id=session_id, id=start[2])
        if parent is not None and parent[4] < start[4]:
            parents[parent[0]] = parent[4]
    return Summarized(
        prompt=placed[0], answer=placed[1], first=start[4], tail=tail, parents=parents
    )


def is_whole_summary(message: Message) -> bool:
    """Whether a message is a summary that was written to its end."""
    return (
        isinstance(message, AssistantMessage)
        and bool(message.summary)
        and message.finish is not None
        and message.error is None
    )


def summary_of(session_id: str, prompt_id: str) -> Script[str | None]:
    """The id of the newest answer to a compaction, whether it is complete or not."""
    prompt = yield from row("message_get", session_id=session_id, id=prompt_id)
    if prompt is None:
        return None
    found = yield from rows(
        "message_answer_rows", session_id=session_id, pos=prompt[4], parent_id=prompt_id
    )
    return found[-1][0] if found else None


def last_counted(session_id: str) -> Script[AssistantMessage | None]:
    """The newest answer that says how many tokens there were."""
    pos, limit = _LAST, 1
    while found := (
        yield from rows("message_answers_back", session_id=session_id, pos=pos, limit=limit)
    ):
        for each in found:
            message = wire.decode(join_message(session_id, each), AssistantMessage)
            if message.finish is not None and message.error is None and _count(message.tokens):
                return message
        pos, limit = found[-1][4], _FEW
    return None


def _count(tokens: TokenCount) -> int | float:
    return tokens.total or tokens.input + tokens.output


def begin_summary(
    message: AssistantMessage,
    start: StepStartPart,
    opening: NewPrompt | None,
    *,
    fence: Fence,
    now: int,
) -> Script[AssistantMessage]:
    """Store a new summary, with the prompt that it answers unless that is stored already.

    Other prompts that the run has accepted are not answered by it.
    """
    locked = yield from lock_live_session(message.sessionID, fence)
    if opening is not None:
        yield from put_prompt(locked, opening.message, opening.parts, opening.change, now=now)
        yield status_event(locked.info, Busy())
        locked = yield from lock_live_session(message.sessionID, fence)
    stored = yield from put_message_of(locked, message)
    yield from run(
        "message_set_awaiting",
        session_id=message.sessionID,
        id=message.parentID,
        awaiting=int(PromptState.SETTLED),
    )
    yield status_event(locked.info, Busy())
    yield from put_part(start, now=now)
    assert isinstance(stored, AssistantMessage)
    return stored


def end_summary(
    end: Callable[[], Script[None]],
    part: CompactionPart,
    following: NewPrompt | None,
    *,
    fence: Fence,
    now: int,
) -> Script[None]:
    """Complete a summary together with what follows from it, so that no reader finds half of it."""
    yield from end()
    if part.tail_start_id is not None:
        yield from put_part(part, now=now)
    locked = yield from lock_live_session(part.sessionID, fence)
    if following is not None:
        # It is not run again after a crash: what it continues is not either.
        yield from put_prompt(
            locked,
            following.message,
            following.parts,
            following.change,
            now=now,
            state=PromptState.TAKEN_LAST,
        )
    yield about(locked.info, SessionCompacted(sessionID=part.sessionID), "")


class _Compaction(msgspec.Struct):
    tail_start_id: str | None = None
