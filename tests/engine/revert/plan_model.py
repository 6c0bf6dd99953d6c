"""A worktree, the sessions and people who change it, and reverts of them, all in memory.

It knows everything that happened, also what kedge could not know, so that what a revert came to can
be judged (see `judging`). `histories` is what the engine would give to the planner.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kedge.domain.file_states import Absent
from kedge.domain.receipts import RevertStrategy
from kedge.engine.revert.merge import PathHistory, Segment, Source
from kedge.engine.revert.plan import Plan, plan
from tests.engine.revert.plan_documents import Lines
from tests.engine.revert.plan_trees import Blobs, State, Tree

PERSON = "a person"


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One change of one path, as it really happened."""

    number: int
    actor: str
    path: bytes
    before: State
    after: State
    source: Source | None
    """None for what a person did: kedge does not know of it."""
    of_plan: bool
    """Whether a revert or unrevert wrote it."""


@dataclass
class Session:
    """What the engine would have in its database about one session."""

    name: str
    changes: list[Record] = field(default_factory=list)
    pending: list[list[Record]] = field(default_factory=list)
    """What the plans of the pending revert wrote, the oldest plan first."""
    boundary: int | None = None
    """Of the pending revert: changes with a higher number are reverted."""
    made: dict[bytes, int] = field(default_factory=dict)
    """Folders that it made, and when."""

    @property
    def reverted_at(self) -> int | None:
        """The last number before the pending revert wrote anything."""
        numbers = [each.number for records in self.pending for each in records]
        return min(numbers) - 1 if numbers else None


@dataclass(frozen=True, kw_only=True)
class Undoing:
    """A revert, an unrevert or a move of the boundary, before and after it was carried out."""

    session: Session
    since: int
    """The number after which everything is to be undone."""
    records: Mapping[bytes, list[Record]]
    histories: list[PathHistory]
    made: list[bytes]
    strategy: RevertStrategy
    plan: Plan
    before: Tree
    after: Tree


class World:
    """The worktree and everybody in it."""

    def __init__(self, sessions: Iterable[str], files: Mapping[bytes, bytes]) -> None:
        self.blobs = Blobs()
        self.lines = Lines()
        self.tree = Tree()
        self.tree.change([(path, self.blobs.file(text)) for path, text in files.items()])
        self.sessions = {name: Session(name) for name in sessions}
        self.log: list[Record] = []
        self.trees = [self.tree.copy()]
        """The worktree as it was after each number."""

    @property
    def now(self) -> int:
        """The number of the last thing that happened."""
        return len(self.trees) - 1

    def do(
        self, actor: str, changes: Mapping[bytes, State], source: Source = Source.DECLARED
    ) -> None:
        """Somebody changes paths; a session goes on from where it was reverted to."""
        if actor != PERSON:
            self.prompt(actor)
        known = None if actor == PERSON else source
        records, made = self._write(actor, changes, known)
        if actor != PERSON:
            self.sessions[actor].changes += records
            self.sessions[actor].made |= dict.fromkeys(made, self.now)

    def do_together(self, actors: Iterable[str], changes: Mapping[bytes, State]) -> None:
        """Paths change while calls of several sessions run: nobody can say whose it was."""
        names = list(actors)
        for name in names:
            self.prompt(name)
        records, _ = self._write(" and ".join(names), changes, Source.SHARED)
        for name in names:
            self.sessions[name].changes += records

    def prompt(self, name: str) -> None:
        """Make a pending revert final: what is after the boundary leaves the session."""
        session = self.sessions[name]
        if session.boundary is not None:
            session.changes = [each for each in session.changes if each.number <= session.boundary]
            session.pending, session.boundary = [], None

    def revert(self, name: str, boundary: int, strategy: RevertStrategy = "merge") -> Undoing:
        """Undo what a session did after the boundary; moves the boundary of a pending revert."""
        session = self.sessions[name]
        # All that it did was before its revert, and so is every place in its messages.
        if session.reverted_at is not None:
            boundary = min(boundary, session.reverted_at)
        changes = [each for each in session.changes if each.number > boundary]
        undoing = self._undo(session, changes, since=boundary, strategy=strategy)
        session.pending.append(self._carry_out(undoing))
        session.boundary = boundary
        return undoing

    def unrevert(self, name: str, strategy: RevertStrategy = "merge") -> Undoing:
        """Undo the pending revert."""
        session = self.sessions[name]
        since = self.now if session.reverted_at is None else session.reverted_at
        undoing = self._undo(session, [], since=since, strategy=strategy)
        self._carry_out(undoing)
        session.pending, session.boundary = [], None
        return undoing

    def revert_files(self, name: str, boundary: int, strategy: RevertStrategy = "merge") -> Undoing:
        """Undo what a session did, as one more change of it: its messages stay."""
        self.prompt(name)
        session = self.sessions[name]
        changes = [each for each in session.changes if each.number > boundary]
        undoing = self._undo(session, changes, since=boundary, strategy=strategy)
        session.changes += self._carry_out(undoing)
        return undoing

    def histories(
        self, session: Session, changes: Iterable[Record]
    ) -> tuple[dict[bytes, list[Record]], list[PathHistory]]:
        """What the engine would ask the planner to undo: changes, and what is pending."""
        records: defaultdict[bytes, list[Record]] = defaultdict(list)
        for each in changes:
            records[each.path].append(each)
        for written in session.pending:
            for each in written:
                records[each.path].append(each)
        return dict(records), [
            PathHistory(
                path=path,
                segments=tuple(
                    Segment(each.before, each.after, each.source or Source.DECLARED) for each in own
                ),
                disk=self.tree.disk(path),
                others_later=self._others_later(session, own),
            )
            for path, own in records.items()
        ]

    def _others_later(self, session: Session, own: list[Record]) -> bool:
        return any(
            each.path == own[0].path
            and each.number > own[0].number
            and each.actor not in (PERSON, session.name)
            and each not in own
            for each in self.log
        )

    def _undo(
        self, session: Session, changes: list[Record], *, since: int, strategy: RevertStrategy
    ) -> Undoing:
        records, histories = self.histories(session, changes)
        made = [folder for folder, number in session.made.items() if number > since]
        planned = plan(histories, self.blobs.__getitem__, strategy=strategy, made_folders=made)
        after = self.tree.copy()
        after.carry_out(planned)
        return Undoing(
            session=session,
            since=since,
            records=records,
            histories=histories,
            made=made,
            strategy=strategy,
            plan=planned,
            before=self.tree.copy(),
            after=after,
        )

    def _carry_out(self, undoing: Undoing) -> list[Record]:
        self.blobs.update(undoing.plan.contents)
        changes: dict[bytes, State] = {
            step.path: undoing.after.state(step.path) for step in undoing.plan.steps
        }
        number = self.now + 1
        records = [
            Record(
                number,
                undoing.session.name,
                path,
                self.tree.state(path),
                after,
                Source.REVERT,
                True,
            )
            for path, after in changes.items()
        ]
        self.tree = undoing.after.copy()
        self._happened(records)
        return records

    def _write(
        self, actor: str, changes: Mapping[bytes, State], source: Source | None
    ) -> tuple[list[Record], list[bytes]]:
        number = self.now + 1
        records = [
            Record(number, actor, path, self.tree.state(path), after, source, of_plan=False)
            for path, after in changes.items()
            if self.tree.state(path) != after
        ]
        made = self.tree.change((each.path, each.after) for each in records)
        self._happened(records)
        return records, made

    def _happened(self, records: list[Record]) -> None:
        self.log += records
        self.trees.append(self.tree.copy())


def clearing(tree: Tree, path: bytes) -> dict[bytes, State]:
    """What has to go so that a file can be at a path: files above it, and all below it."""
    above = [path[:end] for end, byte in enumerate(path) if byte == ord("/")]
    return {each: Absent() for each in (*above, *tree.below(path)) if each in tree.files}
