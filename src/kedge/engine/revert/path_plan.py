"""Decides the outcome of one path by itself; `plan` decides whether it fits with the other
paths."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import Absent, Known, Outcome, Present
from kedge.engine.revert.merge import (
    Conflict,
    Contents,
    PathHistory,
    Segment,
    Source,
    composed,
    without,
)
from kedge.snapshot.files.reader import Blocked, Disk, Folder, Obstacle, is_same

EntrySource: TypeAlias = Literal["declared", "observed"]

_SHARED = (
    "it is not known whose change it is: calls of several sessions were running, or a process had"
    " died"
)
_INTERRUPTED = "a revert was interrupted here, and it was changed before that could be completed"
_GONE = "nothing is left there of what was to be undone or put back"
_NOT_ALONE = "it cannot be told from later changes of the same lines"
_SHARED_STAYS = "a change stays of which it is not known whose it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The wanted state of a path, and its entry in the receipt."""

    path: bytes
    disk: Disk
    want: Known
    """The same as `now`, unless the outcome is a change."""
    outcome: Outcome
    reason: str | None
    source: EntrySource
    is_moot: bool = False
    """Whether nothing is done because nothing is left of what was to be undone."""

    @property
    def now(self) -> Known:
        """The file or symlink at the path; None where there is a folder, or cannot even be one."""
        return self.disk if isinstance(self.disk, Present) else Absent()

    @property
    def deletes(self) -> bool:
        return self.outcome is Outcome.DELETED

    @property
    def writes(self) -> bool:
        return self.outcome in (
            Outcome.RESTORED,
            Outcome.MERGED,
            Outcome.RECREATED,
        )

    def taking(self, blob: str) -> Self:
        """The same, with a note on the changes of others that go with it."""
        kept = f"it is kept as {blob}"
        return replace(self, reason=f"what others changed in it since went with it; {kept}")

    def given_up(self, outcome: Outcome, reason: str) -> Self:
        """The same path, left as it is."""
        return replace(self, want=self.now, outcome=outcome, reason=reason)


def decided(history: PathHistory, contents: Contents) -> tuple[PathHistory, Wish]:
    """What to do at a path, and the history by which: the first that meets no conflict."""
    first = history, merged(history, contents)
    for each in (history, *history.otherwise):
        found = first if each is history else (each, merged(each, contents))
        if found[1].outcome is not Outcome.CONFLICT:
            return found
    return first


def merged(history: PathHistory, contents: Contents) -> Wish:
    """Undo the own segments of a path, newest first, and keep what others changed."""
    wish = _untouched(history)
    segments = composed(history.segments)
    if not segments and not history.reverse:
        return _unsure(wish, history)
    if isinstance(history.disk, Obstacle):
        return _obstructed(wish, history.disk)
    want = wish.now
    try:
        for segment in reversed(segments):
            want = without(segment, want, contents)
        if isinstance(want, Absent) and isinstance(wish.now, Present):
            _check_deletion(history, wish.now)
        is_exact = len(segments) == 1 and is_same(wish.now, segments[0].after)
        if not is_exact and not _leads_back(history, segments, want, wish.now, contents):
            return _not_alone(wish, want)
    except Conflict as conflict:
        reason = _in_the_way(history.disk) or str(conflict)
        return wish.given_up(Outcome.CONFLICT, reason)
    except SnapshotError as error:
        # A lost or damaged object costs only this path.
        return wish.given_up(Outcome.SKIPPED, str(error))
    return _granted(wish, want, (history.asked or history.own)[0].before)


def _leads_back(
    history: PathHistory, segments: Sequence[Segment], want: Known, now: Known, contents: Contents
) -> bool:
    """Whether there is a way back, if there has to be one: by each step, and by the reverse.

    Then exactly the chosen changes are undone: none of them is hidden by another that stays.
    """
    if history.reverse is None:
        return True
    try:
        state = now
        for segment in reversed(segments):
            before, state = state, without(segment, state, contents)
            if not is_same(without(_inverse(segment), state, contents), before):
                return False
        for segment in reversed(composed(history.reverse)):
            want = without(segment, want, contents)
    except Conflict:
        return False
    return is_same(want, now)


def _inverse(segment: Segment) -> Segment:
    return Segment(segment.after, segment.before, segment.source)


def _not_alone(wish: Wish, want: Known) -> Wish:
    if is_same(want, wish.now):
        return replace(wish, reason=_GONE, is_moot=True)
    return wish.given_up(Outcome.CONFLICT, _NOT_ALONE)


def _unsure(wish: Wish, history: PathHistory) -> Wish:
    """A path whose segments have no net effect, if all of them happened."""
    if not history.unsure or not history.own or is_same(wish.now, history.own[0].before):
        return wish
    return wish.given_up(Outcome.CONFLICT, _INTERRUPTED)


def overwritten(history: PathHistory) -> Wish:
    """Restore a path to its state before the first own segment, whatever others did since."""
    wish = _untouched(history)
    if not history.own:
        return wish
    if isinstance(history.disk, Obstacle):
        return _obstructed(wish, history.disk)
    first = history.own[0].before
    granted = _granted(wish, first, first)
    taken = _others_work(history)
    if granted.outcome is wish.outcome or taken is None:
        return granted
    return granted.taking(taken)


def _others_work(history: PathHistory) -> str | None:
    """The newest content at the path since the first own segment that has changes of others."""
    now = history.disk if isinstance(history.disk, Present) else Absent()
    left = (each.after for each in history.own)
    found: list[Known] = [*(each.before for each in history.own[1:]), now]
    is_touched = history.touched_by_others
    is_touched |= any(not is_same(new, old) for old, new in zip(left, found, strict=True))
    contents = [state.blob for state in found if isinstance(state, Present)]
    return contents[-1] if is_touched and contents else None


def _untouched(history: PathHistory) -> Wish:
    """The path left as it is, as is right if there is nothing to undo."""
    own = history.own
    asked = history.asked or own
    is_observed = not own or any(each.source is Source.OBSERVED for each in asked)
    stays = _SHARED_STAYS if len(own) < len(history.segments) else None
    return Wish(
        path=history.path,
        disk=history.disk,
        want=history.disk if isinstance(history.disk, Present) else Absent(),
        outcome=Outcome.UNCHANGED if own else Outcome.SHARED,
        reason=stays if own else _SHARED,
        source="observed" if is_observed else "declared",
    )


def _obstructed(wish: Wish, obstacle: Obstacle) -> Wish:
    return wish.given_up(Outcome(obstacle.outcome.value), obstacle.reason)


def _granted(wish: Wish, want: Known, first: Known) -> Wish:
    if is_same(wish.now, want):
        return wish
    if isinstance(want, Absent):
        outcome = Outcome.DELETED
    elif isinstance(wish.now, Absent):
        outcome = Outcome.RECREATED
    elif is_same(want, first):
        outcome = Outcome.RESTORED
    else:
        outcome = Outcome.MERGED
    return replace(wish, want=want, outcome=outcome)


def _check_deletion(history: PathHistory, now: Present) -> None:
    """Only a file that the session made, and others have not touched since, may be deleted."""
    if isinstance(history.own[0].before, Present):
        raise Conflict("it was deleted in between")
    if history.touched_by_others:
        raise Conflict("another session changed it later")
    if not is_same(now, history.own[-1].after):
        raise Conflict("it was changed since")


def _in_the_way(disk: Disk) -> str | None:
    """Why there is no file at the path, if there cannot be one."""
    match disk:
        case Folder():
            return "there is a folder now"
        case Blocked():
            return "a file or a symlink is where its folder was"
        case _:
            return None
