"""Routes for sessions: create, read, change, fork and delete them. Lists are in `session_lists`."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from kedge.domain.permissions import PermissionRule
from kedge.domain.sessions import ModelRef, SessionInfo, SessionStatus, Todo
from kedge.engine.json_views import child_session_texts, fork_session_texts, session_text, shown
from kedge.engine.session import Session
from kedge.server.requests import NoBody, NoQuery, Request, checked_id
from kedge.server.responses import TRUE, Response, json, json_text
from kedge.server.router import Routes
from kedge.server.routes.session_lists import allowed

routes = Routes()


class CreateBody(msgspec.Struct, frozen=True, kw_only=True):
    """A new session; all fields are optional."""

    parentID: str | None = None
    """The session of which it is a subtask."""
    title: str | None = None
    agent: str | None = None
    model: ModelRef | None = None
    metadata: dict[str, Any] | None = None
    permission: list[PermissionRule] | None = None


class ArchiveTime(msgspec.Struct, frozen=True, kw_only=True):
    """When the session was archived."""

    archived: int | float | UnsetType | None = UNSET
    """null takes it out of the archive."""


class UpdateBody(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a session."""

    title: str | None = None
    metadata: dict[str, Any] | None = None
    """Replaces the existing metadata."""
    permission: list[PermissionRule] | None = None
    """Added to the existing rules."""
    time: ArchiveTime | None = None


class ForkBody(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fork ends."""

    messageID: str | None = None
    """The first message that the fork leaves out; by default it has all messages."""


def _permits(body: CreateBody | UpdateBody) -> bool:
    return body.permission is not None


@routes.post(
    "/session",
    "session.create",
    body=CreateBody,
    body_may_be_absent=True,
    answer=SessionInfo,
    grants=_permits,
)
async def create_session(request: Request[NoQuery, CreateBody]) -> Response:
    """Create a session in the directory of the request."""
    engine, body = request.backend.engine, request.body
    directory = request.directory
    parent = None if body.parentID is None else checked_id("ses", body.parentID, "parentID")
    if parent is not None and request.backend.settings.root is not None:
        request.backend.settings.check_root((await engine.sessions.get(parent)).info.directory)
    session = await engine.sessions.create(
        body.title,
        parent=parent,
        directory=None if directory == engine.place.directory else directory,
        agent=body.agent,
        model=body.model,
        metadata=body.metadata,
        permission=body.permission,
    )
    return json(session.info)


@routes.get("/session/status", "session.status", answer=dict[str, SessionStatus])
async def session_status(request: Request[NoQuery, NoBody]) -> Response:
    """The status of sessions by id; idle sessions are left out."""
    running = await request.backend.engine.runs.statuses()
    allows = request.backend.settings.allows
    return json({id: run.status for id, run in running.items() if allows(run.directory)})


@routes.get("/session/{sessionID}", "session.get", answer=SessionInfo)
async def get_session(request: Request[NoQuery, NoBody]) -> Response:
    """One session."""
    return json_text(await session_text(request.backend.engine, await request.session_id()))


@routes.patch(
    "/session/{sessionID}",
    "session.update",
    body=UpdateBody,
    answer=SessionInfo,
    grants=_permits,
)
async def update_session(request: Request[NoQuery, UpdateBody]) -> Response:
    """Change a session's title, metadata or permissions, or archive it."""
    body = request.body
    session = await request.session()
    archived = UNSET if body.time is None else body.time.archived
    await session.update(
        title=body.title,
        metadata=body.metadata,
        permission=body.permission,
        archived=None if archived is UNSET else False if archived is None else archived,
    )
    return await _answer(session)


@routes.delete("/session/{sessionID}", "session.delete", answer=bool)
async def delete_session(request: Request[NoQuery, NoBody]) -> Response:
    """Delete a session and its subtasks; it can be restored for some days."""
    session = await request.session()
    if request.backend.settings.root is not None:
        await _check_subtasks(request, session)
    await session.delete()
    return TRUE


@routes.post("/session/{sessionID}/restore", "kedge.session.restore", answer=SessionInfo)
async def restore_session(request: Request[NoQuery, NoBody]) -> Response:
    """Restore a deleted session with its subtasks."""
    id = request.id("ses", "sessionID")
    if request.backend.settings.root is not None:
        await _check_deleted(request, id)
    return await _answer(await request.backend.engine.sessions.restore(id))


@routes.get("/session/{sessionID}/children", "session.children", answer=list[SessionInfo])
async def children(request: Request[NoQuery, NoBody]) -> Response:
    """The subtasks of a session."""
    id = await request.session_id()
    found = await child_session_texts(request.backend.engine, id)
    return json_text(allowed(request.backend.settings, found).text)


@routes.get("/session/{sessionID}/todo", "session.todo", answer=list[Todo])
async def todos(request: Request[NoQuery, NoBody]) -> Response:
    """The todo list of a session."""
    return json(await (await request.session()).todos())


@routes.get("/session/{sessionID}/forks", "kedge.session.forks", answer=list[SessionInfo])
async def forks(request: Request[NoQuery, NoBody]) -> Response:
    """The sessions that were forked from a session."""
    id = await request.session_id()
    found = await fork_session_texts(request.backend.engine, id)
    return json_text(allowed(request.backend.settings, found).text)


@routes.post(
    "/session/{sessionID}/fork",
    "session.fork",
    body=ForkBody,
    body_may_be_absent=True,
    answer=SessionInfo,
)
async def fork_session(request: Request[NoQuery, ForkBody]) -> Response:
    """Create a new session with all messages, or with those before a message."""
    before = request.body.messageID
    if before is not None:
        checked_id("msg", before, "messageID")
    return await _answer(await (await request.session()).fork(before))


async def _check_subtasks(request: Request[NoQuery, NoBody], session: Session) -> None:
    """Refuse a session with a subtask that clients may not use: it would be deleted as well."""
    pending = await session.children()
    while pending:
        each = pending.pop()
        request.backend.settings.check_root(each.info.directory)
        pending += await each.children()


async def _check_deleted(request: Request[NoQuery, NoBody], id: str) -> None:
    """Refuse a deleted session that clients may not use; no other route can read it."""
    sessions = request.backend.engine.sessions
    page = await sessions.deleted()
    while all(each.info.id != id for each in page.sessions) and page.cursor is not None:
        page = await sessions.deleted(cursor=page.cursor)
    found = next((each.info for each in page.sessions if each.info.id == id), None)
    if found is None:
        await request.session()
    else:
        request.backend.settings.check_root(found.directory)


async def _answer(session: Session) -> Response:
    return json(await shown(session))
