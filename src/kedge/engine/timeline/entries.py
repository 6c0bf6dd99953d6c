"""Pages of the timeline as callers get them."""

import base64
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kedge.domain.cursors import PageCursor
from kedge.domain.ids import check_id
from kedge.domain.timeline import TimelineEntry, TimelineFile
from kedge.engine.validation import check_limit, check_time
from kedge.engine.worktree_paths import AnyPath, find_path
from kedge.store.queries.history import CallInfo, call_infos, session_titles
from kedge.store.queries.timeline_pages import (
    Page,
    Recorded,
    TimelineFilter,
    WrittenFile,
    status_of,
    timeline_page,
)
from kedge.store.transaction import Script

if TYPE_CHECKING:
    from kedge.engine.engine import Engine

_LIST = "timeline"
_END = 2**62


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """A page of what happened to files, newest first."""

    entries: list[TimelineEntry]
    cursor: str | None
    """Pass it back to get the next page; None at the end."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller wants to see."""

    path: AnyPath | None
    session: str | None
    since: int | float | None
    until: int | float | None
    limit: int
    cursor: str | None


async def timeline_list(
    engine: "Engine", asked: Asked, directory: str | os.PathLike[str] | None
) -> TimelinePage:
    """One page of the timeline of a directory's worktree."""
    place = await (engine.here() if directory is None else engine.look_up(directory))
    path = b""
    if asked.path is not None:
        path = find_path(asked.path, directory=place.directory, root=place.worktree)
    chosen = TimelineFilter(
        path=path,
        session_id="" if asked.session is None else check_id("ses", asked.session),
        since=0 if asked.since is None else int(check_time(asked.since, "since")),
        until=_END if asked.until is None else int(check_time(asked.until, "until")),
    )
    limit = check_limit(asked.limit)
    before = _END if asked.cursor is None else PageCursor.parse(asked.cursor, _LIST).at
    script = partial(_page, place.worktree, chosen, before, limit)
    (found, has_more), infos = await engine.store.scan(script)
    entries = [_entry(each, info) for each, info in zip(found, infos, strict=True)]
    cursor = PageCursor(found[-1].number, "").text(_LIST) if found and has_more else None
    return TimelinePage(entries, cursor)


def _page(
    root: str, chosen: TimelineFilter, before: int, limit: int
) -> Script[tuple[Page, list[CallInfo]]]:
    """A page, and what is known of the call of each entry."""
    page = yield from timeline_page(root, chosen, before=before, limit=limit)
    found, _ = page
    calls = [
        (each.session_id, each.message_id, each.pos, each.part_id) for each in found if each.part_id
    ]
    known = iter((yield from call_infos(calls)))
    titles = yield from session_titles(each.session_id for each in found if each.session_id)
    infos = [
        next(known) if each.part_id else CallInfo(title=titles.get(each.session_id), message_id="")
        for each in found
    ]
    return page, infos


def _entry(recorded: Recorded, info: CallInfo) -> TimelineEntry:
    return TimelineEntry(
        kind=recorded.kind,
        number=recorded.number,
        time=info.time if recorded.time is None else recorded.time,
        sessionID=recorded.session_id or None,
        title=info.title,
        promptID=info.prompt_id,
        messageID=info.message_id or None,
        partID=recorded.part_id or None,
        tool=info.tool,
        files=[_file(each) for each in recorded.files],
        more=recorded.more or None,
    )


def _file(file: WrittenFile) -> TimelineFile:
    try:
        path, raw = file.path.decode(), None
    except UnicodeDecodeError:
        path, raw = file.path.decode(errors="replace"), base64.b64encode(file.path).decode()
    return TimelineFile(path=path, pathBase64=raw, status=status_of(file), reason=file.reason)
