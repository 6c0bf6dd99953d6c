"""Pages of the timeline of a worktree: who wrote which files, newest first, whatever became of it.

A page ends between two numbers of the timeline. New writes get higher ones, so a page that was read
stays as it is; only what a call did that still runs may be recorded with an older number.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from kedge.domain.file_states import Known, Present
from kedge.domain.timeline import TimelineKind
from kedge.domain.worktrees import are_related, path_in
from kedge.store.queries.changes import state_of_columns
from kedge.store.transaction import Row, Script, row, rows

MOST_FILES = 100
"""Files of one entry that are listed."""

_LAST = b"\xff" * 4097
"""Behind every path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineFilter:
    """What a list shows."""

    path: bytes = b""
    """Only this file, or what is in this folder, from the root on; empty for all."""
    session_id: str = ""
    since: int = 0
    """Milliseconds since 1970."""
    until: int = 2**62

    @property
    def limits(self) -> Mapping[str, object]:
        """As the queries take them, without the path."""
        return {"session_id": self.session_id, "since": self.since, "until": self.until}


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What became of a file."""

    path: bytes
    """From the root that was asked for."""
    before: Known
    after: Known
    is_known: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What was recorded of one writer at a number."""

    number: int
    kind: TimelineKind
    time: int | None
    session_id: str = ""
    message_id: str = ""
    pos: int = 0
    part_id: str = ""
    """Empty for plans, and what is from outside."""
    files: tuple[WrittenFile, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """A worktree whose sessions write files of the one that was asked for."""

    root: str
    worktree: str
    path: bytes
    """From this worktree on."""

    @property
    def range(self) -> Mapping[str, object]:
        """The paths to look for, as the queries take them."""
        if not self.path:
            return {"path": b"", "low": b"", "high": _LAST}
        # A slash is followed by a zero.
        return {"path": self.path, "low": self.path + b"/", "high": self.path + b"0"}

    def from_root(self, path: bytes) -> bytes:
        """A path of this worktree, from the root that was asked for."""
        found = path_in(self.root, self.worktree, path)
        return os.path.join(os.fsencode(self.worktree), path) if found is None else found


Page: TypeAlias = tuple[list[Recorded], bool]
"""Entries, newest first, and whether there are older ones."""


def timeline_page(root: str, chosen: TimelineFilter, *, before: int, limit: int) -> Script[Page]:
    """What was recorded at the newest so many numbers before a number."""
    places = yield from _places(root, chosen.path)
    numbers: set[int] = set()
    for place in places:
        numbers |= yield from _numbers(place, chosen, before, limit + 1)
    newest = sorted(numbers, reverse=True)
    found: list[Recorded] = []
    for number in newest[:limit]:
        for place in places:
            found += yield from _plans_at(places, place, chosen, number)
        for place in places:
            found += yield from _calls_at(places, place, chosen, number)
    if chosen.session_id:
        found = [each for each in found if each.kind != "outside"]
    return found, len(newest) > limit


def _places(root: str, path: bytes) -> Script[list[_Place]]:
    """The worktrees that contain the path, or lie in it."""
    wanted = os.path.join(os.fsencode(root), path) if path else os.fsencode(root)
    places: list[_Place] = []
    for (worktree,) in (yield from rows("worktree_paths")):
        if not are_related(worktree, os.fsdecode(wanted)):
            continue
        below = path_in(worktree, "/", wanted.lstrip(b"/"))
        places.append(_Place(root, worktree, below or b""))
    return sorted(places, key=lambda place: place.worktree)


def _numbers(place: _Place, chosen: TimelineFilter, before: int, limit: int) -> Script[set[int]]:
    args = {**place.range, **chosen.limits, "worktree": place.worktree, "before": before}
    calls = yield from rows("timeline_numbers", **args, limit=limit)
    any = int(not place.path)
    plans = yield from rows("timeline_plan_numbers", **args, any=any, limit=limit)
    return {number for (number,) in (*calls, *plans)}


def _calls_at(
    places: Sequence[_Place], place: _Place, chosen: TimelineFilter, number: int
) -> Script[list[Recorded]]:
    where = {"worktree": place.worktree, "number": number, **place.range}
    found: list[Recorded] = []
    for group in sorted((yield from rows("timeline_groups", **where, **chosen.limits))):
        session_id, part_id, source, pos, message_id, time, count = group
        names = {"session_id": session_id, "part_id": part_id, "source": source}
        files = yield from rows("timeline_files", **where, **names, limit=MOST_FILES)
        entry = Recorded(
            number=number,
            kind="shared" if source == "shared" else "session",
            time=time,
            session_id=session_id,
            message_id=message_id,
            pos=pos,
            part_id=part_id,
            files=tuple(_file(each[:5], source != "uncovered", each[5]) for each in files),
            more=count - len(files),
        )
        found += yield from _with_outside(places, place, entry, number)
    return found


def _plans_at(
    places: Sequence[_Place], place: _Place, chosen: TimelineFilter, number: int
) -> Script[list[Recorded]]:
    limits = chosen.limits
    found: list[Recorded] = []
    for id, session_id, kind, time in (
        yield from rows("timeline_plans", worktree=place.worktree, number=number, **limits)
    ):
        counted = yield from row("timeline_plan_count", plan_id=id, **place.range)
        count = 0 if counted is None else int(counted[0])
        if place.path and not count:
            continue
        files = yield from rows("timeline_plan_files", plan_id=id, **place.range, limit=MOST_FILES)
        entry = Recorded(
            number=number,
            kind="revert" if kind == "files" else kind,
            time=time,
            session_id=session_id,
            files=tuple(map(_file, files)),
            more=count - len(files),
        )
        # A call that was recorded with the same number came before.
        found += yield from _with_outside(places, place, entry, number + 1)
    return found


def _with_outside(
    places: Sequence[_Place], place: _Place, entry: Recorded, number: int
) -> Script[list[Recorded]]:
    """The entry, and what it found that nobody had recorded: another program wrote that.

    `number` is that of the first call that came later.
    """
    outside: list[WrittenFile] = []
    for file in entry.files:
        if file.is_known:
            left = yield from _left_at(places, place, file.path, number, entry.number)
            # Of what is shared, another session may have told already.
            own = (file.before, file.after) if entry.kind == "shared" else (file.before,)
            if left is None or _content(left[1]) in map(_content, own):
                continue
            if not (yield from _was_unwatched(places, place, file.path, left[0], entry.number)):
                outside.append(WrittenFile(place.from_root(file.path), left[1], file.before))
    named = tuple(replace(file, path=place.from_root(file.path)) for file in entry.files)
    entries = [replace(entry, files=named)]
    if outside:
        files = tuple(outside)
        entries.append(Recorded(number=entry.number, kind="outside", time=entry.time, files=files))
    return entries


def _left_at(
    places: Sequence[_Place], place: _Place, path: bytes, number: int, plan_number: int
) -> Script[tuple[int, Known] | None]:
    """The newest write before a number at a path of a place, and what it left there; None if there
    is none, or it is not known."""
    found: list[Row] = []
    for other in places:
        below = path_in(other.worktree, place.worktree, path)
        if below is None:
            continue
        where = {"worktree": other.worktree, "path": below}
        call = yield from row("timeline_write_before", **where, number=number)
        if call is not None:
            found.append((call[0], False, *call[1:]))
        for plan in (yield from rows("timeline_plans_before", **where, number=plan_number)):
            found.append((plan[0], True, *plan[1:]))
    if not found:
        return None
    last, _, blob, mode, source = max(found, key=lambda each: each[:2])
    return None if source == "uncovered" else (last, state_of_columns(blob, mode))


def _was_unwatched(
    places: Sequence[_Place], place: _Place, path: bytes, after: int, number: int
) -> Script[bool]:
    """Whether a call ran between two numbers that may have written a path, and nobody could see
    what it did."""
    for other in places:
        if path_in(other.worktree, place.worktree, path) is not None:
            where = {"worktree": other.worktree, "first": after, "last": number}
            if (yield from row("history_unwatched_between", **where)) is not None:
                return True
    return False


def _file(found: Row, is_known: bool = True, reason: str | None = None) -> WrittenFile:
    path, *states = found
    before, after = state_of_columns(*states[:2]), state_of_columns(*states[2:])
    return WrittenFile(bytes(path), before, after, is_known, reason)


def _content(state: Known) -> str | None:
    return state.blob if isinstance(state, Present) else None


Status: TypeAlias = Literal["added", "modified", "deleted", "unknown"]


def status_of(file: WrittenFile) -> Status:
    """What happened to a file, in a word."""
    if not file.is_known:
        return "unknown"
    if not isinstance(file.before, Present):
        return "added"
    return "modified" if isinstance(file.after, Present) else "deleted"
