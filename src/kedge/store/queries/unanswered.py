"""Prompts without an answer: which run has them, and how they are closed if there will be none.

A run that ends normally has answered its prompts. After any other end, each prompt is either
answered after the next start, once, or gets an answer that says why it is not.
"""

from collections.abc import Iterable, Sequence

import msgspec

from kedge.domain import wire
from kedge.domain.conversation import PromptState
from kedge.domain.ids import IdMaker
from kedge.domain.messages import AssistantMessage, MessagePath, MessageTime, UserMessage
from kedge.domain.sessions import NO_TOKENS, SessionInfo
from kedge.domain.wire_errors import Failure
from kedge.store.queries.messages import change_message, put_message_of
from kedge.store.queries.sessions import lock_session
from kedge.store.rows import join_message
from kedge.store.transaction import Script, row, rows, run


def state_of(awaiting: int) -> tuple[PromptState, int | None]:
    """The state in a stored number, and the position of the newer prompt that it was answered with,
    if any."""
    if awaiting <= PromptState.JOINED:
        return PromptState.JOINED, PromptState.JOINED - awaiting
    return PromptState(awaiting), None


def unanswered(session_id: str, *states: PromptState) -> Script[list[UserMessage]]:
    """The prompts of a session that are in one of these states, oldest first."""
    found = yield from rows("message_unanswered", session_id=session_id)
    return [
        wire.decode(join_message(session_id, each[:5]), UserMessage)
        for each in found
        if each[5] in states
    ]


def set_state(session_id: str, prompts: Iterable[UserMessage], state: PromptState) -> Script[None]:
    """Set the state of prompts."""
    for prompt in prompts:
        yield from run(
            "message_set_awaiting", session_id=session_id, id=prompt.id, awaiting=int(state)
        )


def leave_prompts(session_id: str) -> Script[None]:
    """Handle a run that ended involuntarily: what it has not begun to answer is left, or spent."""
    yield from run("message_leave", session_id=session_id)


def settle_taken(session_id: str) -> Script[None]:
    """Settle the prompts that the run has accepted: it has answered them."""
    yield from run("message_settle_taken", session_id=session_id)


def settle_answered(session_id: str, id: str) -> Script[None]:
    """Settle a prompt that the run begins to answer, and with it all others that it has
    accepted."""
    yield from run("message_settle_answered", session_id=session_id, id=id)


def tell_unanswered(
    info: SessionInfo, prompts: Sequence[UserMessage], error: Failure, ids: IdMaker, now: int
) -> Script[None]:
    """Give each of these prompts of a locked session an answer that says why there is no other."""
    for prompt in prompts:
        locked = yield from lock_session(info.id)
        yield from put_message_of(locked, _answer(info, prompt, error, ids, now))
    yield from set_state(info.id, prompts, PromptState.SETTLED)


def _answer(
    info: SessionInfo, prompt: UserMessage, error: Failure, ids: IdMaker, now: int
) -> AssistantMessage:
    model = prompt.model
    return AssistantMessage(
        id=ids.message(),
        sessionID=info.id,
        parentID=prompt.id,
        mode=prompt.agent,
        agent=prompt.agent,
        modelID=model.modelID,
        providerID=model.providerID,
        variant=model.variant,
        path=MessagePath(cwd=info.directory, root=info.worktree),
        cost=0,
        tokens=NO_TOKENS,
        time=MessageTime(created=now, completed=now),
        error=error,
    )


def say_cut_off(info: SessionInfo, error: Failure, first_pos: int) -> Script[None]:
    """If the run of a locked session ended between two steps, say so in its last answer. Messages
    before the run's first one belong to other runs, which may end a turn as they like."""
    found = yield from row("message_newest_answer", session_id=info.id, first_pos=first_pos)
    if found is None:
        return
    message = wire.decode(join_message(info.id, found), AssistantMessage)
    is_answered = message.error is not None or message.structured is not None
    if not is_answered and message.finish in (None, "tool-calls"):
        yield from change_message(info, msgspec.structs.replace(message, error=error))
