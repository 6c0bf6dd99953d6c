"""Routes for lists of sessions: of a project or directory, of all projects, and of deleted ones."""

import math
from dataclasses import replace
from typing import Annotated, Literal, TypeAlias

import msgspec

from kedge.domain.errors import DirectoryNotFound
from kedge.domain.sessions import SessionInfo
from kedge.engine.json_views import ProjectSummary, Texts, session_texts, with_projects
from kedge.engine.session_query import Listing
from kedge.engine.validation import MAX_LIMIT
from kedge.server.errors import BadRequest
from kedge.server.requests import NoBody, Request
from kedge.server.responses import Response, json, json_text
from kedge.server.router import Routes
from kedge.server.settings import ServerSettings

routes = Routes()

Number: TypeAlias = Annotated[str, msgspec.Meta(extra_json_schema={"type": "number"})]
"""A number in a query; one that is not a number is ignored, as OpenCode does."""
Flag: TypeAlias = Literal["true", "false"]

_EXPOSED = ("access-control-expose-headers", "X-Next-Cursor")


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list, the most recently changed first."""

    scope: Literal["project"] | None = None
    """All sessions of the project, ignoring the directory."""
    path: str | None = None
    """Sessions at or below a path in the project."""
    roots: Flag | None = None
    """Only sessions that are not subtasks."""
    start: Number | None = None
    """Sessions that changed since this time, in milliseconds."""
    search: str | None = None
    """Sessions that have this in their title, in any case, or its words in what was said."""
    limit: Number | None = None
    cursor: str | None = None
    """The `x-next-cursor` of the previous page."""


class GlobalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions of all projects to list, the most recently changed first."""

    roots: Flag | None = None
    start: Number | None = None
    cursor: Number | None = None
    """Sessions last changed before this time: the `x-next-cursor` of the previous page."""
    search: str | None = None
    limit: Number | None = None
    archived: Flag | None = None
    """Also archived sessions."""


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of a list."""

    limit: int = 100
    cursor: str | None = None
    """The `x-next-cursor` of the previous page."""


class GlobalSession(SessionInfo, frozen=True, kw_only=True):
    """A session and its project."""

    project: ProjectSummary


@routes.get("/session", "session.list", query=ListQuery, answer=list[SessionInfo])
async def list_sessions(request: Request[ListQuery, NoBody]) -> Response:
    """The sessions of a project or directory, the most recently changed first."""
    query = request.query
    listing = Listing(
        roots=True if query.roots == "true" else None,
        start=_number(query.start),
        search=query.search or None,
        limit=_limit(query.limit),
        cursor=query.cursor,
    )
    page = await _page(request, await _placed(request, listing))
    return json_text(page.text, headers=next_page(page.cursor))


@routes.get(
    "/experimental/session",
    "experimental.session.list",
    query=GlobalQuery,
    answer=list[GlobalSession],
)
async def list_all_sessions(request: Request[GlobalQuery, NoBody]) -> Response:
    """The sessions of all projects, the most recently changed first."""
    query = request.query
    listing = Listing(
        directory=request.directory if request.names_directory else None,
        everywhere=not request.names_directory,
        roots=True if query.roots == "true" else None,
        archived=None if query.archived == "true" else False,
        start=_number(query.start),
        before=_number(query.cursor),
        search=query.search or None,
        limit=_limit(query.limit),
    )
    page = await _page(request, listing)
    texts = await with_projects(request.backend.engine, page.texts)
    more = str(_seen(page.texts[-1]).time.updated) if page.cursor else None
    return json_text(Texts(texts, None).text, headers=next_page(more))


@routes.get("/session/deleted", "kedge.session.deleted", query=PageQuery, answer=list[SessionInfo])
async def list_deleted_sessions(request: Request[PageQuery, NoBody]) -> Response:
    """Deleted sessions that can still be restored, the first deleted first, each with
    `time.deleted`."""
    query = request.query
    page = await request.backend.engine.sessions.deleted(limit=query.limit, cursor=query.cursor)
    infos = [
        _with_deletion(each.info, each.time_deleted)
        for each in page.sessions
        if request.backend.settings.allows(each.info.directory)
    ]
    return json(infos, headers=next_page(page.cursor))


async def _placed(request: Request[ListQuery, NoBody], listing: Listing) -> Listing:
    """The scope of a list: a directory only if the query gives it and nothing wider."""
    query = request.query
    if request.names_directory and query.scope is None and query.path is None:
        return replace(listing, directory=request.directory)
    try:
        place = await request.place()
    except DirectoryNotFound:
        # The directory is gone, but its sessions still exist.
        return replace(listing, directory=request.directory)
    return replace(listing, project=place.project.id, path=query.path or None)


async def _page(
    request: Request[ListQuery, NoBody] | Request[GlobalQuery, NoBody], listing: Listing
) -> Texts:
    engine, settings = request.backend.engine, request.backend.settings
    page = await session_texts(engine, listing)
    if settings.root is None:
        return page
    texts = allowed(settings, page).texts
    while page.cursor is not None and len(texts) < listing.limit:
        wanted = replace(listing, cursor=page.cursor, limit=listing.limit - len(texts))
        page = await session_texts(engine, wanted)
        texts += allowed(settings, page).texts
    return Texts(texts, page.cursor)


class _Seen(msgspec.Struct, frozen=True):
    directory: str
    time: "_Time"


class _Time(msgspec.Struct, frozen=True):
    updated: int


def _seen(text: str) -> _Seen:
    return msgspec.json.decode(text, type=_Seen)


def allowed(settings: ServerSettings, page: Texts) -> Texts:
    """The sessions of a page that clients may use."""
    if settings.root is None:
        return page
    texts = [text for text in page.texts if settings.allows(_seen(text).directory)]
    return Texts(texts, page.cursor)


def _with_deletion(info: SessionInfo, at: int) -> SessionInfo:
    time = msgspec.structs.replace(info.time, extra={**(info.time.extra or {}), "deleted": at})
    return msgspec.structs.replace(info, time=time)


def next_page(cursor: str | None) -> list[tuple[str, str]]:
    """The headers that point to the next page."""
    return [] if cursor is None else [("x-next-cursor", cursor), _EXPOSED]


def _number(text: str | None) -> float | None:
    try:
        number = math.nan if text is None else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _limit(text: str | None) -> int:
    if text is None:
        return Listing().limit
    number = _number(text)
    if number is None or number < 0:
        return MAX_LIMIT
    if not number.is_integer():
        raise BadRequest(f"limit: expected a whole number; found {text}", "Query")
    return min(int(number), MAX_LIMIT)
