"""The planner: from what is to be undone and what is on disk to steps and what to say of them.

Pure: it reads no file and writes none. One planner does it all: a revert undoes changes of a
session, an unrevert what a revert wrote, and moving the boundary both.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kedge.domain.errors import InvariantBroken, ObjectMissing
from kedge.domain.receipts import ReceiptOutcome, RevertStrategy
from kedge.engine.undo.merging import Contents
from kedge.engine.undo.placing import folders_to_remove, placed
from kedge.engine.undo.safety import Facts, check, taken_by
from kedge.engine.undo.segments import Known, PathHistory
from kedge.engine.undo.wishes import EntrySource, Wish, merged, overwritten
from kedge.snapshot.files.steps import Copy, Step
from kedge.snapshot.values import Present

_Needs: TypeAlias = dict[bytes, tuple[Copy, ...]]
_NOTHING: _Needs = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is to become of one path; see `ReceiptEntry`."""

    path: bytes
    outcome: ReceiptOutcome
    reason: str | None
    source: EntrySource


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done, and what can be said of it before it is."""

    steps: tuple[Step, ...]
    """Deletions and writes; `apply` knows in which order they go."""
    contents: dict[str, bytes]
    """Blobs that merging made; to be stored before anything is written."""
    folders: tuple[bytes, ...]
    """Folders to remove after the deletions if nothing is in them, the deepest first."""
    entries: tuple[Entry, ...]
    """One per path, sorted by path."""


def plan(
    histories: Sequence[PathHistory],
    read: Callable[[str], bytes],
    *,
    strategy: RevertStrategy = "merge",
    made_folders: Iterable[bytes] = (),
    facts: Facts | None = None,
    has: Callable[[str], bool] | None = None,
) -> Plan:
    """How to undo what the histories say; `read` answers the bytes of a blob, and `has` whether
    there is one.

    `facts` is what the last check may know beside the histories.
    """
    _check_paths(histories)
    contents = Contents(read)
    ordered = sorted(histories, key=lambda each: each.path)
    by_overwriting = strategy == "overwrite"
    wishes = [overwritten(each) if by_overwriting else merged(each, contents) for each in ordered]
    wishes = placed(wishes if has is None else [_possible(wish, contents, has) for wish in wishes])
    known = facts or Facts.of(ordered)
    if by_overwriting:
        wishes, needs = _told(wishes, ordered, known, contents), _NOTHING
    else:
        wishes, needs = _checked(wishes, ordered, known, contents)
    folders = folders_to_remove(wishes, made_folders)
    if strategy == "abort" and any(_is_conflict(wish) for wish in wishes):
        wishes, folders = [_aborted(wish) for wish in wishes], ()
    steps = _steps(wishes, needs)
    return Plan(
        steps=steps,
        contents=_made_for(steps, contents),
        folders=folders,
        entries=tuple(
            Entry(path=wish.path, outcome=wish.outcome, reason=wish.reason, source=wish.source)
            for wish in wishes
        ),
    )


def _check_paths(histories: Sequence[PathHistory]) -> None:
    for path, count in Counter(history.path for history in histories).items():
        if count > 1:
            raise InvariantBroken(f"a path with {count} histories in one plan: {path!r}")


def _possible(wish: Wish, contents: Contents, has: Callable[[str], bool]) -> Wish:
    """The wish, given up if what should be written is lost: that costs this path alone."""
    if not wish.writes or not isinstance(wish.want, Present):
        return wish
    blob = wish.want.blob
    if blob in contents.made or blob == _blob(wish.now) or has(blob):
        return wish
    return wish.given_up(ReceiptOutcome.SKIPPED, str(ObjectMissing(blob)))


def _blob(state: Known) -> str | None:
    return state.blob if isinstance(state, Present) else None


def _checked(
    wishes: list[Wish], histories: Sequence[PathHistory], facts: Facts, contents: Contents
) -> tuple[list[Wish], _Needs]:
    """The wishes without those that would lose something, and what the others depend on."""
    by_path = {history.path: history for history in histories}
    while True:
        verdict = check(wishes, by_path, facts, contents.get)
        if not verdict.withheld:
            return wishes, verdict.needs
        # What stays may leave no room for another path.
        wishes = placed(
            [
                wish.given_up(ReceiptOutcome.CONFLICT, verdict.withheld[wish.path])
                if wish.path in verdict.withheld
                else wish
                for wish in wishes
            ]
        )


def _told(
    wishes: list[Wish], histories: Sequence[PathHistory], facts: Facts, contents: Contents
) -> list[Wish]:
    """The wishes, with a word on those that take somebody else's work from the disk."""
    by_path = {history.path: history for history in histories}
    taken = taken_by(wishes, by_path, facts, contents.get)
    return [
        wish.taking(wish.now.blob) if wish.path in taken and isinstance(wish.now, Present) else wish
        for wish in wishes
    ]


def _is_conflict(wish: Wish) -> bool:
    return wish.outcome is ReceiptOutcome.CONFLICT


def _aborted(wish: Wish) -> Wish:
    if not wish.deletes and not wish.writes:
        return wish
    return wish.given_up(ReceiptOutcome.SKIPPED, "nothing was done, because other files conflict")


def _steps(wishes: Sequence[Wish], needs: _Needs) -> tuple[Step, ...]:
    ordered = [
        *(wish for wish in wishes if wish.deletes),
        *(wish for wish in wishes if wish.writes),
    ]
    return tuple(
        Step(
            number=number,
            path=wish.path,
            expect=wish.now,
            want=wish.want,
            needs=needs.get(wish.path, ()),
        )
        for number, wish in enumerate(ordered)
    )


def _made_for(steps: Iterable[Step], contents: Contents) -> dict[str, bytes]:
    """The merged contents that are to be written; what was only on the way to them is not kept."""
    wanted = [step.want.blob for step in steps if isinstance(step.want, Present)]
    return {blob: contents.made[blob] for blob in wanted if blob in contents.made}
