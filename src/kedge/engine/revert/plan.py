"""The planner: turns the material and the state on disk into steps and receipt entries.

Pure: it reads and writes no files. A revert undoes changes of a session, an unrevert undoes what a
revert wrote, moving the boundary does both: all use this planner.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kedge.domain.errors import InvariantBroken, ObjectMissing
from kedge.domain.file_states import AsideCopy, FileStep, Known, Outcome, Present
from kedge.domain.receipts import RevertStrategy
from kedge.engine.revert.merge import Contents, PathHistory
from kedge.engine.revert.path_plan import EntrySource, Wish, decided, overwritten
from kedge.engine.revert.safety import DROPS_LINES, ONLY_COPY, Facts, check, taken_by
from kedge.snapshot.files.reader import Blocked, Folder


def placed(wishes: Sequence[Wish]) -> list[Wish]:
    """The wishes, without those that conflict with other paths.

    A deletion needs nothing from other paths, and giving up a write takes no room from another
    path: so each rule has to be checked only once.
    """
    deleted = {wish.path for wish in wishes if wish.deletes}
    possible = [_with_room(wish, deleted) for wish in wishes]
    blocking = _in_each_others_way({wish.path for wish in possible if wish.writes})
    return [
        wish.given_up(Outcome.CONFLICT, "a file and a folder would have to be at one place")
        if wish.path in blocking
        else wish
        for wish in possible
    ]


def folders_to_remove(wishes: Iterable[Wish], made: Iterable[bytes]) -> tuple[bytes, ...]:
    """Folders to remove if they are empty, the deepest first.

    Those that the session made, and those where a file is to be written; none in which a file is to
    be written.
    """
    folders = set(made)
    writes = [wish for wish in wishes if wish.writes]
    for wish in writes:
        folders.difference_update(folders_above(wish.path))
    for wish in writes:
        if isinstance(wish.disk, Folder):
            folders.add(wish.path)
            for entry in wish.disk.entries:
                folders.update(_folders_between(wish.path, entry))
    return tuple(sorted(folders, key=lambda folder: (-folder.count(b"/"), folder)))


def folders_above(path: bytes) -> Iterator[bytes]:
    """The folders that contain a path, the nearest first; without the root."""
    while path := path.rpartition(b"/")[0]:
        yield path


def _with_room(wish: Wish, deleted: set[bytes]) -> Wish:
    if not wish.writes:
        return wish
    match wish.disk:
        case Folder(entries) if not entries <= deleted:
            return wish.given_up(Outcome.CONFLICT, "there is a folder with other files now")
        case Blocked(by) if by not in deleted:
            reason = "a file or a symlink is where its folder should be"
            return wish.given_up(Outcome.CONFLICT, reason)
        case _:
            return wish


def _in_each_others_way(writes: set[bytes]) -> set[bytes]:
    blocking: set[bytes] = set()
    for path in writes:
        above = writes.intersection(folders_above(path))
        if above:
            blocking |= {path, *above}
    return blocking


def _folders_between(folder: bytes, entry: bytes) -> Iterator[bytes]:
    for above in folders_above(entry):
        if above == folder:
            return
        yield above


_Needs: TypeAlias = dict[bytes, tuple[AsideCopy, ...]]
_NOTHING: _Needs = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The outcome of one path; see `ReceiptEntry`."""

    path: bytes
    outcome: Outcome
    reason: str | None
    source: EntrySource


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do, and what can be said of it in advance."""

    steps: tuple[FileStep, ...]
    """Deletions and writes; `apply` knows their order."""
    contents: dict[str, bytes]
    """Blobs that merging produced; to be stored before anything is written."""
    folders: tuple[bytes, ...]
    """Folders to remove after the deletions if they are empty, the deepest first."""
    entries: tuple[Entry, ...]
    """One per path, sorted by path."""
    moot: frozenset[bytes] = frozenset()
    """Paths at which nothing is left of what was to be undone."""
    forced: frozenset[bytes] = frozenset()
    """Paths that are restored although there is a conflict."""


def plan(
    histories: Sequence[PathHistory],
    read: Callable[[str], bytes],
    *,
    strategy: RevertStrategy = "merge",
    made_folders: Iterable[bytes] = (),
    facts: Facts | None = None,
    has: Callable[[str], bool] | None = None,
) -> Plan:
    """How to undo what the histories say; `read` returns the bytes of a blob, and `has` whether it
    exists.

    `facts` is what the last check may know beside the histories.
    """
    _check_paths(histories)
    contents = Contents(read)
    ordered = sorted(histories, key=lambda each: each.path)
    by_overwriting = strategy == "overwrite"
    while True:
        decisions = [_decided(each, contents, by_overwriting) for each in ordered]
        used, wishes = [used for used, _ in decisions], [wish for _, wish in decisions]
        possible = wishes if has is None else [_possible(wish, contents, has) for wish in wishes]
        wishes = placed(possible)
        known = facts or Facts.of(used)
        if by_overwriting:
            wishes, needs = _told(wishes, used, known, contents), _NOTHING
        else:
            wishes, needs = _checked(wishes, used, known, contents)
        left = [_untried(*each) for each in zip(ordered, used, wishes, strict=True)]
        if not any(left):
            break
        # Another way may lose nothing.
        ordered = [rest or each for rest, each in zip(left, ordered, strict=True)]
    forced = {
        each.path for each, taken in zip(ordered, used, strict=True) if taken is each.by_force
    }
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
        moot=frozenset(wish.path for wish in wishes if wish.is_moot),
        forced=frozenset(forced),
    )


def _untried(history: PathHistory, used: PathHistory, wish: Wish) -> PathHistory | None:
    """The ways that are left where the last check withheld a path."""
    if wish.outcome is not Outcome.CONFLICT or wish.reason not in (ONLY_COPY, DROPS_LINES):
        return None
    ways = (history, *history.otherwise)
    at = next((n for n, each in enumerate(ways) if each is used), len(ways))
    following = ways[at + 1 :]
    return replace(following[0], otherwise=following[1:]) if following else None


def _decided(
    history: PathHistory, contents: Contents, by_overwriting: bool
) -> tuple[PathHistory, Wish]:
    if by_overwriting and history.by_force is None:
        return history, overwritten(history)
    used, wish = decided(history, contents)
    if by_overwriting and history.by_force and wish.outcome is Outcome.CONFLICT:
        return history.by_force, overwritten(history.by_force)
    return used, wish


def _check_paths(histories: Sequence[PathHistory]) -> None:
    for path, count in Counter(history.path for history in histories).items():
        if count > 1:
            raise InvariantBroken(f"a path with {count} histories in one plan: {path!r}")


def _possible(wish: Wish, contents: Contents, has: Callable[[str], bool]) -> Wish:
    """The wish, given up if the blob to be written is lost: that costs only this path."""
    if not wish.writes or not isinstance(wish.want, Present):
        return wish
    blob = wish.want.blob
    if blob in contents.made or blob == _blob(wish.now) or has(blob):
        return wish
    return wish.given_up(Outcome.SKIPPED, str(ObjectMissing(blob)))


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
        # What is left in place may leave no room for another path.
        wishes = placed(
            [
                wish.given_up(Outcome.CONFLICT, verdict.withheld[wish.path])
                if wish.path in verdict.withheld
                else wish
                for wish in wishes
            ]
        )


def _told(
    wishes: list[Wish], histories: Sequence[PathHistory], facts: Facts, contents: Contents
) -> list[Wish]:
    """The wishes, with a note on those that remove changes of others from the disk."""
    by_path = {history.path: history for history in histories}
    taken = taken_by(wishes, by_path, facts, contents.get)
    return [
        wish.taking(wish.now.blob) if wish.path in taken and isinstance(wish.now, Present) else wish
        for wish in wishes
    ]


def _is_conflict(wish: Wish) -> bool:
    return wish.outcome is Outcome.CONFLICT


def _aborted(wish: Wish) -> Wish:
    if not wish.deletes and not wish.writes:
        return wish
    return wish.given_up(Outcome.SKIPPED, "nothing was done, because other files conflict")


def _steps(wishes: Sequence[Wish], needs: _Needs) -> tuple[FileStep, ...]:
    ordered = [
        *(wish for wish in wishes if wish.deletes),
        *(wish for wish in wishes if wish.writes),
    ]
    return tuple(
        FileStep(
            number=number,
            path=wish.path,
            expect=wish.now,
            want=wish.want,
            needs=needs.get(wish.path, ()),
        )
        for number, wish in enumerate(ordered)
    )


def _made_for(steps: Iterable[FileStep], contents: Contents) -> dict[str, bytes]:
    """The merged contents that will be written, without intermediate results."""
    wanted = [step.want.blob for step in steps if isinstance(step.want, Present)]
    return {blob: contents.made[blob] for blob in wanted if blob in contents.made}
