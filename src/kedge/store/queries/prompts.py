"""Prompts: those that a run begins with, those that wait for it, and those without an answer."""

from collections.abc import Callable, Sequence
from functools import partial

from kedge.domain.conversation import NO_LINK, PromptState, TaskLink
from kedge.domain.errors import MessageExists
from kedge.domain.events import SessionIdle
from kedge.domain.ids import IdMaker
from kedge.domain.messages import UserMessage
from kedge.domain.parts import Part
from kedge.domain.sessions import Idle, SessionInfo
from kedge.domain.wire_errors import Failure, aborted, not_run
from kedge.store.queries.background import take_task
from kedge.store.queries.changes import begin_task_turn
from kedge.store.queries.fences import Fence
from kedge.store.queries.finalize import make_final
from kedge.store.queries.leases import IsAlive, clock, status_event
from kedge.store.queries.messages import put_message_of
from kedge.store.queries.parts import put_part
from kedge.store.queries.sessions import (
    LockedSession,
    about,
    lock_live_session,
    lock_session,
    save_session,
)
from kedge.store.queries.unanswered import set_state, tell_unanswered, unanswered
from kedge.store.transaction import Script, row, rows, run

Change = Callable[[SessionInfo], SessionInfo]
"""What a prompt changes in the session object."""

ABORTED = aborted("Aborted before it was run")
_WAITING = (PromptState.WAITING, PromptState.WAITING_LAST, PromptState.LEFT)
_NOT_TAKEN = (*_WAITING, PromptState.SPENT)
_TOO_OLD = "its server ended before it began, too long ago for it to be run now"
_ENDED = "its process ended before it began"


def put_prompt(
    locked: LockedSession,
    message: UserMessage,
    parts: Sequence[Part],
    change: Change,
    *,
    now: int,
    state: PromptState = PromptState.SETTLED,
    link: TaskLink = NO_LINK,
) -> Script[UserMessage]:
    """Store a prompt of a locked session: the message, its parts, then the session."""
    if link.reports is not None:
        yield from take_task(link.reports, is_note=state is PromptState.NOTE)
    if (yield from row("message_get", session_id=message.sessionID, id=message.id)) is not None:
        raise MessageExists(message.id)
    stored = yield from put_message_of(locked, message, awaiting=state)
    if locked.info.parentID is not None:
        yield from begin_task_turn(
            message.sessionID, locked.next_pos, locked.info.parentID, link.works_for
        )
    for part in parts:
        yield from put_part(part, now=now)
    yield from save_session(change((yield from lock_session(locked.info.id)).info))
    assert isinstance(stored, UserMessage)
    return stored


def add_prompt(
    message: UserMessage,
    parts: Sequence[Part],
    change: Change,
    *,
    now: int,
    link: TaskLink = NO_LINK,
) -> Script[UserMessage]:
    """Store a prompt that is not to be answered; like others it makes a pending revert final."""
    locked = yield from lock_live_session(message.sessionID)
    yield from make_final(locked, now=now)
    put = partial(put_prompt, locked, message, parts, change, now=now, link=link)
    return (yield from put(state=PromptState.NOTE))


def queue_prompt(
    message: UserMessage,
    parts: Sequence[Part],
    change: Change,
    *,
    is_alive: IsAlive,
    now: int,
    state: PromptState = PromptState.WAITING_LAST,
    link: TaskLink = NO_LINK,
) -> Script[UserMessage | None]:
    """Leave a prompt for the running turn of the session; None if there is none.

    A revert holds the session too, but would hide the prompt.
    """
    locked = yield from lock_live_session(message.sessionID)
    if (yield from _busy_with(message.sessionID, is_alive)) != "turn":
        return None
    put = partial(put_prompt, locked, message, parts, change, now=now, link=link)
    return (yield from put(state=state))


def ask_again(
    session_id: str, id: str, ids: IdMaker, *, is_alive: IsAlive, now: int
) -> Script[bool]:
    """Queue a prompt again that no run has answered or is about to answer; return whether it waits
    now.

    A prompt that was left waits already, and a spent one is closed with an answer: asking again
    gives no more attempts.
    """
    info = (yield from lock_live_session(session_id)).info
    if (yield from _busy_with(session_id, is_alive)) is not None:
        return False
    if (yield from rows("message_answers_after", session_id=session_id, id=id)):
        return False
    if id in [each.id for each in (yield from waiting_prompts(session_id))]:
        return True
    spent = yield from unanswered(session_id, PromptState.SPENT)
    if mine := [each for each in spent if each.id == id]:
        yield from tell_unanswered(info, mine, not_run(_ENDED), ids, now)
        return False
    yield from run(
        "message_set_awaiting", session_id=session_id, id=id, awaiting=int(PromptState.WAITING)
    )
    return True


def _busy_with(session_id: str, is_alive: IsAlive) -> Script[str | None]:
    """The kind of lease that a living owner has of a locked session."""
    held = yield from row("lease_lock", session_id=session_id)
    if held is None or held[1] is None:
        return None
    lives = is_alive(held[1], held[2] <= (yield from clock()))
    return str(held[4]) if lives else None


def waiting_prompts(session_id: str) -> Script[list[UserMessage]]:
    """The prompts that no run has accepted yet, oldest first."""
    return (yield from unanswered(session_id, *_WAITING))


def take_prompts(session_id: str, fence: Fence) -> Script[list[UserMessage]]:
    """Accept the waiting prompts, oldest first; from here on the run has to answer them."""
    yield from lock_live_session(session_id, fence)
    found = yield from waiting_prompts(session_id)
    # Stored before anything is done for them: a prompt that kills its process does so at most
    # twice.
    yield from run("message_take", session_id=session_id)
    return found


def say_idle(session_id: str, ids: IdMaker, *, is_alive: IsAlive, now: int) -> Script[bool]:
    """Announce that a session is idle, if it is, and let no prompt wait for a run; return whether
    it is."""
    info = (yield from lock_live_session(session_id)).info
    if (yield from _busy_with(session_id, is_alive)) is not None:
        return False
    yield from drop_prompts(info, ABORTED, ids, now)
    yield status_event(info, Idle())
    yield about(info, SessionIdle(sessionID=session_id), "")
    return True


def stop_waiting(session_id: str, ids: IdMaker, *, now: int) -> Script[None]:
    """Let no prompt wait for a run."""
    locked = yield from lock_session(session_id)
    if locked.time_deleted is None:
        yield from drop_prompts(locked.info, ABORTED, ids, now)


def drop_prompts(info: SessionInfo, error: Failure, ids: IdMaker, now: int) -> Script[None]:
    """Drop all waiting prompts of a locked session; each gets an answer that says why."""
    waiting = yield from unanswered(info.id, *_NOT_TAKEN)
    yield from tell_unanswered(info, waiting, error, ids, now)


def withdraw_prompt(session_id: str, id: str, ids: IdMaker, *, now: int) -> Script[None]:
    """Stop a prompt from waiting, unless a run has accepted it already."""
    info = (yield from lock_live_session(session_id)).info
    waiting = yield from unanswered(session_id, *_NOT_TAKEN)
    mine = [each for each in waiting if each.id == id]
    yield from tell_unanswered(info, mine, not_run("no program waits for its answer"), ids, now)


def sessions_with_unanswered() -> Script[list[str]]:
    """The sessions with a prompt without an answer, running or not."""
    return [id for (id,) in (yield from rows("message_unanswered_sessions"))]


def account_for(
    session_id: str, ids: IdMaker, *, oldest: int, is_alive: IsAlive, now: int
) -> Script[bool]:
    """Settle what runs have left in an idle session. Prompts from before `oldest`, or that may not
    be run again, get an answer that says so; return whether there is anything to run."""
    locked = yield from lock_session(session_id)
    if locked.time_deleted is not None or (yield from _busy_with(session_id, is_alive)) is not None:
        return False
    waiting = yield from unanswered(session_id, PromptState.WAITING)
    yield from set_state(session_id, waiting, PromptState.LEFT)
    left = yield from unanswered(session_id, PromptState.LEFT)
    old = [each for each in left if each.time.created < oldest]
    spent = yield from unanswered(session_id, PromptState.SPENT)
    yield from tell_unanswered(locked.info, old, not_run(_TOO_OLD), ids, now)
    yield from tell_unanswered(locked.info, spent, not_run(_ENDED), ids, now)
    return len(left) > len(old)
