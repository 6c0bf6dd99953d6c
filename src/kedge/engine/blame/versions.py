"""The versions of a path, from the writes that are recorded at it: what it held after each, and
whose the lines are that are new in it. No I/O."""

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kedge.domain.blame import OriginKind
from kedge.domain.file_states import Absent, Present, State
from kedge.store.queries.history import Gone, PathWrites, Write


@dataclass(frozen=True, slots=True)
class Writer:
    """Who wrote what is new in a version."""

    kind: OriginKind
    time: int | None = None
    session_id: str = ""
    message_id: str = ""
    pos: int = 0
    part_id: str = ""


BEFORE = Writer("before")
UNKNOWN = Writer("unknown")


@dataclass(frozen=True, slots=True)
class Version:
    """What a path held after a write."""

    number: int
    """The place of the write in the timeline."""
    blob: str | None
    """None if there was nothing that has lines."""
    writer: Writer
    key: bytes
    """Of this version and all that led to it: another history has another key."""
    is_plan: bool = False
    restores: tuple[int, ...] = ()
    """Of what a plan wrote, the versions that its lines come from, the likeliest first."""
    gone: tuple[Gone, ...] = ()
    """Files of which this may be one that was moved."""


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of a path, oldest first."""

    path: bytes
    versions: tuple[Version, ...]
    found: Mapping[tuple[int, str], int]
    """By number and part of a write, the version that it found."""
    is_unseen: bool = False
    """Whether something happened since the last one that could not be inspected."""

    def found_by(self, version: Version) -> int | None:
        """The version that the call found which wrote another path; None if it is not known."""
        return self.found.get((version.number, version.writer.part_id))


def versions_of(history: PathWrites, opening: State | None, now: str | None = None) -> Versions:
    """The versions of a path.

    `opening` is what it held before the first change of its worktree, as far as that is known, and
    `now` the blob that it holds, if that is known.
    """
    return _Building(history, now).build(opening)


class _Building:
    """Makes the versions of one path."""

    def __init__(self, history: PathWrites, now: str | None) -> None:
        self._now = now
        self._path = history.path
        self._writes = history.writes
        self._versions: list[Version] = []
        self._unwatched = deque(history.unwatched)
        self._found: list[int] = []
        """For each write, the version that it found."""
        self._is_unseen = False
        """Whether something happened that could not be inspected."""

    def build(self, opening: State | None) -> Versions:
        if isinstance(opening, Present | Absent):
            first = _blob(opening)
        else:
            first = _blob(self._writes[0].before) if self._writes else self._now
        self._add(0, first, BEFORE)
        for index, write in enumerate(self._writes):
            self._apply(index, write)
        found = {
            (write.number, write.part_id): at
            for write, at in zip(self._writes, self._found, strict=True)
        }
        is_unseen = self._is_unseen or bool(self._unwatched)
        return Versions(self._path, tuple(self._versions), found, is_unseen)

    def _apply(self, index: int, write: Write) -> None:
        before, after = _blob(write.before), _blob(write.after)
        is_blind = write.source == "uncovered"
        while self._unwatched and self._unwatched[0] <= write.number:
            self._unwatched.popleft()
            self._is_unseen = True
        if self._is_told_again(write) or (write.is_unsure and not self._has_happened(index)):
            self._found.append(len(self._versions) - 1)
            return
        if before != self._versions[-1].blob and not (is_blind and before is None):
            writer = UNKNOWN if self._is_unseen else Writer("outside", write.time)
            self._add(write.number, before, writer)
        self._found.append(len(self._versions) - 1)
        self._is_unseen = is_blind
        if not is_blind and after != before:
            version = self._add(write.number, after, _writer(write), write.gone)
            if write.is_plan:
                restores = tuple(self._restored(index))
                self._versions[-1] = replace(version, is_plan=True, restores=restores)

    def _is_told_again(self, write: Write) -> bool:
        """Whether another session has told of the same change already: it is shared. In a folder
        above or below, it has another number there."""
        last = self._versions[-1]
        is_shared = write.source == last.writer.kind == "shared"
        return is_shared and last.blob == _blob(write.after)

    def _has_happened(self, index: int) -> bool:
        """Whether a plan was carried out of which that is not certain: what came next found what it
        wanted, or the disk has it."""
        following = self._writes[index + 1 : index + 2]
        found = _blob(following[0].before) if following else self._now
        return found == _blob(self._writes[index].after)

    def _add(
        self, number: int, blob: str | None, writer: Writer, gone: tuple[Gone, ...] = ()
    ) -> Version:
        above = self._versions[-1].key if self._versions else self._path
        told = (above, number, blob, writer, gone)
        key = hashlib.sha256(repr(told).encode()).digest()
        version = Version(number, blob, writer, key, gone=gone)
        self._versions.append(version)
        return version

    def _restored(self, index: int) -> list[int]:
        """The versions from which a plan takes lines: what was there before each segment that it
        takes out, the newest first."""
        segments: list[tuple[int, str | None]] = []
        """The version that each segment found, and the blob that it left."""
        is_divided = True
        for at in self._taken_out(index):
            if at is None:
                is_divided = True
                continue
            found, left = self._found[at], _blob(self._writes[at].after)
            if not is_divided and segments[-1][1] == _blob(self._writes[at].before):
                segments[-1] = segments[-1][0], left
            else:
                segments.append((found, left))
            is_divided = False
        return list(dict.fromkeys(found for found, _ in reversed(segments)))

    def _taken_out(self, index: int) -> list[int | None]:
        """The writes that a plan takes out, oldest first; None for a change that divides them."""
        plan = self._writes[index]
        taken: list[int | None] = []
        sees_plans = plan.source not in ("undo", "redo")
        for at in range(index - 1, -1, -1):
            write = self._writes[at]
            is_own = write.session_id == plan.session_id
            if (write.session_id, write.part_id) in plan.chosen:
                taken.append(at)
            elif write.is_plan:
                # Plans are taken out up to the last one that took plans back, or became final; a
                # redo takes undos back, whatever came later.
                sees_plans = sees_plans and not (is_own and write.source == "unrevert")
                is_undone = plan.source == "redo" and write.source == "undo"
                if is_own and (sees_plans or is_undone):
                    taken.append(at)
            elif write.source == "shared":
                taken.append(None)
            elif write.source != "uncovered":
                sees_plans = sees_plans and not is_own
                if any(stretch.holds(write) for stretch in plan.takes_out):
                    taken.append(at)
        return taken[::-1]


def _writer(write: Write) -> Writer:
    if write.source == "shared":
        return Writer("shared", write.time)
    if write.is_plan:
        # Its lines are those of other versions; whatever is in none of them is nobody's.
        return UNKNOWN
    return Writer(
        "session", write.time, write.session_id, write.message_id, write.pos, write.part_id
    )


def _blob(state: State | None) -> str | None:
    """What has lines: no symlink, and nothing that is unknown."""
    if isinstance(state, Present) and not state.is_link:
        return state.blob
    return None
