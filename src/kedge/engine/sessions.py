"""The sessions of a database: create, find, list, search, delete and restore them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kedge.domain import wire
from kedge.domain.cursors import PageCursor
from kedge.domain.ids import check_id
from kedge.domain.permissions import PermissionRule
from kedge.domain.sessions import NO_TOKENS, ModelRef, SearchHit, SessionInfo, SessionTime
from kedge.domain.titles import default_title, slug
from kedge.engine.session import Session
from kedge.engine.session_query import Listing, place_of, read_page
from kedge.engine.validation import check_limit, check_text, check_values
from kedge.store.queries.search import query_words, search
from kedge.store.queries.sessions import (
    create_session,
    deleted_sessions,
    get_session,
    restore_session,
    sessions_from,
)

if TYPE_CHECKING:
    from kedge.engine.engine import Engine

_FIRST_TIME = -(2**62)
_HITS, _DELETED = "hits", "deleted"
"""The names of the paged lists in their cursors."""


@dataclass(frozen=True, slots=True)
class SessionList:
    """A page of sessions, the most recently changed first."""

    sessions: list[Session]
    cursor: str | None
    """Pass it back to get the next page; None at the end."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page of search hits."""

    hits: list[SearchHit]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class DeletedSession:
    """A session that can still be restored."""

    info: SessionInfo
    time_deleted: int


@dataclass(frozen=True, slots=True)
class DeletedList:
    """A page of deleted sessions, the earliest deleted first."""

    sessions: list[DeletedSession]
    cursor: str | None
    """Pass it back to get the next page; None at the end."""


class Sessions:
    """All sessions of the engine's database; new ones belong to the engine's directory."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    async def create(
        self,
        title: str | None = None,
        *,
        parent: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        model: ModelRef | None = None,
        metadata: dict[str, Any] | None = None,
        permission: Sequence[PermissionRule] | None = None,
        id: str | None = None,
    ) -> Session:
        """Create a session, in the engine's directory by default.

        `parent` makes it a subtask of another session; `Session.fork` makes a fork.
        """
        engine = self._engine
        place = await (engine.here() if directory is None else engine.locate(directory))
        now = engine.clock.now()
        if parent is not None:
            check_id("ses", parent)
        info = SessionInfo(
            id=engine.ids.session() if id is None else check_id("ses", id),
            slug=slug(engine.random),
            projectID=place.project.id,
            directory=place.directory,
            path=place.path,
            parentID=parent,
            title=default_title(now, parent is not None)
            if title is None
            else check_text(title, "title"),
            version=engine.version,
            agent=None if agent is None else check_text(agent, "agent"),
            model=None if model is None else wire.convert(model, ModelRef),
            metadata=None if metadata is None else wire.convert(metadata, dict[str, Any]),
            permission=None
            if permission is None
            else check_values(permission, PermissionRule, "permission"),
            time=SessionTime(created=now, updated=now),
            cost=0,
            tokens=NO_TOKENS,
        )
        stored = await engine.store.write(partial(create_session, info, place.worktree))
        return Session(engine, stored)

    async def get(self, id: str) -> Session:
        """The session with this id, in any directory."""
        info = await self._engine.store.read(partial(get_session, check_id("ses", id)))
        return Session(self._engine, info)

    async def beginning(self, prefix: str, *, limit: int = 10) -> "list[Session]":
        """The sessions whose id begins like this, in any directory; `ses_` may be left out."""
        whole = f"ses_{check_text(prefix, 'prefix').removeprefix('ses_')}"
        script = partial(sessions_from, whole, check_limit(limit))
        return [Session(self._engine, info) for info in await self._engine.store.read(script)]

    async def list(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        path: str | None = None,
        project: str | None = None,
        everywhere: bool = False,
        roots: bool | None = None,
        archived: bool | None = None,
        start: int | float | None = None,
        before: int | float | None = None,
        search: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> SessionList:
        """Sessions, the most recently changed first; by default those of the engine's project.

        `directory` selects those of exactly this directory, `project` those of the project with
        this id, `path` those at or below a path in the project, `everywhere` those of all projects.
        `roots` and `archived` are True (only those), False (none of those) or None (all). `start`
        leaves out sessions that have not changed since that time, `before` those that have.
        `search` selects sessions that have it anywhere in their title, or its words in their text.
        """
        listing = Listing(
            directory=directory,
            path=path,
            project=project,
            everywhere=everywhere,
            roots=roots,
            archived=archived,
            start=start,
            before=before,
            search=search,
            limit=limit,
            cursor=cursor,
        )
        infos, more = await read_page(self._engine, listing, lambda page: page.sessions)
        return SessionList([Session(self._engine, info) for info in infos], more)

    async def search(
        self,
        words: str,
        *,
        directory: str | os.PathLike[str] | None = None,
        path: str | None = None,
        project: str | None = None,
        everywhere: bool = False,
        limit: int = 30,
        cursor: str | None = None,
    ) -> SearchResult:
        """Search titles, messages and tool calls; hits in titles come first.

        Searches the sessions that `list` shows. A word matches every word that it begins; case and
        accents do not matter.
        """
        check_limit(limit)
        place = await place_of(
            self._engine,
            Listing(directory=directory, path=path, project=project, everywhere=everywhere),
        )
        after = None if cursor is None else PageCursor.parse(cursor, _HITS)
        wanted = query_words(check_text(words, "words"))
        if not wanted:
            return SearchResult([], None)
        await self._engine.upkeep.index()
        page = await self._engine.store.scan(
            partial(search, wanted, after=after, limit=limit, place=place)
        )
        return SearchResult(page.hits, page.next.text(_HITS) if page.next else None)

    async def deleted(self, *, limit: int = 100, cursor: str | None = None) -> DeletedList:
        """Deleted sessions that can still be restored, the earliest deleted first."""
        after = (
            PageCursor(_FIRST_TIME, "") if cursor is None else PageCursor.parse(cursor, _DELETED)
        )
        script = partial(deleted_sessions, (after.at, after.id), check_limit(limit) + 1)
        found = await self._engine.store.scan(script)
        page = [DeletedSession(info, deleted) for info, deleted in found[:limit]]
        last = page[-1] if page and len(found) > limit else None
        more = PageCursor(last.time_deleted, last.info.id).text(_DELETED) if last else None
        return DeletedList(page, more)

    async def restore(self, id: str) -> Session:
        """Restore a deleted session, with the subtasks that were deleted along with it."""
        script = partial(restore_session, check_id("ses", id))
        info = await self._engine.store.write_bulk(script)
        return Session(self._engine, info)
