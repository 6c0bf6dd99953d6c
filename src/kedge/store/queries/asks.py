"""Asks: permission and question requests of runs, and the replies to them.

An ask is open until it is answered or its run ends. Only the run itself can open one; any process
can answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kedge.domain import wire
from kedge.domain.errors import InvalidInput, PermissionNotFound, QuestionNotFound
from kedge.domain.events import (
    EventProperties,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
)
from kedge.domain.permissions import (
    AllowedPermission,
    PermissionReply,
    PermissionRequest,
    allows_all,
)
from kedge.domain.questions import QuestionRequest
from kedge.domain.sessions import SessionInfo
from kedge.domain.values import Value
from kedge.store.queries.fences import Fence
from kedge.store.queries.grants import LASTING, IsOpen, RuleHolder, allow, allowed_in
from kedge.store.queries.sessions import about, lock_live_session, lock_session
from kedge.store.rows import MAX_SESSION_BYTES, MAX_VALUE_BYTES, check_size
from kedge.store.transaction import Script, row, rows, run

Kind: TypeAlias = Literal["permission", "question"]
AskRequest: TypeAlias = PermissionRequest | QuestionRequest


class Owners(Protocol):
    """Judges whether owners still exist, by their description and whether they failed to renew in
    time."""

    def alive_in(self, session_id: str) -> Callable[[str, bool], bool]:
        """The judge of whether an owner still runs a session."""

    def is_open(self, owner: str, expired: bool) -> bool:
        """Whether the engine of an owner is still open."""


class AskAnswer(Value, frozen=True, kw_only=True):
    """How an ask ended; with no field set it was withdrawn, as its call no longer waits."""

    reply: PermissionReply | None = None
    message: str | None = None
    """With a rejection: what the user wants done instead."""
    answers: list[list[str]] | None = None


WITHDRAWN = AskAnswer()
REJECTED = AskAnswer(reply="reject")


@dataclass(frozen=True, slots=True)
class OpenAsk:
    """An open ask, and its owner."""

    request: AskRequest
    directory: str
    time_created: int


def add_ask(
    request: AskRequest, *, fence: Fence, is_open: IsOpen, now: int
) -> Script[AskAnswer | None]:
    """Open an ask of a run. A permission that the project has been granted meanwhile is answered at
    once."""
    # From here on no rule is added: an ask is either answered by a rule or seen by the process that
    # adds it.
    yield from row("project_lock")
    info = (yield from lock_live_session(request.sessionID, fence)).info
    if isinstance(request, PermissionRequest):
        allowed = yield from allowed_in(info.projectID, is_open)
        if _is_answered(request, allowed):
            return AskAnswer(reply="always")
    data = check_size(wire.encode(request), "what is asked", MAX_VALUE_BYTES)
    kind = _kind(request)
    yield from run("ask_add", id=request.id, session_id=info.id, kind=kind, data=data, now=now)
    yield about(info, _asked(request), _entity(request.id))
    return None


def answer_permission(
    id: str,
    answer: AskAnswer,
    *,
    owners: Owners,
    now: int,
    session_id: str | None = None,
    holder: RuleHolder = LASTING,
) -> Script[None]:
    """Answer a permission request of a run.

    `always` is stored for the project until its holder ends it, and answers the other asks there
    that it covers. A rejection without a message rejects all asks of the session.
    """
    if answer.reply == "always":
        yield from row("project_lock")
    info, ask = yield from _open(id, "permission", PermissionNotFound, owners)
    if session_id is not None and session_id != info.id:
        raise PermissionNotFound(id)
    if not (yield from _end(info, ask, answer, now)):
        raise PermissionNotFound(id)
    if answer.reply == "always":
        assert isinstance(ask, PermissionRequest)
        yield from allow(info.projectID, ask, holder, is_open=owners.is_open, now=now)
        yield from _release(info.projectID, owners.is_open, now)
    elif answer.reply == "reject" and answer.message is None:
        for other in (yield from _open_of(info.id)):
            if isinstance(other, PermissionRequest):
                yield from _end(info, other, REJECTED, now)


def answer_question(
    id: str, answers: Sequence[list[str]], *, owners: Owners, now: int
) -> Script[None]:
    """Answer a question; missing answers at the end count as not answered."""
    info, ask = yield from _open(id, "question", QuestionNotFound, owners)
    assert isinstance(ask, QuestionRequest)
    missing = len(ask.questions) - len(answers)
    if missing < 0:
        raise InvalidInput(
            f"there are {len(answers)} answers to {len(ask.questions)} questions", field="answers"
        )
    given = [*answers, *([] for _ in range(missing))]
    yield from _end(info, ask, AskAnswer(answers=given), now)


def reject_question(id: str, *, owners: Owners, now: int) -> Script[None]:
    """Reject a question."""
    info, ask = yield from _open(id, "question", QuestionNotFound, owners)
    yield from _end(info, ask, REJECTED, now)


def withdraw_ask(session_id: str, id: str, *, now: int) -> Script[None]:
    """Close an ask that its call no longer waits for, if it is still open."""
    info = (yield from lock_session(session_id)).info
    for ask in (yield from _open_of(session_id)):
        if ask.id == id:
            yield from _end(info, ask, WITHDRAWN, now)


def withdraw_asks(info: SessionInfo, now: int) -> Script[None]:
    """Close the asks of a locked session whose run has ended."""
    for ask in (yield from _open_of(info.id)):
        yield from _end(info, ask, WITHDRAWN, now)


def answer_of(id: str) -> Script[AskAnswer | None]:
    """How an ask ended; None while it waits. One whose session was purged counts as withdrawn."""
    found = yield from row("ask_get", id=id)
    if found is None:
        return WITHDRAWN
    *_, answer = found
    return None if answer is None else wire.decode(answer, AskAnswer)


def open_asks(session_id: str | None = None) -> Script[list[OpenAsk]]:
    """The open asks, oldest first: of one session, or of all."""
    if session_id is None:
        found = yield from rows("ask_open_all")
    else:
        found = yield from rows("ask_open_of_session", session_id=session_id)
    asks = [
        OpenAsk(_request(kind, data), directory, created)
        for _, kind, data, created, directory in found
    ]
    return sorted(asks, key=lambda each: (each.time_created, each.request.id))


def ends_of_asks(session_id: str, limit: int) -> Script[list[EventProperties]]:
    """The events that ended the newest asks of a session, oldest first."""
    found = yield from rows("ask_ended_of_session", session_id=session_id, limit=limit)
    return [
        _ended(_request(kind, data), wire.decode(answer, AskAnswer))
        for kind, data, answer in reversed(found)
    ]


def _open(
    id: str,
    kind: Kind,
    missing: type[PermissionNotFound] | type[QuestionNotFound],
    owners: Owners,
) -> Script[tuple[SessionInfo, AskRequest]]:
    """An ask of a living run, and its session, which is locked."""
    found = yield from row("ask_get", id=id)
    if found is None:
        raise missing(id)
    locked = yield from lock_session(found[0])
    # Read again: another process may have answered before this one locked the session.
    found = yield from row("ask_get", id=id)
    if found is None or found[1] != kind or found[3] is not None:
        raise missing(id)
    if not (yield from _is_run(locked.info.id, owners)):
        # The process that recovers the session withdraws it; until then an answer would have no
        # effect.
        raise missing(id)
    return locked.info, _request(found[1], found[2])


def _is_run(session_id: str, owners: Owners) -> Script[bool]:
    lease = yield from row("lease_get", session_id=session_id)
    now = yield from row("clock")
    assert now is not None
    if lease is None or lease[1] is None:
        return False
    return owners.alive_in(session_id)(lease[1], lease[2] <= now[0])


def _open_of(session_id: str) -> Script[list[AskRequest]]:
    found = yield from rows("ask_open_of_session", session_id=session_id)
    return [_request(kind, data) for _, kind, data, _, _ in found]


def _is_answered(request: PermissionRequest, allowed: Sequence[AllowedPermission]) -> bool:
    # An ask that offers no rule needs an answer of its own.
    rules = [each.rule for each in allowed]
    return bool(request.always) and allows_all(request.permission, request.patterns, rules)


def _release(project_id: str, is_open: IsOpen, now: int) -> Script[None]:
    """Answer all asks in the project that the rules there cover."""
    allowed = yield from allowed_in(project_id, is_open)
    found = yield from rows("ask_open_of_project", project_id=project_id)
    # All processes lock them in this order, so there is no deadlock.
    for _, _, data, session in sorted(found):
        other = wire.decode(data, PermissionRequest)
        if _is_answered(other, allowed):
            # Its session is not locked: the row of an ask alone decides who ends it.
            info = wire.decode(session, SessionInfo)
            yield from _end(info, other, AskAnswer(reply="always"), now)


def _end(info: SessionInfo, ask: AskRequest, answer: AskAnswer, now: int) -> Script[bool]:
    """End an ask, unless another process did; return whether this one did."""
    text = check_size(wire.encode(answer), "the answer", MAX_SESSION_BYTES)
    ended = yield from run("ask_end", id=ask.id, answer=text, now=now)
    if ended:
        yield about(info, _ended(ask, answer), _entity(ask.id))
    return bool(ended)


def _asked(request: AskRequest) -> EventProperties:
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    if isinstance(request, PermissionRequest):
        return PermissionAsked(**fields)
    return QuestionAsked(**fields)


def _ended(ask: AskRequest, answer: AskAnswer) -> EventProperties:
    session_id, id = ask.sessionID, ask.id
    if isinstance(ask, PermissionRequest):
        reply = answer.reply or "reject"
        return PermissionReplied(sessionID=session_id, requestID=id, reply=reply)
    if answer.answers is None:
        return QuestionRejected(sessionID=session_id, requestID=id)
    return QuestionReplied(sessionID=session_id, requestID=id, answers=answer.answers)


def _kind(request: AskRequest) -> Kind:
    return "permission" if isinstance(request, PermissionRequest) else "question"


def _request(kind: Kind, data: str) -> AskRequest:
    if kind == "permission":
        return wire.decode(data, PermissionRequest)
    return wire.decode(data, QuestionRequest)


def _entity(id: str) -> str:
    return f"ask:{id}"
