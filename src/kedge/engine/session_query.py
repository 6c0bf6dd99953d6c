"""Queries for lists of sessions, and one page of them."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kedge.domain.cursors import PageCursor
from kedge.domain.errors import InvalidInput
from kedge.engine.validation import check_flag, check_limit, check_path, check_text, check_time
from kedge.engine.worktrees import real_path
from kedge.store.queries.search import search_sessions
from kedge.store.queries.session_lists import (
    EVERYWHERE,
    SessionPage,
    directory_place,
    path_place,
    session_page,
)
from kedge.store.transaction import Script, ScriptMaker

if TYPE_CHECKING:
    from kedge.engine.engine import Engine

T = TypeVar("T")

_FIRST_TIME, _LAST_TIME = -(2**62), 2**62
_KIND = "sessions"
"""The name of the list in its cursors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which sessions to list; see `Sessions.list` for the fields."""

    directory: str | os.PathLike[str] | None = None
    path: str | None = None
    project: str | None = None
    everywhere: bool = False
    roots: bool | None = None
    archived: bool | None = None
    start: int | float | None = None
    before: int | float | None = None
    search: str | None = None
    limit: int = 100
    cursor: str | None = None


async def read_page(
    engine: "Engine", listing: Listing, look: Callable[[SessionPage], list[T]]
) -> tuple[list[T], str | None]:
    """The items of a page, and the cursor of the next one."""
    find = await _finding(engine, listing)
    found, more = await engine.store.scan(partial(_looked_at, find, look))
    return found, more.text(_KIND) if more else None


def _looked_at(
    find: ScriptMaker[SessionPage], look: Callable[[SessionPage], list[T]]
) -> Script[tuple[list[T], PageCursor | None]]:
    page = yield from find()
    return look(page), page.next


async def place_of(engine: "Engine", listing: Listing) -> str:
    """The list that the sessions stand in."""
    directory, path, project = listing.directory, listing.path, listing.project
    everywhere = bool(check_flag(listing.everywhere, "everywhere"))
    in_project = path is not None or project is not None
    if sum((directory is not None, in_project, everywhere)) > 1:
        raise InvalidInput("give only one of directory, path and everywhere")
    if everywhere:
        return EVERYWHERE
    if directory is not None:
        # Not looked up: sessions of a folder that is gone can still be listed.
        return directory_place(real_path(directory))
    below = "" if path is None else str(check_path(path, "path")).strip("/")
    below = "" if below == "." else below
    if project is None:
        project = (await engine.here()).project.id
    return path_place(check_text(project, "project"), below)


async def _finding(engine: "Engine", listing: Listing) -> ScriptMaker[SessionPage]:
    """The script that reads a page."""
    after = None if listing.cursor is None else PageCursor.parse(listing.cursor, _KIND)
    roots = check_flag(listing.roots, "roots")
    archived = check_flag(listing.archived, "archived")
    start = _bound(listing.start, "start", _FIRST_TIME)
    before = _bound(listing.before, "before", _LAST_TIME)
    limit = check_limit(listing.limit)
    place = await place_of(engine, listing)
    find: Callable[..., Script[SessionPage]] = session_page
    if listing.search is not None:
        query = check_text(listing.search, "search")
        await engine.upkeep.index()
        find = partial(search_sessions, query)
    return partial(
        find,
        place,
        roots=roots,
        archived=archived,
        start=start,
        before=before,
        after=after,
        limit=limit,
    )


def _bound(time: int | float | None, name: str, otherwise: int) -> int:
    return otherwise if time is None else math.ceil(check_time(time, name))
