"""Permission and question requests of runs, and the replies to them, across processes.

    answer = await engine.asks.permission(turn, "edit", ["a.txt"], always=["*"])
    await engine.asks.reply_permission(id, "once")

An ask is a row. The waiting call subscribes before it reads the row, so that it misses no answer.
When the waiting call is cancelled, or its run ends in any other way, the ask is withdrawn.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from kedge._async import to_the_end
from kedge.domain.errors import (
    EngineClosed,
    InvalidInput,
    KedgeError,
    LeaseLost,
    QuestionRejected,
    StoreError,
)
from kedge.domain.events import EventProperties, PermissionReplied, QuestionReplied
from kedge.domain.events import QuestionRejected as QuestionRejectedEvent
from kedge.domain.ids import check_id
from kedge.domain.permissions import (
    AllowedPermission,
    PermissionReply,
    PermissionRequest,
    PermissionRule,
    ToolCallRef,
)
from kedge.domain.questions import QuestionInfo, QuestionRequest
from kedge.engine.event_log import Event
from kedge.engine.validation import check_text, check_value, check_values
from kedge.engine.worktrees import real_path
from kedge.store.queries.asks import (
    WITHDRAWN,
    AskAnswer,
    AskRequest,
    OpenAsk,
    add_ask,
    answer_of,
    answer_permission,
    answer_question,
    ends_of_asks,
    open_asks,
    reject_question,
    withdraw_ask,
)
from kedge.store.queries.grants import (
    LASTING,
    RuleHolder,
    allowed_in,
    end_rules,
    forget_allowed,
    rules_for,
)
from kedge.store.transaction import Script

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.turns import Turn

_log = logging.getLogger(__name__)
_PAUSE = 0.25
"""Seconds until the database is tried again after an error."""
_ENDS = {PermissionReplied.type, QuestionReplied.type, QuestionRejectedEvent.type}


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a permission request."""

    reply: PermissionReply
    message: str | None = None
    """With a rejection: what the user wants done instead."""


class Asks:
    """The permission and question requests that wait for an answer, of every session."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._holds_rules = False

    async def _close(self) -> None:
        """Remove the grants that hold while the engine is open."""
        if self._holds_rules:
            try:
                await self._engine.store.write(partial(end_rules, self._engine.runs.owner))
            except StoreError as error:
                # The grants are over anyway: other processes see that this one has ended.
                _log.warning("the grants of this engine could not be removed: %s", error)

    async def permission(
        self,
        turn: "Turn",
        permission: str,
        patterns: Sequence[str],
        *,
        always: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        tool: ToolCallRef | None = None,
    ) -> Reply:
        """Ask for a permission, and wait for the reply.

        `always` is what the reply of that name would allow in this project.
        """
        request = PermissionRequest(
            id=self._engine.ids.permission(),
            sessionID=turn.session.id,
            permission=permission,
            patterns=list(patterns),
            metadata=dict(metadata or {}),
            always=list(always),
            tool=tool,
        )
        answer = await self._asked(turn, check_value(request, PermissionRequest))
        assert answer.reply is not None
        return Reply(answer.reply, answer.message)

    async def question(
        self, turn: "Turn", questions: Sequence[QuestionInfo], *, tool: ToolCallRef | None = None
    ) -> list[list[str]]:
        """Ask questions, and wait for the answers: for each the chosen labels, or the user's own
        words. Raises `QuestionRejected` if the user does not answer them."""
        request = QuestionRequest(
            id=self._engine.ids.question(),
            sessionID=turn.session.id,
            questions=check_values(questions, QuestionInfo, "questions"),
            tool=tool,
        )
        answer = await self._asked(turn, check_value(request, QuestionRequest))
        if answer.answers is None:
            raise QuestionRejected(request.id)
        return answer.answers

    async def permissions(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        session: str | None = None,
    ) -> list[PermissionRequest]:
        """The permission requests that wait for a reply, oldest first: of all, or of one directory
        or session."""
        found = await self._open(directory, session)
        return [each.request for each in found if isinstance(each.request, PermissionRequest)]

    async def questions(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        session: str | None = None,
    ) -> list[QuestionRequest]:
        """The questions that wait for an answer, oldest first: of all, or of one directory or
        session."""
        found = await self._open(directory, session)
        return [each.request for each in found if isinstance(each.request, QuestionRequest)]

    async def ends(self, session_id: str, limit: int = 50) -> list[EventProperties]:
        """The events that ended the newest asks of a session, oldest first."""
        script = partial(ends_of_asks, check_id("ses", session_id), limit)
        return await self._engine.store.scan(script)

    async def directory_of(self, id: str) -> str | None:
        """The directory of the session that waits for this answer; None if none does."""
        found = await self._open(None, None)
        return next((each.directory for each in found if each.request.id == id), None)

    async def reply_permission(
        self,
        id: str,
        reply: PermissionReply,
        message: str | None = None,
        *,
        session_id: str | None = None,
        lasting: bool = False,
    ) -> None:
        """Reply to a permission request: `once`, `always` or `reject`.

        `always` holds in this project until this engine is closed or, if `lasting`, until it is
        revoked; it also answers the other requests in the project that it covers. `reject` rejects
        all requests of the session and ends its turn; with a message it rejects only this one, and
        the agent gets the message and goes on. The first reply counts.
        """
        if reply not in get_args(PermissionReply):
            raise InvalidInput("reply must be once, always or reject", field="reply")
        said = None if message is None else check_text(message, "message").strip()
        answer = AskAnswer(reply=reply, message=(said or None) if reply == "reject" else None)
        session = None if session_id is None else check_id("ses", session_id)
        holder = LASTING if lasting else RuleHolder(self._engine.runs.owner, self._engine.runs.ttl)
        script = partial(answer_permission, check_id("per", id), answer)
        await self._write_answer(partial(script, session_id=session, holder=holder))
        if reply == "always" and not lasting:
            self._holds_rules = True
            self._engine.runs.keep()

    async def reply_question(self, id: str, answers: Sequence[Sequence[str]]) -> None:
        """Answer questions: for each, in their order, the chosen labels."""
        given = check_values(answers, list[str], "answers")
        script = partial(answer_question, check_id("que", id), given)
        await self._write_answer(script)

    async def reject_question(self, id: str) -> None:
        """Reject questions; the turn that asked them ends."""
        await self._write_answer(partial(reject_question, check_id("que", id)))

    async def allowed(self, project_id: str | None = None) -> list[AllowedPermission]:
        """What the reply `always` allows in a project, by default the engine's own."""
        project = await self._project(project_id)
        return await self._engine.store.scan(
            partial(allowed_in, project, self._engine.runs.is_open)
        )

    async def forget_allowed(self, project_id: str | None = None, *, id: str | None = None) -> int:
        """Revoke what was allowed in a project, or one rule of it; return how many there were."""
        project = await self._project(project_id)
        one = None if id is None else check_text(id, "id")
        return await self._engine.store.write(partial(forget_allowed, project, one))

    async def rules(self, session_id: str) -> tuple[list[PermissionRule], list[PermissionRule]]:
        """The session's own permission rules, and those allowed in its project."""
        script = partial(rules_for, check_id("ses", session_id), self._engine.runs.is_open)
        return await self._engine.store.read(script)

    async def _project(self, id: str | None) -> str:
        return (await self._engine.here()).project.id if id is None else check_text(id, "project")

    async def _open(
        self, directory: str | os.PathLike[str] | None, session: str | None
    ) -> list[OpenAsk]:
        id = None if session is None else check_id("ses", session)
        place = None if directory is None else real_path(directory)
        found = await self._engine.store.scan(partial(open_asks, id))
        # Read after the asks: if a run has ended since, its asks are no longer open.
        running = await self._engine.runs.statuses() if found else {}
        return [
            each
            for each in found
            if place in (None, each.directory) and each.request.sessionID in running
        ]

    async def _write_answer(self, script: Callable[..., Script[None]]) -> None:
        now = self._engine.clock.now()
        await self._engine.store.write(partial(script, owners=self._engine.runs, now=now))

    async def _asked(self, turn: "Turn", request: AskRequest) -> AskAnswer:
        now = self._engine.clock.now()
        try:
            is_open = self._engine.runs.is_open
            script = partial(add_ask, request, fence=turn.fence, is_open=is_open, now=now)
            answer = await turn._write(script, large=True) or await self._answer(request)
        except (Exception, asyncio.CancelledError):
            await self._withdraw(request)
            raise
        if answer == WITHDRAWN:
            # Only the process that took over the run withdraws its asks.
            raise LeaseLost(request.sessionID)
        return answer

    async def _answer(self, request: AskRequest) -> AskAnswer:
        while True:
            try:
                return await self._heard(request)
            except StoreError as error:
                _log.warning(
                    "cannot wait for the answer to %s, trying again: %s", request.id, error
                )
                await asyncio.sleep(_PAUSE)

    async def _heard(self, request: AskRequest) -> AskAnswer:
        read = partial(self._engine.store.read, partial(answer_of, request.id))
        async with self._engine.events.subscribe(session=request.sessionID) as events:
            # Read after subscribing: an answer is either stored already or will be announced.
            if (answer := await read()) is not None:
                return answer
            async for event in events:
                if _may_end(event, request.id) and (answer := await read()) is not None:
                    return answer
        raise EngineClosed

    async def _withdraw(self, request: AskRequest) -> None:
        now = self._engine.clock.now()
        script = partial(withdraw_ask, request.sessionID, request.id, now=now)
        try:
            await to_the_end(self._engine.store.write(script))
        except KedgeError as error:
            # The end of the run withdraws it as well.
            _log.warning("%s could not be withdrawn: %s", request.id, error)


def _may_end(event: Event, id: str) -> bool:
    # A subscriber that was too slow reads from the log again, where the answer follows.
    return event.type in _ENDS and id in event.payload
