"""What kedge should know of a worktree and its sessions, and what a revert must then come to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kedge.domain.file_states import FileStep, Outcome, Present
from kedge.domain.receipts import Receipt
from kedge.engine.revert.merge import PathHistory, Segment, Source
from kedge.engine.revert.plan import Entry, Plan, plan
from tests.engine.revert.plan_model import Record, Session, Undoing
from tests.engine.revert.plan_trees import Blobs, State, Tree, prefixes
from tests.engine.revert.whole_ledger import Ledger
from tests.engine.revert.whole_talks import Done, Member, Place, Row, Talk, Wanted

Own: TypeAlias = tuple[Record, Source | None]
"""Something to be undone, and how it is known."""
LAST = "~"
"""Later than every part: where what a files-only revert wrote belongs to."""
LEFT = (Outcome.CONFLICT, Outcome.SHARED, Outcome.SKIPPED)
HELD_BEFORE = (Outcome.RESTORED, Outcome.RECREATED, Outcome.DELETED)
"""After these a session knows what is at a path."""


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What a revert or unrevert must come to."""

    undoing: Undoing
    entries: list[Entry]
    """All that the receipt has to say."""
    applied: bool


class Model(Ledger):
    """The worktree, its sessions, and what they know."""

    def __init__(self, names: Iterable[str], tree: Tree, blobs: Blobs) -> None:
        super().__init__(tree, blobs)
        self.members = {name: Member(name) for name in names}
        self._positions = 0

    # What sessions do.

    def prompt(self, name: str, id: str) -> None:
        """A turn begins, and makes a pending revert final."""
        self.members[name].make_final()
        self.members[name].talks.append(Talk(id, self._new_place(), is_prompt=True))

    def answer(self, name: str, id: str) -> None:
        """A step begins."""
        self.look()
        self.members[name].talks.append(Talk(id, self._new_place(), is_prompt=False))

    def _new_place(self) -> Place:
        self._positions += 1
        return Place(self._positions, None, self.now)

    def begin_call(self, name: str, part: str) -> None:
        """A call begins, of whatever kind."""
        talk = self.members[name].talks[-1]
        talk.calls.append(Place(talk.place.pos, part, self.now))

    def end_shell(self, name: str) -> None:
        """A call of unknown effect is over."""
        records = self.end_unknown(name)
        self._record(name, records)
        own = [each for each in records if each.source == Source.OBSERVED]
        self.members[name].seen |= {each.path: _blob(each.after) for each in own}

    def end_tool(self, name: str, paths: Iterable[bytes], made: Iterable[bytes]) -> None:
        """A declared call is over, and made these folders."""
        records = self.end_declared(name)
        number = records[0].number if records else self.now
        call = self.members[name].talks[-1].calls[-1]
        self.members[name].rows += [
            Row(call.pos, call.part or "", number, folder, None) for folder in made
        ]
        self._record(name, records)
        self.members[name].seen |= {path: _blob(self.tree.state(path)) for path in paths}

    def _record(self, name: str, records: Iterable[Record]) -> None:
        call = self.members[name].talks[-1].calls[-1]
        self.members[name].rows += [
            Row(call.pos, call.part or "", each.number, each.path, each) for each in records
        ]

    def is_refused(self, name: str, paths: Iterable[bytes]) -> bool:
        """Whether a session that has not read these paths again may not write them."""
        seen = self.members[name].seen
        return any(seen.get(path) != _blob(self.tree.state(path)) for path in paths)

    # What is undone.

    def revert(self, name: str, boundary: Place, wanted: Wanted) -> Foreseen:
        """What a revert must come to."""
        member = self.members[name]
        rows = member.since(boundary)
        hiding = [done for done in member.pending if done.wanted.hides]
        own = [(row.record, row.record.source) for row in rows if row.record] + _written(hiding)
        since = [boundary.number, *(each.number - 1 for each, _ in own)]
        folders = [row.path for row in rows if row.record is None] + _made(hiding)
        made = [folder for folder in folders if wanted.includes(folder)]
        return self._foresee(member, own, wanted, since=min(since), made=made)

    def unrevert(self, name: str) -> Foreseen:
        """What an unrevert must come to."""
        member = self.members[name]
        own = _written(member.pending)
        since = min((each.number - 1 for each, _ in own), default=self.now)
        return self._foresee(member, own, Wanted(), since=since, made=_made(member.pending))

    def _foresee(
        self,
        member: Member,
        own: Iterable[Own],
        wanted: Wanted,
        *,
        since: int,
        made: list[bytes],
    ) -> Foreseen:
        by_path: dict[bytes, list[Own]] = {}
        for each in sorted(own, key=lambda each: each[0].number):
            by_path.setdefault(each[0].path, []).append(each)
        chosen = {path: own for path, own in by_path.items() if wanted.includes(path)}
        histories = [self._history(member, path, own) for path, own in chosen.items()]
        planned = plan(
            histories, self.blobs.__getitem__, strategy=wanted.strategy, made_folders=made
        )
        after = self.tree.copy()
        after.carry_out(planned)
        left = [_left(path, own, wanted) for path, own in by_path.items() if path not in chosen]
        undoing = Undoing(
            session=Session(member.name),
            since=since,
            records={path: [each for each, _ in own] for path, own in chosen.items()},
            histories=histories,
            made=made,
            strategy=wanted.strategy,
            plan=planned,
            before=self.tree.copy(),
            after=after,
        )
        has_conflict = any(e.outcome is Outcome.CONFLICT for e in planned.entries)
        return Foreseen(
            undoing=undoing,
            entries=sorted((*planned.entries, *left), key=lambda entry: entry.path),
            applied=not (wanted.strategy == "abort" and has_conflict),
        )

    def _history(self, member: Member, path: bytes, own: Sequence[Own]) -> PathHistory:
        later = (
            row.path == path and row.number > own[0][0].number
            for other in self.members.values()
            if other is not member
            for row in other.rows
        )
        return PathHistory(
            path=path,
            segments=tuple(
                Segment(each.before, each.after, source or Source.DECLARED) for each, source in own
            ),
            disk=self.tree.disk(path),
            others_later=any(later),
        )

    # What became of it.

    def reverted(self, name: str, foreseen: Foreseen, boundary: Place, wanted: Wanted) -> None:
        """A revert was carried out."""
        member = self.members[name]
        made = self._missing_folders(foreseen)
        records = self._carried_out(member, foreseen)
        done = Done(
            number=self.now,
            boundary=boundary,
            wanted=wanted,
            records=records,
            made=made,
            left={each.path for each in foreseen.entries if each.outcome in LEFT},
            observed={each.path for each in foreseen.entries if each.source == "observed"},
        )
        member.pending.append(done)
        if not wanted.hides:
            self._own_up(member, done, made)

    def _own_up(self, member: Member, done: Done, made: Iterable[bytes]) -> None:
        """What was written without hiding messages is a change of the session."""
        pos = member.talks[-1].place.pos
        member.rows += [Row(pos, LAST, done.number, folder, None, done) for folder in made]
        member.rows += [Row(pos, LAST, each.number, each.path, each, done) for each in done.records]

    def _missing_folders(self, foreseen: Foreseen) -> list[bytes]:
        """Folders of files that are to be written, where nothing is yet."""
        steps = foreseen.undoing.plan.steps
        written = [step.path for step in steps if isinstance(step.want, Present)]
        folders = {folder for path in written for folder in prefixes(path)}
        return sorted(folders - self.tree.folders - self.tree.files.keys())

    def unreverted(self, name: str, foreseen: Foreseen) -> None:
        """An unrevert was carried out."""
        member = self.members[name]
        self._carried_out(member, foreseen)
        pending, member.pending = member.pending, []
        member.rows = [row for row in member.rows if row.plan not in pending]
        left = {each.path for each in foreseen.entries if each.outcome in LEFT}
        for done in pending:
            kept = [each for each in done.records if each.path in left]
            if kept:
                # It can be tried again: what is still reverted there counts as files-only.
                only_files = replace(done.wanted, scope="files")
                narrowed = replace(done, wanted=only_files, records=kept)
                above = {folder for path in left for folder in (path, *prefixes(path))}
                made = [folder for folder in done.made if folder in above]
                member.pending.append(narrowed)
                self._own_up(member, narrowed, made)

    def _carried_out(self, member: Member, foreseen: Foreseen) -> list[Record]:
        undoing = foreseen.undoing
        self.blobs.update(undoing.plan.contents)
        paths = [step.path for step in undoing.plan.steps]
        self.look(paths)
        self.tree = undoing.after.copy()
        for entry in foreseen.entries:
            if entry.outcome in HELD_BEFORE:
                member.seen[entry.path] = _blob(self.tree.state(entry.path))
            elif entry.outcome not in (Outcome.UNCHANGED, Outcome.SKIPPED):
                member.seen.pop(entry.path, None)
        return self.settle(paths, member.name, Source.REVERT, of_plan=True)

    # Chosen calls.

    def chosen(self, name: str, rows: Iterable[Row], wanted: Wanted, *, is_redo: bool) -> list[Row]:
        """Which changes an undo or redo of calls is about, as they happened."""
        member = self.members[name]
        found = [
            row
            for row in rows
            if row.record is not None
            and row.plan is None
            and wanted.includes(row.path)
            and (row.record in member.out) == is_redo
            and (row.record.source is Source.SHARED or not member.is_hidden(row))
        ]
        return sorted(found, key=lambda row: row.number)

    def undoing_of(self, name: str, rows: Iterable[Row], wanted: Wanted) -> Undoing:
        """An undo of changes, with nothing foreseen of what becomes of it."""
        records: dict[bytes, list[Record]] = {}
        for row in rows:
            assert row.record is not None
            records.setdefault(row.path, []).append(row.record)
        return Undoing(
            session=Session(name),
            since=min((each[0].number - 1 for each in records.values()), default=self.now),
            records=records,
            histories=[],
            made=[],
            strategy=wanted.strategy,
            plan=_NO_PLAN,
            before=self.tree.copy(),
            after=self.tree.copy(),
        )

    def seen(self, undoing: Undoing, receipt: Receipt, after: Tree) -> Foreseen:
        """What an undoing came to, where that could not be foreseen."""
        before = undoing.before
        gone = before.files.keys() - after.files.keys()
        changed = sorted(p for p in after.files if before.state(p) != after.state(p))
        steps = tuple(
            FileStep(number=n, path=path, expect=before.state(path), want=after.state(path))
            for n, path in enumerate([*sorted(gone), *changed])
        )
        entries = [
            Entry(path=e.path_bytes, outcome=e.outcome, reason=e.reason, source=e.source)
            for e in receipt.files
        ]
        planned = [each for each in entries if each.path in undoing.records]
        came_to = Plan(steps=steps, contents={}, folders=(), entries=tuple(planned))
        return Foreseen(
            undoing=replace(undoing, plan=came_to, after=after),
            entries=entries,
            applied=receipt.applied,
        )

    def did_choose(self, name: str, done: Foreseen) -> None:
        """An undo or redo of chosen calls was carried out."""
        member = self.members[name]
        paths = [step.path for step in done.undoing.plan.steps]
        self.look(paths)
        self.tree = done.undoing.after.copy()
        for path in paths:
            # The conversation still tells of what is no longer there.
            member.seen.pop(path, None)
        member.acts |= set(self.settle(paths, name, Source.REVERT, of_plan=True))
        member.has_chosen = True


_NO_PLAN = Plan(steps=(), contents={}, folders=(), entries=())


def _blob(state: State) -> str | None:
    return state.blob if isinstance(state, Present) else None


def _written(plans: Iterable[Done]) -> list[Own]:
    return [
        (each, Source.OBSERVED if each.path in done.observed else Source.REVERT)
        for done in plans
        for each in done.records
    ]


def _made(plans: Iterable[Done]) -> list[bytes]:
    return [folder for done in plans for folder in done.made]


def _left(path: bytes, own: Iterable[Own], wanted: Wanted) -> Entry:
    """What is said of a path that was not to be touched."""
    is_observed = any(source in (Source.OBSERVED, Source.SHARED) for _, source in own)
    return Entry(
        path=path,
        outcome=Outcome.SKIPPED,
        reason="files were left as they are"
        if wanted.scope == "messages"
        else "it was not asked for",
        source="observed" if is_observed else "declared",
    )
