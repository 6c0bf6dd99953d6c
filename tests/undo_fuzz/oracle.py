"""Judges an undo by what really happened. Nothing of kedge is used here: what must be at a path is
told from who wrote which line, not by merging."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from tests.undo_fuzz.world import (
    CHANGES,
    LEFT,
    OWN,
    Entries,
    Record,
    Row,
    State,
    Tree,
    Wanted,
    World,
    above,
    lines_of,
)

Lines: TypeAlias = tuple[bytes, ...]


class Violation(Exception):
    """An undo did what it must not, or said what is not so."""

    def __init__(self, rule: str, path: str, text: str) -> None:
        super().__init__(f"{rule}: {path}: {text}")
        self.rule = rule


@dataclass(frozen=True, kw_only=True)
class Undoing:
    """A revert or unrevert, and what became of it."""

    who: str
    rows: Sequence[Row]
    """All that was asked to be undone, oldest first; what is shared among it."""
    wanted: Wanted
    entries: Entries
    applied: bool
    before: Tree
    after: Tree
    foreign: Sequence[Record] = field(repr=False)
    """All else that ever happened."""
    others: frozenset[Record] = field(repr=False)
    """What other sessions changed, and did not undo for good."""

    @cached_property
    def own(self) -> dict[str, list[Record]]:
        """What may be undone, by path."""
        found: dict[str, list[Record]] = {}
        for row in self.rows:
            if not row.is_folder and row.record.source in OWN:
                found.setdefault(row.record.path, []).append(row.record)
        return found

    @cached_property
    def own_records(self) -> set[Record]:
        """The same, whatever the path."""
        return {record for records in self.own.values() for record in records}

    def without_beside(self) -> "Undoing":
        """The same without undos and what they took out; itself if there are none."""
        rows = [row for row in self.rows if not row.is_beside]
        if len(rows) == len(self.rows):
            return self
        beside = [row.record for row in self.rows if row.is_beside]
        foreign = sorted([*self.foreign, *beside], key=lambda record: record.number)
        return replace(self, rows=rows, foreign=foreign)

    def foreign_at(self, path: str, *, near: bool = False) -> list[Record]:
        """What others did to a path after the first change that is undone."""
        first = self.own[path][0].number
        return [
            record
            for record in self.foreign
            if record.number > first
            and (record.path == path or (near and _are_near(record.path, path)))
        ]


def undoing_of(
    world: World,
    who: str,
    rows: Sequence[Row],
    wanted: Wanted,
    entries: Entries,
    after: Tree,
    *,
    applied: bool,
) -> Undoing:
    """An undo that has just happened, before the world knows of it."""
    records = {row.record for row in rows if row.record.source in OWN}
    foreign = [record for record in world.everything() if record not in records]
    return Undoing(
        who=who,
        rows=rows,
        wanted=wanted,
        entries=entries,
        applied=applied,
        before=world.tree.copy(),
        after=after,
        foreign=foreign,
        others=frozenset(
            row.record
            for name, member in world.members.items()
            if name != who
            for row in member.rows
        ),
    )


def judge(world: World, undoing: Undoing, figures: Counter[str]) -> None:
    """Raise `Violation` if anything is not as promised."""
    figures["undos"] += 1
    _check_paths(world, undoing)
    _check_untouched(undoing)
    for path, entry in undoing.entries.items():
        figures[entry.outcome] += 1
        _check_said(undoing, path)
        if path in undoing.own and all(record.sure for record in undoing.own[path]):
            _check_promise(world, undoing, path, figures)
    _check_folders(undoing)
    _check_nothing_lost(world, undoing, figures)
    if undoing.applied:
        _count_needless(world, undoing, figures)


def judge_broken(world: World, undoing: Undoing, before: Tree, figures: Counter[str]) -> None:
    """Judge an undo in whose middle a process died or a person saved."""
    figures["undos"] += 1
    for path in before.differences(undoing.after):
        touched = any(
            record.path == path and record.source == "external" for record in undoing.foreign
        )
        if path not in undoing.entries and not touched:
            raise Violation("broken", path, "changed, and the receipt does not name it")
    for entry in undoing.entries.values():
        figures[entry.outcome] += 1
    # What the undo itself had written by then, it may take back.
    last = max((row.record.number for row in undoing.rows), default=0)
    passing = {
        line
        for line in undoing.before.lines() - before.lines()
        if line in world.authors and world.authors[line].number <= last
    }
    _check_nothing_lost(world, undoing, figures, passing)


def _check_paths(world: World, undoing: Undoing) -> None:
    """The receipt names every path that the session changed, and no other as changed."""
    rows = [row for row in undoing.rows if not row.is_folder]
    for row in rows:
        path = row.record.path
        is_known = row.record.sure and not row.is_beside and path not in world.disturbed
        if is_known and path not in undoing.entries:
            raise Violation("receipt", path, f"missing, though {row.record.source}")
    known = {row.record.path for row in rows}
    for path, entry in undoing.entries.items():
        harmless = (*LEFT, "unchanged", "recreated") if world.is_blurred else ("skipped",)
        if path not in known and entry.outcome not in harmless:
            raise Violation("receipt", path, f"{entry.outcome}, though it was never changed")


def _check_untouched(undoing: Undoing) -> None:
    """Only paths that the receipt calls changed are changed."""
    for path in undoing.before.differences(undoing.after):
        entry = undoing.entries.get(path)
        if entry is None or entry.outcome not in CHANGES:
            said = "nothing" if entry is None else entry.outcome
            raise Violation("untouched", path, f"changed, and the receipt says {said}")
        if not undoing.applied or not undoing.wanted.includes(path):
            raise Violation("untouched", path, "changed, though that was not asked for")


def _check_said(undoing: Undoing, path: str) -> None:
    """The outcome is what happened."""
    before, after = undoing.before.files.get(path), undoing.after.files.get(path)
    entry = undoing.entries[path]
    outcome = entry.outcome
    if undoing.applied and (outcome in CHANGES) != (before != after):
        raise Violation("outcome", path, f"{outcome}, but it is {_change(before, after)}")
    if undoing.applied and outcome in CHANGES:
        right = {
            "deleted": before is not None and after is None,
            "recreated": before is None and after is not None,
            "restored": before is not None and after is not None,
            "merged": before is not None and after is not None,
        }
        if not right[outcome]:
            raise Violation("outcome", path, f"{outcome}, but it is {_change(before, after)}")
    here = [row for row in undoing.rows if row.record.path == path and not row.is_folder]
    rows = [row for row in here if not row.is_beside]
    if not all(row.record.sure for row in rows):
        return
    sources = {row.record.source for row in rows}
    if outcome == "shared" and sources.intersection(OWN):
        raise Violation("outcome", path, "shared, though some of it is the session's own")
    if outcome != "shared" and sources == {"shared"} and undoing.wanted.includes(path):
        raise Violation("outcome", path, f"{outcome}, though all of it is shared")
    if sources == {"declared"} and entry.source != "declared":
        raise Violation("outcome", path, f"called {entry.source}, though all of it was declared")
    if "observed" in sources and entry.source != "observed":
        raise Violation("outcome", path, f"called {entry.source}, though some was only observed")


def _change(before: State, after: State) -> str:
    if before == after:
        return "as it was"
    return "made" if before is None else "deleted" if after is None else "changed"


def _check_promise(world: World, undoing: Undoing, path: str, figures: Counter[str]) -> None:
    """What the path holds is right, also if undos and what they took out are thought away: together
    they are nothing."""
    try:
        _check_own(world, undoing, path, figures)
    except Violation:
        alone = undoing.without_beside()
        if alone is undoing or path not in alone.own:
            raise
        _check_own(world, alone, path, figures)


def _check_own(world: World, undoing: Undoing, path: str, figures: Counter[str]) -> None:
    _check_content(undoing, path)
    if not world.is_blurred:
        _check_merge(undoing, path, figures)


def _check_content(undoing: Undoing, path: str) -> None:
    """What the path holds now is what the outcome promises."""
    own, outcome = undoing.own[path], undoing.entries[path].outcome
    if not undoing.applied or outcome not in (*CHANGES, "unchanged"):
        return
    disk, after = undoing.before.files.get(path), undoing.after.files.get(path)
    first = own[0].before
    if undoing.wanted.strategy == "overwrite":
        if after != first:
            raise Violation("content", path, "not as it was before the session's first change")
        return
    if outcome == "restored" and after != first:
        raise Violation("content", path, "restored, but not to what it was before")
    if outcome == "deleted":
        _check_deletion(undoing, path)
    _check_lines(undoing, path, disk, after)


def _check_deletion(undoing: Undoing, path: str) -> None:
    """Only what the session made, and nobody else changed, is deleted."""
    own = undoing.own[path]
    if own[0].before is not None:
        raise Violation("deletion", path, "it was there before the session changed it")
    if undoing.before.files.get(path) != own[-1].after:
        raise Violation("deletion", path, "it was not as the session left it")
    if any(record in undoing.others for record in undoing.foreign_at(path)):
        raise Violation("deletion", path, "another session changed it since")


def _check_lines(undoing: Undoing, path: str, disk: State, after: State) -> None:
    """The session's lines are out, what it took out is back, and all else is as it was."""
    added, removed = net_lines(undoing.own[path])
    contested = contested_lines(undoing.own[path], undoing.foreign_at(path))
    found, now = lines_of(after), lines_of(disk)
    expected = (set(now) - added) | removed
    wrong = expected.symmetric_difference(found) - contested
    for line in sorted(wrong):
        what = "is missing" if line in expected else "should not be there"
        raise Violation("lines", path, f"{line!r} {what}")
    if len(set(found)) < len(found) and len(set(now)) == len(now):
        raise Violation("lines", path, "a line is there twice")
    kept = [line for line in now if line in found]
    if kept != [line for line in found if line in set(now)]:
        raise Violation("lines", path, "lines are in another order")


def _check_merge(undoing: Undoing, path: str, figures: Counter[str]) -> None:
    """Where others changed other slots of a text, theirs stay and the session's go back."""
    overwrites = undoing.wanted.strategy == "overwrite"
    if overwrites or not undoing.applied or not undoing.wanted.includes(path):
        return
    own, foreign = undoing.own[path], undoing.foreign_at(path)
    mine, theirs = slots_touched(own), slots_touched(foreign)
    if not foreign or mine is None or theirs is None or mine & theirs:
        return
    first, disk = own[0].before, undoing.before.files.get(path)
    then, now = slots_of(first), slots_of(disk)
    if not then or not now or undoing.foreign_at(path, near=True) != foreign:
        return
    figures["merges"] += 1
    chosen = [then[slot] if slot in mine else now[slot] for slot in range(len(now))]
    if lines_of(undoing.after.files.get(path)) != tuple(line for slot in chosen for line in slot):
        said = undoing.entries[path]
        raise Violation("merge", path, f"{said.outcome} ({said.reason}), though slots differ")


def slots_touched(records: Iterable[Record]) -> set[int] | None:
    """Which slots of a text changes touched; None if they did anything else."""
    touched: set[int] = set()
    for record in records:
        before, after = slots_of(record.before), slots_of(record.after)
        modes = {state.mode for state in (record.before, record.after) if state is not None}
        marks = [[slot[0] for slot in slots] for slots in (before, after)]
        if not before or not after or len(modes) > 1 or marks[0] != marks[1]:
            return None
        touched |= {slot for slot, text in enumerate(before) if after[slot] != text}
    return touched


def slots_of(state: State) -> list[list[bytes]]:
    """The slots of a text, each with the mark before it; none if it is no such text."""
    slots: list[list[bytes]] = []
    if state is None or not state.is_regular or b"\0" in state.content:
        return slots
    for line in lines_of(state):
        if b" mark" in line:
            slots.append([])
        if not slots:
            return slots
        slots[-1].append(line)
    # What is behind the last mark is in no slot.
    return slots if slots and len(slots[-1]) == 1 else []


def net_lines(records: Iterable[Record]) -> tuple[set[bytes], set[bytes]]:
    """The lines that changes of one path added and removed, when all is said and done."""
    added: set[bytes] = set()
    removed: set[bytes] = set()
    for record in records:
        before, after = set(lines_of(record.before)), set(lines_of(record.after))
        gained, gone = after - before, before - after
        removed, added = removed - gained | gone - added, added - gone | gained - removed
    return added, removed


def contested_lines(own: Iterable[Record], foreign: Iterable[Record]) -> set[bytes]:
    """The lines that others added or removed after the session had done so: who knows."""
    firsts: dict[bytes, int] = {}
    for record in own:
        for line in _touched(record):
            firsts.setdefault(line, record.number)
    return {
        line
        for record in foreign
        for line in _touched(record)
        if record.number > firsts.get(line, record.number)
    }


def _gained(record: Record, *, backwards: bool = False) -> set[bytes]:
    """The lines that a change added, or removed."""
    before, after = set(lines_of(record.before)), set(lines_of(record.after))
    return before - after if backwards else after - before


def _touched(record: Record) -> set[bytes]:
    return set(lines_of(record.before)).symmetric_difference(lines_of(record.after))


def check_diff(
    own: Sequence[Record], foreign: Sequence[Record], said: Iterable[tuple[Lines, Lines]]
) -> None:
    """A session's diff of a path, as what was before and after, is what the session did to it."""
    counts: Counter[bytes] = Counter()
    for before, after in said:
        counts.update(set(after) - set(before))
        counts.subtract(set(before) - set(after))
    added, removed = net_lines(own)
    contested = contested_lines(own, foreign)
    for line in sorted({*counts, *added, *removed} - contested):
        right = (line in added) - (line in removed)
        if counts[line] != right:
            words = {1: "added", 0: "left alone", -1: "removed"}
            what = f"{line!r} was {words[right]}, and the diff says {counts[line]:+}"
            raise Violation("diff", own[0].path, what)


def _check_folders(undoing: Undoing) -> None:
    """A folder goes only if the session made it, or a file is there instead."""
    made = {row.record.path for row in undoing.rows if row.is_folder}
    for folder in undoing.before.folders - undoing.after.folders:
        if folder not in made and not _is_file(undoing.after, folder):
            raise Violation("folders", folder, "removed, though the session did not make it")


def _is_file(tree: Tree, folder: str) -> bool:
    return any(each in tree.files for each in (folder, *above(folder)))


def _check_nothing_lost(
    world: World, undoing: Undoing, figures: Counter[str], passing: Collection[bytes] = ()
) -> None:
    """What is gone from the disk would not be there either if the session had done nothing."""
    gone = undoing.before.lines() - undoing.after.lines() - set(passing)
    kept = _kept_without(world, undoing, gone)
    if not any(kept.values()):
        # No snapshot holds ignored files: only a file that was renamed can be told from a new one.
        hidden = _kept_without(world, undoing, gone, unseen=True)
        figures["copied out of ignored"] += any(hidden.values())
        if not world.is_blurred:
            kept = {line: hidden[line] if line in world.moved_out else set() for line in gone}
    for line in sorted(line for line in gone if kept[line]):
        paths = [path for path, file in undoing.before.files.items() if line in lines_of(file)]
        said = [(path, undoing.entries.get(path)) for path in paths]
        if undoing.wanted.strategy == "overwrite" and _is_named(undoing, line):
            figures["overwritten"] += 1
            continue
        figures["losses"] += 1
        raise Violation("loss", paths[0], f"{line!r} is nowhere on disk; receipt: {said}")


def _is_named(undoing: Undoing, line: bytes) -> bool:
    """Whether the receipt says of a path at which a line was that others' work went from there."""
    for path, records in undoing.own.items():
        entry = undoing.entries.get(path)
        states = (undoing.before.files.get(path), *(record.before for record in records))
        if entry and entry.reason and any(line in lines_of(state) for state in states):
            return True
    return False


def _kept_without(
    world: World, undoing: Undoing, lines: Iterable[bytes], *, unseen: bool = False
) -> dict[bytes, set[str]]:
    """Where lines would be if what is undone had never happened, nor what went unseen with it."""
    kept: dict[bytes, set[str]] = {
        line: set() for line in lines if world.authors.get(line) not in undoing.own_records
    }
    taken: set[tuple[bytes, str, frozenset[str]]] = set()
    first = min((record.number for record in undoing.own_records), default=world.now)
    lasting = [record for record in world.everything() if record not in world.void]
    nothing = _cycles(lasting, undoing.who)
    # Who puts at a path just what the session had put there cannot be told from it.
    same = {(record.path, record.after) for record in undoing.own_records}
    for record in lasting:
        is_own = record in undoing.own_records
        if record in nothing or (is_own and record.sure):
            continue
        gained, gone = _gained(record), _gained(record, backwards=True)
        adds = not is_own and (record.path, record.after) not in same
        for line in kept.keys() & gained if adds else ():
            # An undo of others gives back what would not have been there to be taken.
            if record.source != "plan" or (line, record.path, record.who) not in taken:
                kept[line].add(record.path)
        is_unseen = record.source == "unseen" or not record.sure
        if unseen and is_unseen and undoing.who in record.who and record.number >= first:
            continue
        # Who replaces a file as a whole would have done so whatever else was in it.
        whole = record.before is not None and gone == set(lines_of(record.before))
        for line in kept.keys() - gained if whole and not is_own else kept.keys() & gone:
            if line in gone and record.path not in kept[line]:
                taken.add((line, record.path, record.who))
            kept[line].discard(record.path)
    return {line: kept.get(line, set()) for line in lines}


def _cycles(records: Iterable[Record], who: str) -> set[Record]:
    """What others did to a path and undid to the last byte, with nothing of the session between."""
    found: set[Record] = set()
    runs: dict[str, list[Record]] = {}
    for record in records:
        run = runs.setdefault(record.path, [])
        if who in record.who:
            run.clear()
            continue
        run.append(record)
        starts = [start for start, each in enumerate(run) if each.before == record.after]
        if starts:
            found.update(run[starts[0] :])
            del run[starts[0] :]
    return found


def _count_needless(world: World, undoing: Undoing, figures: Counter[str]) -> None:
    """Count what was left alone though nobody would have lost anything."""
    for path in undoing.own:
        entry = undoing.entries.get(path)
        if entry is None or not undoing.wanted.includes(path):
            continue
        if entry.outcome in CHANGES:
            figures["steps"] += 1
        if entry.outcome not in ("conflict", "skipped"):
            continue
        figures[f"{entry.outcome}s"] += 1
        figures[f"{entry.outcome}: {entry.reason}"] += 1
        if not undoing.foreign_at(path, near=True):
            word = _judged(world, undoing, path)
            figures[word] += 1
            if word == "needless":
                figures[f"needless: {entry.reason}"] += 1


def _judged(world: World, undoing: Undoing, path: str) -> str:
    """What to think of a path that was left alone, though nobody else touched it."""
    own, disk = undoing.own[path], undoing.before.files.get(path)
    if disk != own[-1].after or not all(record.sure for record in own):
        return "withheld"
    if any(other != path and _are_near(other, path) for other in undoing.after.files):
        return "no room"
    elsewhere = {
        line
        for other, file in undoing.after.files.items()
        if other != path
        for line in lines_of(file)
    }
    at_stake = set(lines_of(disk)) - set(lines_of(own[0].before)) - elsewhere
    if any(_kept_without(world, undoing, at_stake).values()):
        return "withheld"
    # Somebody had this very content before the session: to keep it is careful, not wrong.
    return "cautious" if disk is not None and disk.content in _found(world, undoing) else "needless"


def _found(world: World, undoing: Undoing) -> set[bytes]:
    """Contents that were there before the session, or that its changes met."""
    found = {file.content for file in world.opening.files.values()}
    left: dict[str, State] = {}
    for record in world.log:
        if undoing.who in record.who:
            if record.before is not None and left.get(record.path) != record.before:
                found.add(record.before.content)
            left[record.path] = record.after
    return found


def _are_near(one: str, other: str) -> bool:
    return one == other or one in above(other) or other in above(one)
