"""What runs ask people, and what people answer, in whatever process either of them is.

    answer = await engine.asks.permission(turn, "edit", ["a.txt"], always=["*"])
    await engine.asks.reply_permission(id, "once")

An ask is a row. Whoever waits for it listens first and looks then, so that no answer is missed.
When the call that waits is cancelled, or its run ends in any other way, the ask is withdrawn.
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
    Holder,
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
"""Seconds until a database that failed is looked at again."""
_ENDS = {PermissionReplied.type, QuestionReplied.type, QuestionRejectedEvent.type}


@dataclass(frozen=True, slots=True)
class Reply:
    """What somebody said to a permission that was asked for."""

    reply: PermissionReply
    message: str | None = None
    """What whoever rejected it wants done instead."""


class Asks:
    """The permissions and questions that wait for an answer, of every session."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._holds_rules = False

    async def _close(self) -> None:
        """End what was allowed for as long as the engine is open."""
        if self._holds_rules:
            try:
                await self._engine.store.write(partial(end_rules, self._engine.runs.owner))
            except StoreError as error:
                # They are over all the same: everybody sees that the process has ended.
                _log.warning("what was allowed until now could not be removed: %s", error)

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
        """Ask for a permission, and wait until somebody replies.

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
        """Ask questions, and wait for the answers: for each the labels that were chosen, or words
        of the person's own. Raises `QuestionRejected` if nobody wants to answer."""
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
        """The permissions that wait for a reply, oldest first: of all, or of one directory or
        session."""
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
        """How the newest asks of a session ended, as it was told then, oldest first."""
        script = partial(ends_of_asks, check_id("ses", session_id), limit)
        return await self._engine.store.scan(script)

    async def directory_of(self, id: str) -> str | None:
        """Where the session works that waits for this answer; None if none does."""
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
        """Reply to a permission: `once`, `always` or `reject`.

        `always` holds in this project until this engine is closed, or, if it is `lasting`, until
        somebody takes it back; it answers whatever else waits for it there.
        `reject` rejects all that the session waits for and ends its turn; with a message it rejects
        only this, and the agent hears the message and goes on. Of two replies the first counts.
        """
        if reply not in get_args(PermissionReply):
            raise InvalidInput("reply must be once, always or reject", field="reply")
        said = None if message is None else check_text(message, "message").strip()
        answer = AskAnswer(reply=reply, message=(said or None) if reply == "reject" else None)
        session = None if session_id is None else check_id("ses", session_id)
        holder = LASTING if lasting else Holder(self._engine.runs.owner, self._engine.runs.ttl)
        script = partial(answer_permission, check_id("per", id), answer)
        await self._write_answer(partial(script, session_id=session, holder=holder))
        if reply == "always" and not lasting:
            self._holds_rules = True
            self._engine.runs.keep()

    async def reply_question(self, id: str, answers: Sequence[Sequence[str]]) -> None:
        """Answer questions: for each, in their order, the labels that were chosen."""
        given = check_values(answers, list[str], "answers")
        script = partial(answer_question, check_id("que", id), given)
        await self._write_answer(script)

    async def reject_question(self, id: str) -> None:
        """Say that questions will not be answered; the turn that asked them ends."""
        await self._write_answer(partial(reject_question, check_id("que", id)))

    async def allowed(self, project_id: str | None = None) -> list[AllowedPermission]:
        """What people allowed in a project, the engine's own by default, by the reply `always`."""
        project = await self._project(project_id)
        return await self._engine.store.scan(
            partial(allowed_in, project, self._engine.runs.is_open)
        )

    async def forget_allowed(self, project_id: str | None = None, *, id: str | None = None) -> int:
        """Ask again for what was allowed in a project, or for one thing of it; tells how many
        there were."""
        project = await self._project(project_id)
        one = None if id is None else check_text(id, "id")
        return await self._engine.store.write(partial(forget_allowed, project, one))

    async def rules(self, session_id: str) -> tuple[list[PermissionRule], list[PermissionRule]]:
        """The rules that a session has of its own now, and what people allowed in its project."""
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
        # Read after them: what a run asked that has ended since is not open any more.
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
            # Only whoever took the run over withdraws what it still waits for.
            raise LeaseLost(request.sessionID)
        return answer

    async def _answer(self, request: AskRequest) -> AskAnswer:
        while True:
            try:
                return await self._heard(request)
            except StoreError as error:
                _log.warning("cannot hear the answer to %s, trying again: %s", request.id, error)
                await asyncio.sleep(_PAUSE)

    async def _heard(self, request: AskRequest) -> AskAnswer:
        read = partial(self._engine.store.read, partial(answer_of, request.id))
        async with self._engine.events.subscribe(session=request.sessionID) as events:
            # Looked at while listening: an answer is either there already or heard of.
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
            # Whatever ends the run withdraws it too.
            _log.warning("%s could not be withdrawn: %s", request.id, error)


def _may_end(event: Event, id: str) -> bool:
    # A listener that was too slow is sent back to the log, where the answer follows.
    return event.type in _ENDS and id in event.payload
