"""Runs programs in memory: what the engine would know is given to the pure planner, its steps are
carried out on a tree in memory, and the oracle judges. No disk, no database, no engine."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kedge.domain.file_states import Absent, Known, Present
from kedge.domain.receipts import RevertStrategy
from kedge.engine.diffs.compose import net_of
from kedge.engine.revert.merge import Contents, PathHistory, Segment
from kedge.engine.revert.merge import Source as SegmentSource
from kedge.engine.revert.plan import Plan, plan
from kedge.engine.revert.safety import Content, Facts, content_of
from kedge.snapshot.files.reader import Blocked, Disk, Folder
from kedge.snapshot.objects.formats import blob_id
from tests.undo_fuzz.oracle import Violation, check_diff, judge, undoing_of
from tests.undo_fuzz.program import (
    PERSON,
    SESSIONS,
    Action,
    CloseShell,
    Declared,
    EndStep,
    EndTurn,
    Fork,
    InShell,
    Op,
    OpenShell,
    Program,
    Revert,
    Save,
    Shell,
    Unrevert,
)
from tests.undo_fuzz.world import (
    OWN,
    Changes,
    Entries,
    Entry,
    File,
    Place,
    Row,
    State,
    Tree,
    Wanted,
    World,
    above,
    again,
    is_behind_link,
    lines,
    missing_folders,
    others,
    standing_by_path,
)

_SEEN = (SegmentSource.OBSERVED, SegmentSource.SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that the engine knows when it plans."""

    histories: Sequence[PathHistory]
    blobs: Mapping[str, bytes]
    strategy: RevertStrategy
    made_folders: Sequence[bytes]
    earlier: Mapping[bytes, Sequence[Segment]]
    """What the session did to each path before the boundary."""
    undone: Mapping[bytes, Sequence[Segment]]
    """What lies behind the boundary, also at paths that are not to be touched."""
    openings: Sequence[Mapping[bytes, Present]]
    """All that snapshots covered when the session began, and when what is to be undone did."""
    disk: Mapping[bytes, Present]
    """All that a snapshot covers now."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What the engine knows of a session beside what is to be undone."""

    earlier: Sequence[Row]
    """What it did before the boundary,"""
    undone: Sequence[Row]
    """and behind it."""
    openings: Sequence[Tree]


def planned(case: Case) -> Plan:
    """What kedge would do: the one place where the planner is called."""
    paths = [history.path for history in case.histories]
    opening: dict[bytes, Content] = {}
    displaced: set[Content] = set()
    for tree in case.openings:
        for path, state in tree.items():
            now = case.disk.get(path)
            if now is None or now.blob != state.blob:
                displaced.add(content_of(state))
            elif path in paths:
                opening[path] = content_of(state)

    def elsewhere(contents: Collection[Content]) -> dict[Content, list[bytes]]:
        found: dict[Content, list[bytes]] = {}
        for path, state in case.disk.items():
            if content_of(state) in contents:
                found.setdefault(content_of(state), []).append(path)
        return found

    return plan(
        case.histories,
        case.blobs.__getitem__,
        strategy=case.strategy,
        made_folders=case.made_folders,
        facts=Facts(
            earlier=case.earlier,
            undone=case.undone,
            opening=opening,
            displaced=displaced,
            elsewhere=elsewhere,
        ),
        has=case.blobs.__contains__,
    )


def run(program: Program, figures: Counter[str] | None = None) -> None:
    """Run a program; raises `Violation`."""
    PlannerRun(Counter() if figures is None else figures).run(program)


class PlannerRun:
    """One program at work in memory."""

    def __init__(self, figures: Counter[str]) -> None:
        self._figures = figures
        self._world = World()
        self._blobs: dict[str, bytes] = {}
        self._ids = 0
        self._openings: dict[int, Tree] = {}
        """What each step found, by the position of its message,"""
        self._finishes: dict[int, Tree] = {}
        """and what it left."""
        self._before: dict[int, Tree] = {}
        """What each revert found, by its number."""
        self._turns: set[str] = set()
        self._steps: set[str] = set()
        for name in SESSIONS:
            self._world.join(name)

    def run(self, program: Program) -> None:
        """Do everything; each undo is judged at once, diffs at the end."""
        for action in program:
            self._do(action)
        for name in SESSIONS:
            self._end_turn(name)
            self._check_diff(name)
        self._figures["rounds"] += 1

    def _do(self, action: Action) -> None:
        match action:
            case Save(op):
                self._world.write(self._world.changes(op, PERSON))
            case Declared(who, op, meanwhile):
                self._declared(who, op, meanwhile)
            case Shell(who, ops):
                self._shell(who, ops)
            case OpenShell(who):
                self._open(who)
            case InShell(who, op) if self._world.is_running(who):
                self._world.write(self._world.changes(op, who))
            case CloseShell(who):
                self._close(who)
            case _:
                self._do_other(action)

    def _do_other(self, action: Action) -> None:
        match action:
            case EndStep(who):
                self._end_step(who)
            case EndTurn(who):
                self._end_turn(who)
            case Fork(who):
                self._end_turn(who)
                self._world.join(who)
            case Revert():
                self._revert(action)
            case Unrevert(who):
                self._unrevert(who)

    # Turns and calls.

    def _id(self) -> str:
        self._ids += 1
        return str(self._ids)

    def _step(self, who: str) -> None:
        if who not in self._turns:
            self._turns.add(who)
            self._world.prompt(who, self._id())
        if who not in self._steps:
            self._steps.add(who)
            self._world.answer(who, self._id())
            answer = self._world.members[who].messages[-1]
            self._openings[answer.pos] = self._finishes[answer.pos] = self._world.tree.copy()

    def _open(self, who: str) -> None:
        if not self._world.is_running(who):
            self._step(who)
            self._world.begin_shell(who, self._id())

    def _close(self, who: str) -> None:
        if self._world.is_running(who):
            self._world.end_shell(who)

    def _end_step(self, who: str) -> None:
        self._close(who)
        if who in self._steps:
            self._steps.discard(who)
            self._world.look()
            answer = self._world.members[who].messages[-1]
            self._finishes[answer.pos] = self._world.tree.copy()

    def _end_turn(self, who: str) -> None:
        self._end_step(who)
        self._turns.discard(who)

    def _shell(self, who: str, ops: Iterable[Op]) -> None:
        was_running = self._world.is_running(who)
        self._open(who)
        for op in ops:
            self._world.write(self._world.changes(op, who))
        if not was_running:
            self._close(who)

    def _declared(self, who: str, op: Op, meanwhile: Op | None) -> None:
        changes = self._world.changes(op, who)
        if not changes:
            return
        if is_behind_link(self._world.tree, changes):
            self._shell(who, (op,))
            return
        self._step(who)
        missing = missing_folders(self._world.tree, changes)
        self._world.begin_declared(who, self._id(), changes)
        if meanwhile is not None:
            self._world.write(self._world.changes(meanwhile, PERSON))
            changes = again(self._world.tree, changes)
        self._world.write(changes)
        self._world.end_declared(who, missing & self._world.tree.folders)

    # Undos.

    def _revert(self, action: Revert) -> None:
        who = action.who
        self._end_turn(who)
        places = self._world.members[who].places()
        if not places:
            return
        place = places[-1 - action.back % len(places)][2]
        wanted = Wanted(action.strategy, action.scope, action.files)
        before, pending = self._world.tree.copy(), bool(self._world.members[who].pending)
        rows, whole = self._world.reverting(who, place), self._reverting(who, place)
        applied, after, entries = self._undo(who, rows, wanted, whole)
        if not applied:
            return
        self._world.reverted(who, place, wanted, after, entries)
        self._before.setdefault(self._world.now, before)
        if action.and_back:
            self._unrevert(who)
            if not pending and self._world.tree.files != before.files:
                path = self._world.tree.differences(before)[0]
                raise Violation("way back", path, "not as before after revert and unrevert")

    def _unrevert(self, who: str) -> None:
        self._end_turn(who)
        if self._world.members[who].pending:
            rows, whole = self._world.unreverting(who), self._unreverting(who)
            _, after, entries = self._undo(who, rows, Wanted(), whole)
            self._world.unreverted(who, after, entries)

    def _undo(
        self, who: str, rows: Sequence[Row], wanted: Wanted, whole: Whole
    ) -> tuple[bool, Tree, Entries]:
        """Plan, carry out and judge; the world does not know of it yet."""
        chosen = [row for row in rows if wanted.includes(row.record.path)]
        made = planned(self._case(who, chosen, wanted, whole))
        self._blobs |= made.contents
        left = [row for row in rows if not row.is_folder and row not in chosen]
        seen = {row.record.path for row in left if self._segment(row).source in _SEEN}
        entries = {
            row.record.path: Entry(
                "skipped", "not asked for", "observed" if row.record.path in seen else "declared"
            )
            for row in left
        }
        for each in made.entries:
            entries[each.path.decode()] = Entry(each.outcome.value, each.reason, each.source)
        conflicts = any(each.outcome == "conflict" for each in made.entries)
        applied = not (wanted.strategy == "abort" and conflicts)
        if not applied and (made.steps or made.folders):
            raise Violation("abort", "", "there are steps in spite of a conflict")
        after = self._carried_out(made)
        undoing = undoing_of(self._world, who, rows, wanted, entries, after, applied=applied)
        judge(self._world, undoing, self._figures)
        return applied, after, entries

    def _case(self, who: str, chosen: Sequence[Row], wanted: Wanted, whole: Whole) -> Case:
        return Case(
            histories=[self._history(who, path, own) for path, own in _by_path(chosen).items()],
            blobs=self._blobs,
            strategy=wanted.strategy,
            made_folders=[row.record.path.encode() for row in chosen if row.is_folder],
            earlier=self._segments(whole.earlier),
            undone=self._segments(whole.undone),
            openings=[self._covered(tree) for tree in whole.openings],
            disk=self._covered(self._world.tree),
        )

    def _segments(self, rows: Iterable[Row]) -> dict[bytes, list[Segment]]:
        return {
            path.encode(): [self._segment(row) for row in own]
            for path, own in _by_path(rows).items()
        }

    def _covered(self, tree: Tree) -> dict[bytes, Present]:
        """What a snapshot holds of a tree."""
        return {
            path.encode(): self._present(file)
            for path, file in tree.files.items()
            if self._world.is_covered(path)
        }

    def _reverting(self, who: str, place: Place) -> Whole:
        """All that a revert may know of its session."""
        found = [self._opening(who, pos) for pos in (0, place.pos)]
        undone = self._world.reverting(who, place)
        return Whole(self._world.before(who, place), undone, [tree for tree in found if tree])

    def _opening(self, who: str, pos: int) -> Tree | None:
        """The files as the first step from a position on found them, or the last one left them."""
        answers = [each.pos for each in self._world.members[who].messages if not each.is_prompt]
        later = [self._openings[answer] for answer in answers if answer >= pos]
        earlier = [self._finishes[answer] for answer in answers if answer < pos]
        return next(iter([*later, *earlier[::-1]]), None)

    def _unreverting(self, who: str) -> Whole:
        """All that an unrevert may know."""
        first, rows = self._world.members[who].pending[0].number, self._world.unreverting(who)
        return Whole([], rows, [self._before[first]])

    def _history(self, who: str, path: str, rows: Sequence[Row]) -> PathHistory:
        first = rows[0].record.number
        return PathHistory(
            path=path.encode(),
            segments=tuple(self._segment(row) for row in rows),
            disk=self._disk(path),
            others_later=any(
                row.record.path == path and row.record.number > first and not row.is_folder
                for name, member in self._world.members.items()
                if name != who
                for row in member.rows
            ),
        )

    def _segment(self, row: Row) -> Segment:
        record = row.record
        if record.source == "plan":
            # Pending reverts say what they undid; a files-only one is a change by itself.
            is_pending = row.pos == 0 and row.plan is not None
            seen = is_pending and row.plan is not None and record.path in row.plan.observed
            source = SegmentSource.OBSERVED if seen else SegmentSource.REVERT
        else:
            source = SegmentSource(record.source)
        return Segment(self._known(record.before), self._known(record.after), source)

    def _known(self, state: State) -> Known:
        return Absent() if state is None else self._present(state)

    def _present(self, file: File) -> Present:
        blob = _blob(file.content)
        self._blobs[blob] = file.content
        return Present(blob, file.mode)

    def _disk(self, path: str) -> Disk:
        tree = self._world.tree
        for folder in above(path):
            if folder in tree.files:
                return Blocked(folder.encode())
        if path in tree.folders:
            return Folder(frozenset(each.encode() for each in tree.below(path)))
        return self._known(tree.files.get(path))

    def _carried_out(self, made: Plan) -> Tree:
        """The tree after the steps; what is not as expected is a mistake of the planner."""
        tree = self._world.tree.copy()
        changes: Changes = {}
        for step in made.steps:
            path = step.path.decode()
            if self._known(tree.files.get(path)) != step.expect:
                raise Violation("plan", path, "a step expects what is not there")
            want = step.want
            assert isinstance(want, Present | Absent)
            changes[path] = (
                None if isinstance(want, Absent) else File(self._blobs[want.blob], want.mode)
            )
        for path, state in changes.items():
            if state is None:
                del tree.files[path]
        for folder in made.folders:
            name = folder.decode()
            if not any(each.startswith(f"{name}/") for each in (*tree.files, *tree.folders)):
                tree.folders.discard(name)
        tree.change(changes)
        return tree

    # Diffs.

    def _check_diff(self, who: str) -> None:
        """What the session is said to have changed is what it did."""
        for rows in standing_by_path(self._world, who).values():
            segments = [self._segment(row) for row in rows]
            contents = Contents(self._blobs.__getitem__)
            pairs = [
                (_lines(before, contents), _lines(after, contents))
                for before, after in net_of(segments, contents)
            ]
            own = [row.record for row in rows if row.record.source in OWN]
            check_diff(own, others(self._world, own), pairs)
            self._figures["diffs"] += 1


def _lines(state: Known, contents: Contents) -> tuple[bytes, ...]:
    return lines(contents.get(state.blob)) if isinstance(state, Present) else ()


def _by_path(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if not row.is_folder:
            found.setdefault(row.record.path, []).append(row)
    return found


@lru_cache(50_000)
def _blob(content: bytes) -> str:
    return blob_id(content).hex()
