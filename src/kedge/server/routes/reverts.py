"""Routes for reverts and undos: preview, revert and unrevert, undo and redo."""

from typing import Any

import msgspec

from kedge.domain.events import SessionUpdated
from kedge.domain.receipts import Receipt, RevertScope, RevertStrategy
from kedge.domain.sessions import SessionInfo
from kedge.engine.engine import Engine
from kedge.engine.json_views import shown
from kedge.engine.session import Session
from kedge.server.requests import NoBody, NoQuery, Request, checked_id
from kedge.server.responses import Response, json
from kedge.server.router import Routes, always

routes = Routes()

_TOLD = 64 * 1024
"""Characters of a diff that are sent to event clients."""
_NEXT_FILE = "\ndiff --git "


class RevertBody(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a revert, and its options; all fields except the ids are kedge's own."""

    messageID: str
    partID: str | None = None
    strategy: RevertStrategy = "merge"
    """What to do with a file in which the session's changes and those of others cannot be
    separated: leave it alone, restore it anyway, or change nothing at all."""
    dryRun: bool = False
    """Only report what would be done."""
    files: list[str] | None = None
    """Only these paths and everything below them, relative to the session's directory."""
    scope: RevertScope = "all"
    """What to revert."""


class UndoBody(msgspec.Struct, frozen=True, kw_only=True):
    """The calls to undo or redo, and how: at least one of the first four fields is needed."""

    calls: list[str] | None = None
    """Ids that the model gave to its calls: `callID` of their parts."""
    parts: list[str] | None = None
    messages: list[str] | None = None
    """All calls of an answer; for a prompt, of its turn."""
    files: list[str] | None = None
    """Only these paths and everything below them, relative to the session's directory; alone, all
    calls there."""
    strategy: RevertStrategy = "merge"
    """What to do with a file in which the calls cannot be separated from what came later: leave it
    alone, restore it to before the first of them (not for a redo), or change nothing at all."""
    dryRun: bool = False
    """Only report what would be done."""


class RevertedSession(SessionInfo, frozen=True, kw_only=True):
    """A session, and what was done to its files."""

    receipt: Receipt


@routes.post(
    "/session/{sessionID}/revert",
    "session.revert",
    body=RevertBody,
    answer=RevertedSession,
    grants=always,
)
async def revert(request: Request[NoQuery, RevertBody]) -> Response:
    """Undo a session's changes to files since a message or part, and hide the messages since then.

    The next prompt makes it final; until then `unrevert` takes it back.
    """
    body = request.body
    message_id = checked_id("msg", body.messageID, "messageID")
    part_id = None if body.partID is None else checked_id("prt", body.partID, "partID")
    session = await request.session()
    receipt = await session.revert(
        message_id,
        part_id,
        strategy=body.strategy,
        dry_run=body.dryRun,
        files=body.files,
        scope=body.scope,
    )
    info = await shown(session)
    if receipt.applied:
        await _tell_diff(request.backend.engine, session, info)
    return _answer(info, receipt)


@routes.post(
    "/session/{sessionID}/unrevert", "session.unrevert", answer=RevertedSession, grants=always
)
async def unrevert(request: Request[NoQuery, NoBody]) -> Response:
    """Restore what `revert` undid."""
    session = await request.session()
    receipt = await session.unrevert()
    return _answer(session.info, receipt)


@routes.post(
    "/session/{sessionID}/undo",
    "kedge.session.undo",
    body=UndoBody,
    answer=RevertedSession,
    grants=always,
)
async def undo(request: Request[NoQuery, UndoBody]) -> Response:
    """Take chosen calls out of the files and leave all that came later in place.

    No message is hidden; `redo` puts the calls back at any time.
    """
    session = await request.session()
    receipt = await session.undo(**_asked(request.body))
    return _answer(await shown(session), receipt)


@routes.post(
    "/session/{sessionID}/redo",
    "kedge.session.redo",
    body=UndoBody,
    answer=RevertedSession,
    grants=always,
)
async def redo(request: Request[NoQuery, UndoBody]) -> Response:
    """Put calls back that `undo` took out of the files."""
    session = await request.session()
    receipt = await session.redo(**_asked(request.body))
    return _answer(await shown(session), receipt)


def _asked(body: UndoBody) -> dict[str, Any]:
    return {
        "calls": body.calls,
        "parts": _checked("prt", body.parts, "parts"),
        "messages": _checked("msg", body.messages, "messages"),
        "files": body.files,
        "strategy": body.strategy,
        "dry_run": body.dryRun,
    }


def _checked(prefix: str, ids: list[str] | None, name: str) -> list[str] | None:
    return None if ids is None else [checked_id(prefix, id, name) for id in ids]


def _answer(info: SessionInfo, receipt: Receipt) -> Response:
    fields = {name: getattr(info, name) for name in info.__struct_fields__}
    return json(RevertedSession(receipt=receipt, **fields))


async def _tell_diff(engine: Engine, session: Session, info: SessionInfo) -> None:
    """Send event clients the diff of a revert: it is not stored, so no other event holds it, and
    terminal UIs load it only once."""
    if info.revert is None or info.revert.diff is None:
        return
    reverted = session.info.revert
    now = (await session.refresh()).info
    if now.revert != reverted:
        return
    revert = msgspec.structs.replace(info.revert, diff=_beginning(info.revert.diff))
    engine.events.announce(
        SessionUpdated(sessionID=now.id, info=msgspec.structs.replace(now, revert=revert)),
        session_id=now.id,
        project_id=now.projectID,
        directory=now.directory,
    )


def _beginning(diff: str) -> str:
    """As many whole files of a diff as fit."""
    if len(diff) <= _TOLD:
        return diff
    return diff[: diff.rfind(_NEXT_FILE, 0, _TOLD) + 1]
