"""Turns: what a run stores when it begins, steps, fails and ends, in the order clients expect."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from kedge.domain.conversation import NO_LINK, PromptState, TaskLink
from kedge.domain.events import SessionErrored
from kedge.domain.ids import IdMaker
from kedge.domain.messages import AssistantMessage, Message, UserMessage
from kedge.domain.parts import Part, PatchPart, StepFinishPart, StepStartPart
from kedge.domain.sessions import Busy, SessionInfo, SessionSummary
from kedge.domain.wire_errors import Failure, aborted, not_run
from kedge.store.queries.fences import Fence, pass_fence
from kedge.store.queries.finalize import make_final
from kedge.store.queries.interrupts import interrupt_open_messages
from kedge.store.queries.leases import IsAlive, acquire_lease, release_lease, status_event
from kedge.store.queries.messages import put_message_of
from kedge.store.queries.parts import put_part
from kedge.store.queries.prompts import (
    ABORTED,
    drop_prompts,
    put_prompt,
    take_prompts,
    waiting_prompts,
)
from kedge.store.queries.sessions import (
    LockedSession,
    about,
    lock_live_session,
    lock_session,
    save_session,
)
from kedge.store.queries.unanswered import (
    say_cut_off,
    set_state,
    settle_answered,
    settle_taken,
    tell_unanswered,
    unanswered,
)
from kedge.store.transaction import Emit, Script, row

Unanswered: TypeAlias = Callable[[str], Script[None]]
"""Decides about the prompts of a session that its run has not answered."""

_OVERTAKEN = "its process ended before it began, and something else was asked since"


def begin_turn(
    message: UserMessage,
    parts: Sequence[Part],
    change: Callable[[SessionInfo], SessionInfo],
    *,
    owner: str,
    ttl: int,
    is_alive: IsAlive,
    now: int,
    ids: IdMaker,
    state: PromptState = PromptState.TAKEN_LAST,
    link: TaskLink = NO_LINK,
) -> Script[Fence]:
    """Take the lease of the session and store the prompt; `change` is what the prompt changes in
    the session object, `state` says whether it may be run again if the process dies before
    answering.

    Prompts that earlier runs left are not run any more: the user has gone on.
    """
    locked = yield from lock_live_session(message.sessionID)
    fence = yield from _take(locked, owner, ttl=ttl, is_alive=is_alive, now=now)
    yield from make_final(locked, now=now)
    left = yield from unanswered(locked.info.id, PromptState.LEFT, PromptState.SPENT)
    if left:
        yield from tell_unanswered(locked.info, left, not_run(_OVERTAKEN), ids, now)
        locked = yield from lock_live_session(message.sessionID)
    yield from put_prompt(locked, message, parts, change, now=now, state=state, link=link)
    yield status_event(locked.info, Busy())
    return fence


def resume_turn(
    session_id: str, *, owner: str, ttl: int, is_alive: IsAlive, now: int
) -> Script[tuple[Fence, list[UserMessage]] | None]:
    """Take the lease of the session to answer the waiting prompts, oldest first; None if there are
    none."""
    locked = yield from lock_live_session(session_id)
    if not (yield from waiting_prompts(session_id)):
        return None
    fence = yield from _take(locked, owner, ttl=ttl, is_alive=is_alive, now=now)
    waiting = yield from take_prompts(session_id, fence)
    yield status_event(locked.info, Busy())
    return fence, waiting


def _take(
    locked: LockedSession, owner: str, *, ttl: int, is_alive: IsAlive, now: int
) -> Script[Fence]:
    info = locked.info
    fence = yield from acquire_lease(
        info, owner, ttl=ttl, is_alive=is_alive, first_pos=locked.next_pos
    )
    left_over = aborted("The process that ran this session ended before it was finished")
    yield from interrupt_open_messages(info, now, left_over)
    return fence


def store_message(message: Message, *, now: int) -> Script[Message]:
    """Store a message outside of a turn; a new one makes a pending revert final as a prompt does,
    as it would be hidden otherwise."""
    locked = yield from lock_live_session(message.sessionID)
    if (yield from row("message_get", session_id=message.sessionID, id=message.id)) is None:
        yield from make_final(locked, now=now)
    return (yield from put_message_of(locked, message))


def begin_step(
    message: AssistantMessage, start: StepStartPart, *, fence: Fence, now: int
) -> Script[AssistantMessage]:
    """Store a new assistant message and the start of its first step."""
    locked = yield from lock_live_session(message.sessionID, fence)
    stored = yield from put_message_of(locked, message)
    yield from settle_answered(message.sessionID, message.parentID)
    yield status_event(locked.info, Busy())
    yield from put_part(start, now=now)
    assert isinstance(stored, AssistantMessage)
    return stored


def finish_step(
    message: AssistantMessage,
    finish: StepFinishPart,
    patch: PatchPart | None = None,
    summary: SessionSummary | None = None,
    *,
    fence: Fence,
    now: int,
) -> Script[None]:
    """Store the end of a step: first the end itself, then its changes and the time."""
    locked = yield from lock_live_session(message.sessionID, fence)
    yield from put_part(finish, now=now)
    if message.error is not None:
        yield session_error(locked.info, message.error)
    yield from put_message_of(locked, message)
    if patch is not None:
        yield from put_part(patch, now=now)
    if summary is not None:
        yield from _summarise(message.sessionID, summary)
    time = msgspec.structs.replace(message.time, completed=now)
    yield from put_message_of(locked, msgspec.structs.replace(message, time=time))


def spend_in_step(
    message: AssistantMessage, spent: StepFinishPart, *, fence: Fence, now: int
) -> Script[None]:
    """Record the cost of a failed attempt, in a step that goes on."""
    locked = yield from lock_live_session(message.sessionID, fence)
    yield from put_part(spent, now=now)
    yield from put_message_of(locked, message)


def _summarise(session_id: str, summary: SessionSummary) -> Script[None]:
    # Read again: the totals may just have changed.
    info = (yield from lock_session(session_id)).info
    if info.summary != summary:
        yield from save_session(msgspec.structs.replace(info, summary=summary))


def fail_step(
    session_id: str, error: Failure, *, fence: Fence, now: int, tell: bool
) -> Script[None]:
    """Close what is open in a run that failed, and announce the error unless that was done
    before."""
    info = (yield from lock_live_session(session_id, fence)).info
    if tell:
        yield session_error(info, error)
    if not (yield from interrupt_open_messages(info, now, error)):
        held = yield from row("lease_lock", session_id=session_id)
        assert held is not None
        yield from say_cut_off(info, error, held[5])


def summarise_turn(message: UserMessage, *, fence: Fence) -> Script[None]:
    """Store a prompt with the changes of its turn, while the run goes on to another one."""
    yield from put_message_of((yield from lock_live_session(fence.session_id, fence)), message)


def finish_turn(
    message: UserMessage | None, *, fence: Fence, settle: Unanswered = settle_taken
) -> Script[SessionInfo]:
    """Release the lease; `message` is the prompt with its turn's changes, if there are any.

    `settle` decides about prompts without an answer; waiting ones are left for the next run.
    """
    locked = yield from lock_session(fence.session_id)
    yield from pass_fence(fence)
    if message is not None and locked.time_deleted is None:
        yield from put_message_of(locked, message)
    yield from settle(fence.session_id)
    return (yield from release_lease(fence))


def drop_unanswered(session_id: str, *, ids: IdMaker, now: int) -> Script[None]:
    """The run was stopped by a request: no prompt of the session is answered any more."""
    locked = yield from lock_session(session_id)
    if locked.time_deleted is None:
        taken = yield from unanswered(session_id, PromptState.TAKEN, PromptState.TAKEN_LAST)
        yield from tell_unanswered(locked.info, taken, aborted("Aborted"), ids, now)
        yield from drop_prompts(locked.info, ABORTED, ids, now)


def leave_unanswered(session_id: str, error: Failure, *, ids: IdMaker, now: int) -> Script[None]:
    """The run was broken off: prompts that it has not begun to answer are left, or get an answer
    that says why if no other process may run them. Prompts that wait for a program's own run still
    wait."""
    locked = yield from lock_session(session_id)
    if locked.time_deleted is None:
        taken = yield from unanswered(session_id, PromptState.TAKEN_LAST)
        yield from tell_unanswered(locked.info, taken, error, ids, now)
    others = yield from unanswered(session_id, PromptState.TAKEN, PromptState.WAITING)
    yield from set_state(session_id, others, PromptState.LEFT)


def fail_taken(session_id: str, error: Failure, *, ids: IdMaker, now: int) -> Script[None]:
    """The run failed before it began to answer: the prompts it has accepted get an answer that says
    why. For a new prompt the event is enough, as in OpenCode."""
    locked = yield from lock_session(session_id)
    if locked.time_deleted is None:
        taken = yield from unanswered(session_id, PromptState.TAKEN_LAST)
        yield from tell_unanswered(locked.info, taken, error, ids, now)
        asked = yield from unanswered(session_id, PromptState.TAKEN)
        yield from set_state(session_id, asked, PromptState.FAILED)


def finish_unless_asked(message: UserMessage | None, *, fence: Fence) -> Script[SessionInfo | None]:
    """Release the lease like `finish_turn`, unless a prompt waits for an answer."""
    yield from lock_session(fence.session_id)
    yield from pass_fence(fence)
    if (yield from waiting_prompts(fence.session_id)):
        return None
    return (yield from finish_turn(message, fence=fence))


def session_error(info: SessionInfo, error: Failure) -> Emit:
    """The event that announces an error in a session."""
    return about(info, SessionErrored(sessionID=info.id, error=error), "")
