"""Full-text search over titles, message text and tool input and output.

The index is filled from the event log, in the background and again just before a search, up to a
high-water mark: writing a part costs nothing extra, and a search still sees everything that was
stored before it. A fork's copies have no events of their own, so they are not indexed.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from kedge.domain import wire
from kedge.domain.cursors import PageCursor
from kedge.domain.errors import InvalidCursor, InvalidInput, InvariantBroken
from kedge.domain.events import (
    EventProperties,
    MessageRemoved,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionUpdated,
    UnknownEvent,
    read_frame,
)
from kedge.domain.parts import Part, TextPart, ToolCompleted, ToolError, ToolPart, part_ended
from kedge.domain.sessions import SearchHit, SessionInfo
from kedge.store.queries.event_log import events_after, log_head
from kedge.store.queries.session_lists import EVERYWHERE, LAST, SessionPage, buckets_of
from kedge.store.transaction import Row, Script, row, rows, run

MAX_BODY = 64 * 1024
"""How much of one part is indexed."""

COPIED = {"copied": True}
"""Marks the part of an event that only announces a fork's copy: there is nothing new to index."""

_MARK = "search_mark"
_KINDS = ("title", "part")
_MOST_WORDS = 64
_WORD = re.compile(r"[^\W_]+")
_FIRST = PageCursor(2**62, "title")


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Hits, title matches first, the newest of each kind first."""

    hits: list[SearchHit]
    next: PageCursor | None


def search(
    words: Sequence[str], *, after: PageCursor | None, limit: int, place: str = EVERYWHERE
) -> Script[SearchPage]:
    """A page of hits for parts or titles that hold words starting with each of these."""
    at = after or _FIRST
    if at.id not in _KINDS:
        raise InvalidCursor(f"not a cursor of a search: {at.id!r}")
    if not words or not limit:
        return SearchPage([], None)
    found: list[Row] = []
    for kind in _KINDS[_KINDS.index(at.id) :]:
        before = at.at if kind == at.id else _FIRST.at
        fts, tsquery = _fts_query(kind, words), _ts_query(words)
        found += yield from rows(
            "search_hits",
            fts=fts,
            tsquery=tsquery,
            word=words[0],
            place=place,
            kind=kind,
            before=before,
            limit=limit + 1 - len(found),
        )
        if len(found) > limit:
            break
    hits = [
        SearchHit(wire.decode(data, SessionInfo), message or None, part or None, excerpt)
        for _, _, message, part, _, excerpt, data in found[:limit]
    ]
    last = found[limit - 1] if len(found) > limit else None
    return SearchPage(hits, PageCursor(last[0], last[4]) if last else None)


def search_sessions(
    query: str,
    place: str,
    *,
    roots: bool | None,
    archived: bool | None,
    start: int,
    before: int = LAST.at,
    after: PageCursor | None,
    limit: int,
) -> Script[SessionPage]:
    """Sessions of a list that have the query in their title, or its words in their title or in a
    part.

    Reads all titles, but only matching parts.
    """
    title, words = folded(query), query_words(query)
    if not title:
        return SessionPage([], None)
    at = after or LAST
    found = yield from rows(
        "search_sessions",
        title=title,
        # A query without words matches no part.
        fts=f"words : ({_fts_prefixes(words)})" if words else '""',
        tsquery=_ts_query(words),
        place=place,
        buckets=sum(1 << bucket for bucket in buckets_of(roots, archived)),
        start=start,
        before=before,
        time=at.at,
        id=at.id,
        limit=limit + 1,
    )
    page = found[:limit]
    more = PageCursor(page[-1][1], page[-1][2]) if page and len(found) > limit else None
    return SessionPage([data for data, _, _ in page], more)


def index_events(limit: int) -> Script[bool]:
    """Index the next events after the high-water mark; return whether there were any."""
    yield from row("index_lock")
    mark = yield from index_mark()
    events = yield from events_after(mark, limit)
    if not events:
        # The newest ones may have been deleted before they were indexed.
        head = yield from log_head()
        if head > mark:
            yield from run("meta_set", key=_MARK, value=str(head))
        return False
    for each in events:
        if each.type in _INDEXED:
            _, properties = read_frame(each.payload)
            yield from _index(properties)
    yield from run("meta_set", key=_MARK, value=str(events[-1].seq))
    return True


def index_mark() -> Script[int]:
    """The newest event that the index has."""
    found = yield from row("meta_get", key=_MARK)
    return int(found[0]) if found else 0


def index_is_behind() -> Script[bool]:
    """Whether something was stored since the index was last filled."""
    return (yield from log_head()) > (yield from index_mark())


def index_anew() -> Script[None]:
    """Have the index filled again from the beginning of the log."""
    yield from row("index_lock")
    yield from run("meta_set", key=_MARK, value="0")


def query_words(text: str) -> list[str]:
    """The words of a query."""
    words = words_of(text)
    if len(words) > _MOST_WORDS:
        raise InvalidInput(f"a search takes at most {_MOST_WORDS} words", field="words")
    return words


def words_of(text: str) -> list[str]:
    """The words of a query or a text as in the index: folded, without accents."""
    return _WORD.findall(folded(text))


def folded(text: str) -> str:
    """A text without differences of case and without accents.

    Every substring of a text, folded, is a substring of the folded text.
    """
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(each for each in decomposed if not unicodedata.combining(each))
    # PostgreSQL has no NUL in a text.
    return text.casefold().replace("\0", "\ufffd")


def folded_title(data: str | bytes) -> str:
    """The folded title of a session, from its JSON text; empty if that is damaged, so that all
    others can be listed."""
    try:
        return folded(wire.decode(data, SessionInfo).title)
    except InvalidInput:
        return ""


def forget_session(session_id: str, limit: int) -> Script[bool]:
    """Remove a purged session from the index; return whether there may be more to remove."""
    yield from run("title_drop", session_id=session_id)
    found = yield from rows("search_doc_of_session", session_id=session_id, limit=limit)
    for (id,) in found:
        yield from _drop(id)
    return len(found) == limit


_INDEXED = {
    each.type for each in (SessionCreated, SessionUpdated, PartUpdated, PartRemoved, MessageRemoved)
}


def _index(properties: EventProperties | UnknownEvent) -> Script[None]:
    match properties:
        case SessionCreated(info=info) | SessionUpdated(info=info):
            yield from _put(info.id, "", "", "title", info.title)
            yield from run("title_put", session_id=info.id, folded=folded(info.title))
        case PartUpdated(part=part, extra=extra) if part_ended(part) and extra != COPIED:
            if body := _body(part):
                yield from _put(part.sessionID, part.messageID, part.id, "part", body)
            else:
                yield from _drop_part(part.sessionID, part.messageID, part.id)
        case PartRemoved(sessionID=session, messageID=message, partID=part_id):
            yield from _drop_part(session, message, part_id)
        case MessageRemoved(sessionID=session, messageID=message):
            found = yield from rows("search_doc_of_message", session_id=session, message_id=message)
            for (id,) in found:
                yield from _drop(id)
        case _:
            return


def _put(session_id: str, message_id: str, part_id: str, kind: str, text: str) -> Script[None]:
    body = text[:MAX_BODY].replace("\0", " ")
    words = " ".join(words_of(body))
    key = {"session_id": session_id, "message_id": message_id, "part_id": part_id, "kind": kind}
    found = yield from row("search_doc_get", **key)
    if found is not None:
        yield from run("search_text_put", id=found[0], body=body, words=words)
        return
    added = yield from row("search_doc_add", **key)
    if added is None:
        raise InvariantBroken("a search document was not added")
    yield from run("search_text_add", id=added[0], kind=kind, body=body, words=words)


def _drop_part(session_id: str, message_id: str, part_id: str) -> Script[None]:
    found = yield from rows(
        "search_doc_of_part", session_id=session_id, message_id=message_id, part_id=part_id
    )
    for (id,) in found:
        yield from _drop(id)


def _drop(id: int) -> Script[None]:
    yield from run("search_text_drop", id=id)
    yield from run("search_doc_drop", id=id)


def _body(part: Part) -> str:
    if isinstance(part, TextPart):
        return part.text
    if isinstance(part, ToolPart):
        given = wire.encode(part.state.input)
        if isinstance(part.state, ToolCompleted):
            return f"{given[: MAX_BODY // 2]}\n{part.state.output}"
        if isinstance(part.state, ToolError):
            return f"{given[: MAX_BODY // 2]}\n{part.state.error}"
    return ""


def _fts_query(kind: str, words: Sequence[str]) -> str:
    return f'kind : "{kind}" AND words : ({_fts_prefixes(words)})'


def _fts_prefixes(words: Sequence[str]) -> str:
    return " AND ".join(f'"{word}"*' for word in words)


def _ts_query(words: Sequence[str]) -> str:
    return " & ".join(f"{word}:*" for word in words)
