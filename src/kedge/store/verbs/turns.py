"""Turns: what a run stores when it begins, steps, fails and ends, in the order clients know."""

from collections.abc import Callable, Sequence

import msgspec

from kedge.domain.errors import InvalidInput
from kedge.domain.events import SessionErrored
from kedge.domain.failures import Failure, aborted
from kedge.domain.messages import AssistantMessage, UserMessage
from kedge.domain.parts import Part, StepFinishPart, StepStartPart
from kedge.domain.sessions import SessionInfo
from kedge.domain.status import Busy
from kedge.store.script import Emit, Script, row
from kedge.store.verbs.fences import Fence
from kedge.store.verbs.interrupts import interrupt_open_messages
from kedge.store.verbs.leases import IsAlive, acquire_lease, status_event
from kedge.store.verbs.messages import put_message_of
from kedge.store.verbs.parts import put_part
from kedge.store.verbs.sessions import about, lock_live_session, lock_session, save_session


def begin_turn(
    message: UserMessage,
    parts: Sequence[Part],
    change: Callable[[SessionInfo], SessionInfo],
    *,
    owner: str,
    ttl: int,
    is_alive: IsAlive,
    now: int,
) -> Script[Fence]:
    """Take the session and store the prompt; `change` is what the prompt does to the session
    object."""
    locked = yield from lock_live_session(message.sessionID)
    if (yield from row("message_get", session_id=message.sessionID, id=message.id)) is not None:
        raise InvalidInput(f"a message {message.id} exists already", field="message_id")
    fence = yield from acquire_lease(locked.info, owner, ttl=ttl, is_alive=is_alive)
    left_over = aborted("The process that ran this session ended before it was finished")
    yield from interrupt_open_messages(locked.info, now, left_over)
    yield from put_message_of(locked, message)
    for part in parts:
        yield from put_part(part, now=now)
    info = change((yield from lock_session(locked.info.id)).info)
    yield from save_session(info)
    yield status_event(info, Busy())
    return fence


def begin_step(
    message: AssistantMessage, start: StepStartPart, *, fence: Fence, now: int
) -> Script[AssistantMessage]:
    """Store the message that answers, and where its first step starts."""
    locked = yield from lock_live_session(message.sessionID, fence)
    stored = yield from put_message_of(locked, message)
    yield status_event(locked.info, Busy())
    yield from put_part(start, now=now)
    assert isinstance(stored, AssistantMessage)
    return stored


def finish_step(
    message: AssistantMessage, finish: StepFinishPart, *, fence: Fence, now: int
) -> Script[None]:
    """Store how a step ended, first that it did and then when."""
    locked = yield from lock_live_session(message.sessionID, fence)
    yield from put_part(finish, now=now)
    yield from put_message_of(locked, message)
    time = msgspec.structs.replace(message.time, completed=now)
    yield from put_message_of(locked, msgspec.structs.replace(message, time=time))


def fail_step(
    session_id: str, error: Failure, *, fence: Fence, now: int, tell: bool
) -> Script[None]:
    """Close what is open in a run that cannot go on, and say why unless that was told before."""
    info = (yield from lock_live_session(session_id, fence)).info
    yield from interrupt_open_messages(info, now, error)
    if tell:
        yield session_error(info, error)


def session_error(info: SessionInfo, error: Failure) -> Emit:
    """The event that says what went wrong in a session."""
    return about(info, SessionErrored(sessionID=info.id, error=error), "")
