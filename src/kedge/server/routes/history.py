"""Routes for what sessions did: diffs, past files, whose lines are, tails, and search."""

import base64
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

import msgspec

from kedge.domain.blame import Blame, LineOrigin
from kedge.domain.errors import MessageNotFound, SessionNotFound, TooLarge
from kedge.domain.sessions import FileDiff, SessionInfo, Tail
from kedge.domain.timeline import TimelineEntry
from kedge.domain.values import Value
from kedge.domain.worktrees import TreeEntry, path_in
from kedge.engine.files.browse import LARGEST_FILE, FileContent, content_of
from kedge.engine.json_views import shown
from kedge.engine.session import Session
from kedge.server.errors import BadRequest
from kedge.server.requests import NoBody, NoQuery, Request, checked_id
from kedge.server.responses import Response, json
from kedge.server.router import Routes
from kedge.server.routes.session_lists import next_page

routes = Routes()


class SessionDiffQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the session; by default all of it."""

    messageID: str | None = None
    """Only this message; for a prompt, its whole turn."""
    since: str | None = msgspec.field(default=None, name="from")
    """From this message; by default from the first."""
    until: str | None = None
    """Up to this message, excluded."""


class PastQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A path as of a message, relative to the session's directory."""

    messageID: str
    path: str = ""
    pathBase64: str | None = None
    """Replaces `path` for one that is not UTF-8."""


class BlameQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A file, relative to the directory of the request."""

    path: str = ""
    pathBase64: str | None = None
    """Replaces `path` for one that is not UTF-8."""


class TimelineQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to show of a worktree; by default everything."""

    path: str = ""
    """A file, or a folder with what is in it, relative to the directory of the request."""
    pathBase64: str | None = None
    """Replaces `path` for one that is not UTF-8."""
    session: str | None = None
    """Only what this session did."""
    since: int | None = None
    """Only what was recorded from this time on, in milliseconds."""
    until: int | None = None
    """Only what was recorded before this time."""
    limit: int = 50
    cursor: str | None = None
    """The `x-next-cursor` of the previous page."""


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for, and where; by default in the project of the request's directory."""

    query: str
    """Words; each matches as a prefix."""
    path: str | None = None
    """Only sessions at or below this path in the project."""
    scope: Literal["project", "all"] = "project"
    limit: int = 30
    cursor: str | None = None
    """The `x-next-cursor` of the previous page."""


class SearchMatch(Value, frozen=True, kw_only=True):
    """A match of the words."""

    session: SessionInfo
    messageID: str | None = None
    """Absent when the title matched."""
    partID: str | None = None
    excerpt: str


@routes.get(
    "/session/{sessionID}/diff", "session.diff", query=SessionDiffQuery, answer=list[FileDiff]
)
async def diff(request: Request[SessionDiffQuery, NoBody]) -> Response:
    """What a session changed in files: in all, in one message, or in a range of messages."""
    query = request.query
    for name, id in (("messageID", query.messageID), ("from", query.since), ("until", query.until)):
        if id is not None:
            checked_id("msg", id, name, kind="Query")
    if query.since is not None or query.until is not None:
        return await _stretch(request)
    try:
        return json(await (await request.session()).diff(query.messageID))
    except (SessionNotFound, MessageNotFound):
        return json([])


async def _stretch(request: Request[SessionDiffQuery, NoBody]) -> Response:
    query = request.query
    if query.until is None or query.messageID is not None:
        raise BadRequest("give messageID, or until with or without from", "Query")
    return json(await (await request.session()).diff(query.since, until=query.until))


@routes.get(
    "/session/{sessionID}/tree", "kedge.session.tree", query=PastQuery, answer=list[TreeEntry]
)
async def tree(request: Request[PastQuery, NoBody]) -> Response:
    """The entries of a folder as of a message."""
    id = checked_id("msg", request.query.messageID, "messageID", kind="Query")
    session, path = await _past(request)
    return json(await session.tree(id, path))


@routes.get("/session/{sessionID}/file", "kedge.session.file", query=PastQuery, answer=FileContent)
async def file(request: Request[PastQuery, NoBody]) -> Response:
    """The content of a file as of a message, or the target of a symlink."""
    id = checked_id("msg", request.query.messageID, "messageID", kind="Query")
    session, path = await _past(request)
    content = await session.file(id, path)
    if len(content) > LARGEST_FILE:
        raise TooLarge(f"the file is larger than {LARGEST_FILE} bytes")
    return json(content_of(os.fsdecode(path), content))


@routes.get("/blame", "kedge.blame", query=BlameQuery, answer=Blame)
async def blame(request: Request[BlameQuery, NoBody]) -> Response:
    """Who wrote each line of a file as it is on disk."""
    path, directory = _path(request.query), request.directory
    request.backend.settings.check_file(path, directory)
    blame = await request.backend.engine.blame(path, directory=directory)
    origins = await _without_titles(request, blame.origins)
    return json(msgspec.structs.replace(blame, origins=origins))


@routes.get("/timeline", "kedge.timeline", query=TimelineQuery, answer=list[TimelineEntry])
async def timeline(request: Request[TimelineQuery, NoBody]) -> Response:
    """Who did what to which files of the worktree, newest first."""
    query, settings = request.query, request.backend.settings
    place = await request.known_place()
    path = _path(query) or None
    if path is not None:
        settings.check_past(path, place.directory)
    elif settings.root is not None and path_in(place.worktree, settings.root, b"") is not None:
        # The worktree extends beyond what clients may use.
        path = settings.root
    page = await request.backend.engine.timeline.list(
        directory=place.directory,
        path=path,
        session=query.session,
        since=query.since,
        until=query.until,
        limit=query.limit,
        cursor=query.cursor,
    )
    return json(await _without_titles(request, page.entries), headers=next_page(page.cursor))


@routes.get("/session/{sessionID}/tails", "kedge.session.tails", answer=list[Tail])
async def tails(request: Request[NoQuery, NoBody]) -> Response:
    """The tails that final reverts removed from a session, oldest first."""
    return json(await (await request.session()).tails())


@routes.post(
    "/session/{sessionID}/tails/{tailID}/restore", "kedge.session.tails.restore", answer=SessionInfo
)
async def restore_tail(request: Request[NoQuery, NoBody]) -> Response:
    """Make a new session from a tail and everything before it; files are not touched."""
    id = request.id("tail", "tailID")
    return json(await shown(await (await request.session()).restore_tail(id)))


@routes.get("/search", "kedge.search", query=SearchQuery, answer=list[SearchMatch])
async def search(request: Request[SearchQuery, NoBody]) -> Response:
    """Matches of words in titles, messages and tool calls, title matches first."""
    query = request.query
    everywhere = query.scope == "all"
    result = await request.backend.engine.sessions.search(
        query.query,
        project=None if everywhere else (await request.place()).project.id,
        path=None if everywhere else query.path,
        everywhere=everywhere,
        limit=query.limit,
        cursor=query.cursor,
    )
    matches = [
        SearchMatch(
            session=hit.session, messageID=hit.messageID, partID=hit.partID, excerpt=hit.excerpt
        )
        for hit in result.hits
        if request.backend.settings.allows(hit.session.directory)
    ]
    return json(matches, headers=next_page(result.cursor))


Told = TypeVar("Told", LineOrigin, TimelineEntry)


async def _without_titles(request: Request[Any, NoBody], told: Sequence[Told]) -> list[Told]:
    """What is told of sessions, without the titles of those that clients may not use."""
    backend = request.backend
    if backend.settings.root is None:
        return list(told)
    allowed: dict[str | None, bool] = {None: True}
    for each in told:
        if each.sessionID is not None and each.title is not None:
            with suppress(SessionNotFound):
                session = await backend.engine.sessions.get(each.sessionID)
                allowed[each.sessionID] = backend.settings.allows(session.info.directory)
    return [
        each if allowed.get(each.sessionID, False) else msgspec.structs.replace(each, title=None)
        for each in told
    ]


async def _past(request: Request[PastQuery, NoBody]) -> tuple[Session, str | bytes]:
    """The session and the path in the request, if clients may use both."""
    path = _path(request.query)
    session = await request.session()
    request.backend.settings.check_past(path, session.info.directory)
    return session, path


def _path(query: PastQuery | BlameQuery | TimelineQuery) -> str | bytes:
    if query.pathBase64 is None:
        return query.path
    try:
        return base64.b64decode(query.pathBase64, validate=True)
    except ValueError:
        raise BadRequest("pathBase64: expected base64", "Query") from None
