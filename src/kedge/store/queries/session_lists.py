"""The lists that contain a session, kept in display order, so that a page costs what it holds.

A session stands in the list of everything, of its directory, and of its path in the project and
every folder above it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from kedge.domain import wire
from kedge.domain.cursors import PageCursor
from kedge.domain.sessions import SessionInfo
from kedge.store.transaction import Row, Script, batch, rows, run

EVERYWHERE = "all"
_LONGEST_PLACE = 512
LAST = PageCursor(2**62, "")


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One page of sessions, newest first."""

    texts: list[str]
    """Each as its JSON text for clients."""
    next: PageCursor | None
    """Where the next page starts, if there is one."""

    @property
    def sessions(self) -> list[SessionInfo]:
        """The sessions as values."""
        return [wire.decode(text, SessionInfo) for text in self.texts]


def directory_place(directory: str) -> str:
    """The list of one directory's sessions, in any project."""
    return _key(f"dir:{directory}")


def path_place(project_id: str, path: str) -> str:
    """The list of a project's sessions at or below a path."""
    return _key(f"path:{project_id}/{path}")


def list_session(info: SessionInfo) -> Script[None]:
    """Put a session into its lists."""
    args = [
        {"place": place, "bucket": bucket, "time_updated": updated, "session_id": info.id}
        for place, bucket, updated in places_of(info)
    ]
    yield from batch("place_add", args)


def places_of(info: SessionInfo) -> list[tuple[str, int, int]]:
    """The lists that contain a session, each with the bucket and the time it is ranked by."""
    return [(place, _bucket(info), info.time.updated) for place in _places(info)]


def relist_session(info: SessionInfo) -> Script[None]:
    """Move a session to its new rank in its lists."""
    yield from run(
        "place_touch", bucket=_bucket(info), time_updated=info.time.updated, session_id=info.id
    )


def unlist_session(id: str) -> Script[None]:
    """Take a session out of all lists."""
    yield from run("place_drop", session_id=id)


def session_page(
    place: str,
    *,
    roots: bool | None,
    archived: bool | None,
    start: int,
    before: int = LAST.at,
    after: PageCursor | None,
    limit: int,
) -> Script[SessionPage]:
    """A page of a list; `roots` and `archived` are True, False or, for either, None.

    Sessions whose last change is before `start`, or not before `before`, are left out.
    """
    at = PageCursor(before, "") if after is None or before < after.at else after
    found: list[Row] = []
    for bucket in buckets_of(roots, archived):
        found += yield from rows(
            "place_page",
            place=place,
            bucket=bucket,
            start=start,
            time=at.at,
            id=at.id,
            limit=limit + 1,
        )
    # Each bucket's rows are in order already, so this only merges them.
    found.sort(key=itemgetter(1, 2), reverse=True)
    page = found[:limit]
    more = PageCursor(page[-1][1], page[-1][2]) if page and len(found) > limit else None
    return SessionPage([data for data, _, _ in page], more)


def _places(info: SessionInfo) -> Iterator[str]:
    yield EVERYWHERE
    yield directory_place(info.directory)
    path = info.path or ""
    while path:
        yield path_place(info.projectID, path)
        path = path.rpartition("/")[0]
    yield path_place(info.projectID, "")


def _bucket(info: SessionInfo) -> int:
    return (2 if info.time.archived is not None else 0) + (1 if info.parentID else 0)


def buckets_of(roots: bool | None, archived: bool | None) -> list[int]:
    """The buckets of a selection; None selects both."""
    return [
        bucket
        for bucket in range(4)
        if archived in (None, bucket >= 2) and roots in (None, bucket % 2 == 0)
    ]


def _key(place: str) -> str:
    # PostgreSQL takes no index entry over 2.7 kB, and a path may be longer.
    if len(place) <= _LONGEST_PLACE:
        return place
    return f"sha256:{hashlib.sha256(place.encode()).hexdigest()}"
