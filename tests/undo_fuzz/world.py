"""The truth about a worktree: its files, who brought every line, whose each change is, and what
each session's conversation holds. It is built from what is done, never from what kedge says."""

import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from typing import Literal, TypeAlias

from kedge.domain.receipts import RevertScope, RevertStrategy
from tests.undo_fuzz.program import (
    FILES,
    SLOTS,
    Binary,
    Chmod,
    Copy,
    Delete,
    Empty,
    Link,
    Move,
    Op,
    Patch,
    Rewind,
    Slot,
    Write,
    is_ignored,
)

Source: TypeAlias = Literal["declared", "observed", "shared", "external", "unseen", "plan"]
OWN: tuple[Source, ...] = ("declared", "observed", "plan")
LEFT = ("conflict", "shared", "skipped")
CHANGES = ("restored", "merged", "deleted", "recreated")


@dataclass(frozen=True, slots=True)
class File:
    """A file or a symlink."""

    content: bytes
    mode: int
    """Type and permissions."""

    @property
    def is_regular(self) -> bool:
        """Whether it is no symlink."""
        return stat.S_ISREG(self.mode)


State: TypeAlias = File | None
Changes: TypeAlias = dict[str, State]


@lru_cache(50_000)
def lines(content: bytes) -> tuple[bytes, ...]:
    """The lines of a content; every line that anybody writes is unlike any other."""
    return tuple(BytesIO(content).readlines())


def lines_of(state: State) -> tuple[bytes, ...]:
    """The lines at a path."""
    return () if state is None else lines(state.content)


def above(path: str) -> Iterator[str]:
    """The folders that a path is in."""
    while path := path.rpartition("/")[0]:
        yield path


@dataclass
class Tree:
    """Files, symlinks and folders."""

    files: dict[str, File] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def copy(self) -> "Tree":
        """The same, to be kept."""
        return Tree(dict(self.files), set(self.folders))

    def below(self, path: str) -> list[str]:
        """The files below a path."""
        return [each for each in self.files if each.startswith(f"{path}/")]

    def change(self, changes: Mapping[str, State]) -> list[str]:
        """Make paths hold states, deletions first; the folders that had to be made."""
        made: list[str] = []
        for path, state in changes.items():
            if state is None:
                self.files.pop(path, None)
        for path, state in changes.items():
            if state is not None:
                self._clear(path)
                missing = [each for each in above(path) if each not in self.folders]
                assert not any(each in self.files for each in missing), path
                self.folders.update(missing)
                made += missing
                self.files[path] = state
        return made

    def _clear(self, path: str) -> None:
        if path in self.folders:
            assert not self.below(path), path
            self.folders -= {each for each in self.folders if f"{each}/".startswith(f"{path}/")}

    def differences(self, other: "Tree") -> list[str]:
        """The paths at which two trees have not the same file."""
        both = self.files.keys() | other.files.keys()
        return sorted(path for path in both if self.files.get(path) != other.files.get(path))

    def lines(self) -> set[bytes]:
        """Every line of every file."""
        return {line for file in self.files.values() for line in lines(file.content)}


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """What became of one path between two looks at it."""

    number: int
    path: str
    before: State
    after: State
    source: Source
    who: frozenset[str]
    """The sessions that it belongs to; several if it is shared, none if it is a person's."""
    sure: bool = True
    """Whether the documentation says so; else it may also be nobody's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a revert can go back to: a message, or a call in one."""

    pos: int
    order: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A change, or a folder that was made, at its place in a conversation."""

    pos: int
    order: int
    record: Record
    plan: "Done | None" = None
    """The files-only revert that wrote it."""
    is_folder: bool = False
    is_beside: bool = False
    """Whether it is taken out only with an undo that took it out before."""

    def is_after(self, place: Place) -> bool:
        """Whether it belongs to the place or to a later one."""
        if self.pos != place.pos:
            return self.pos > place.pos
        return place.order is None or self.order >= place.order


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a revert is to be done."""

    strategy: RevertStrategy = "merge"
    scope: RevertScope = "all"
    files: tuple[str, ...] | None = None

    @property
    def hides(self) -> bool:
        """Whether it hides messages."""
        return self.scope != "files"

    def includes(self, path: str) -> bool:
        """Whether a path may be touched."""
        if self.scope == "messages":
            return False
        return self.files is None or any(each in (path, *above(path)) for each in self.files)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Done:
    """A revert that can still be taken back."""

    number: int
    place: Place
    wanted: Wanted
    records: list[Record]
    made: list[Record]
    """Folders that it had to make."""
    left: frozenset[str]
    """Paths that it said it left as they are."""
    observed: frozenset[str]
    """Paths of which it said that changes were only observed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Undone:
    """An undo of calls that can still be taken back as a whole."""

    rows: list[Row]
    """What it took out."""
    records: list[Record]
    """What it wrote."""


@dataclass(slots=True)
class Message:
    """A prompt or an answer, with the calls in it."""

    id: str
    pos: int
    is_prompt: bool
    calls: list[tuple[str, int]] = field(default_factory=list)
    """Id and order of each."""


@dataclass(slots=True)
class Member:
    """A session."""

    name: str
    rows: list[Row] = field(default_factory=list)
    pending: list[Done] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    out: set[Row] = field(default_factory=set)
    """The rows that undos of calls have taken out."""

    def places(self) -> list[tuple[str, str | None, Place]]:
        """All that can be reverted to: ids of message and call, and where that leads."""
        found: list[tuple[str, str | None, Place]] = []
        prompt: Place | None = None
        for message in self.messages:
            if message.is_prompt or prompt is None:
                prompt = Place(message.pos)
            found.append((message.id, None, prompt))
            for index, (id, order) in enumerate(message.calls):
                found.append((message.id, id, Place(message.pos, order) if index else prompt))
        return found

    def make_final(self) -> None:
        """What is hidden leaves the conversation; changes that were not undone stay with it."""
        hiding = [done for done in self.pending if done.wanted.hides]
        if hiding:
            place = hiding[-1].place
            gone = {row for row in self.out if row.is_after(place)}
            self.undone = [each for each in self.undone if gone.isdisjoint(each.rows)]
            self.out -= gone
            rows = [row for row in self.rows if not self._is_undone(row) and row not in gone]
            self._cut(place)
            home = self.messages[-1].pos if self.messages else place.pos
            self.rows = [replace(row, pos=home) if row.is_after(place) else row for row in rows]
        self.pending = []

    def standing(self) -> list[Row]:
        """The rows that neither a pending revert nor an undo took out of the files; what is shared
        never is."""
        return [row for row in self.rows if row not in self.out and not self._is_undone(row)]

    def _is_undone(self, row: Row) -> bool:
        if row.record.source == "shared":
            return False
        for done in reversed(self.pending):
            looked = done.wanted.hides and done.wanted.includes(row.record.path)
            if looked and row.record.path not in done.left and row.record.number <= done.number:
                return row.is_after(done.place)
        return False

    def _cut(self, place: Place) -> None:
        first_gone = place.pos if place.order is None else place.pos + 1
        self.messages = [each for each in self.messages if each.pos < first_gone]
        if place.order is not None:
            last = self.messages[-1]
            last.calls = [call for call in last.calls if call[1] < place.order]


class World:
    """The worktree, its sessions, and all that happened."""

    def __init__(self, *, is_real: bool = False) -> None:
        """`is_real` if there are files on a disk, of which kedge may know more or less than their
        content."""
        self.tree = Tree()
        self.log: list[Record] = []
        self.members: dict[str, Member] = {}
        self.bringers: dict[bytes, Record] = {}
        """Of every line on disk, what brought it there last."""
        self.authors: dict[bytes, Record] = {}
        """Of every line that ever was there, what brought it first."""
        self.is_blurred = False
        """Whether a process died or a revert was disturbed: what kedge then takes for shared, or
        for done because it was as wanted already, cannot be told."""
        self.void: set[Record] = set()
        """What reverts and the unreverts of them wrote: it came to nothing."""
        self.is_real = is_real
        self.moved_out: set[bytes] = set()
        """Contents of files that were moved from where kedge does not look, and their lines."""
        self._moved_to: set[str] = set()
        """Where such files came to while commands ran: whatever is written to one, it stays a
        person's."""
        self.disturbed: set[str] = set()
        """What a person changed in the middle of a revert: it may count as done by that."""
        self._captured: set[str] = set()
        """Ignored paths that tools have declared, so that snapshots cover them."""
        self._counts: Counter[bytes] = Counter()
        self._unassigned: set[bytes] = set()
        """Lines that nobody has looked at yet."""
        self._settled: dict[str, File] = {}
        self._dirty: set[str] = set()
        """Paths that changed since somebody looked."""
        self._held: set[str] = set()
        """What a declared call is writing."""
        self._running: dict[str, list[Record]] = {}
        """What was seen so far while a session's command ran."""
        self._commands: dict[str, tuple[int, int]] = {}
        """Where in its conversation the running command of a session is."""
        self._versions: dict[str, list[File]] = {}
        self._lines = 0
        self._orders = 0
        self.now = 0
        first: Changes = {path: self._text("user", 0o644) for path in FILES}
        self.write(first)
        self.opening = self.tree.copy()
        """The files before any session."""

    # Files.

    def write(self, changes: Mapping[str, State]) -> list[str]:
        """Files change, by whoever it is; the folders that had to be made."""
        if self.is_real and not self._held:
            self._note_moved_out(changes)
        old = Counter(line for path in changes for line in lines_of(self.tree.files.get(path)))
        new = Counter(line for state in changes.values() for line in lines_of(state))
        made = self.tree.change(changes)
        for path, state in changes.items():
            if state is not None:
                self._versions.setdefault(path, []).append(state)
        for line in old.keys() | new.keys():
            count = self._counts[line] + new[line] - old[line]
            if count and not self._counts[line]:
                self._unassigned.add(line)
            elif not count:
                self._unassigned.discard(line)
                self.bringers.pop(line, None)
            self._counts[line] = count
        self._dirty.update(changes)
        if not self._running:
            self.look()
        return made

    def _note_moved_out(self, changes: Mapping[str, State]) -> None:
        """A file that is renamed is the same file, wherever it came from."""
        for path, state in changes.items():
            file = self.tree.files.get(path)
            if state is not None or file is None or file not in changes.values():
                continue
            if is_ignored(path):
                self.moved_out.update((file.content, *lines(file.content)))
            if is_ignored(path) or path in self._moved_to:
                self._moved_to |= {new for new, each in changes.items() if each == file}

    def look(self, paths: Iterable[str] | None = None) -> None:
        """Somebody looks at the files, or at some of them."""
        looked = self._dirty if paths is None else self._dirty.intersection(paths)
        for path in sorted(looked - self._held):
            source, sure = self._source(path)
            record = self._settle(path, source, frozenset(self._running), sure=sure)
            if record is not None and source in ("observed", "shared"):
                for seen in self._running.values():
                    seen.append(record)

    def _source(self, path: str) -> tuple[Source, bool]:
        """How a change is known that is seen now, and whether that is sure."""
        if not self._running:
            return "external", True
        source: Source = "observed" if len(self._running) == 1 else "shared"
        if not is_ignored(path):
            file = self.tree.files.get(path)
            found = () if file is None else (file.content, *lines(file.content))
            return source, path not in self._moved_to and self.moved_out.isdisjoint(found)
        if self.is_real:
            return source, False
        return (source if path in self._captured else "unseen"), True

    def is_covered(self, path: str) -> bool:
        """Whether snapshots hold a path."""
        return not is_ignored(path) or path in self._captured

    def unsettled(self) -> list[Record]:
        """What happened since somebody looked."""
        return [
            Record(self.now + 1, path, before, after, "external", frozenset())
            for path in sorted(self._dirty)
            if (before := self._settled.get(path)) != (after := self.tree.files.get(path))
        ]

    def everything(self) -> list[Record]:
        """All that happened, also what nobody has looked at yet."""
        return [*self.log, *self.unsettled()]

    def _settle(
        self, path: str, source: Source, who: frozenset[str], *, sure: bool = True
    ) -> Record | None:
        """It is known whose the newest change of a path is."""
        self._dirty.discard(path)
        before, after = self._settled.get(path), self.tree.files.get(path)
        if before == after:
            return None
        self.now += 1
        record = Record(self.now, path, before, after, source, who, sure)
        self.log.append(record)
        for line in lines_of(after):
            if line in self._unassigned:
                self._unassigned.discard(line)
                self.bringers[line] = record
                self.authors.setdefault(line, record)
        if after is None:
            del self._settled[path]
        else:
            self._settled[path] = after
        return record

    # Conversations.

    def join(self, name: str) -> None:
        """A session begins; one of that name is from now on called otherwise."""
        if name in self.members:
            self.members[f"{name} before {self.now} {len(self.members)}"] = self.members[name]
        self.members[name] = Member(name)

    def prompt(self, name: str, id: str) -> None:
        """A turn begins, and makes a pending revert final."""
        self.members[name].make_final()
        self.members[name].messages.append(Message(id, self._order(), is_prompt=True))

    def answer(self, name: str, id: str) -> None:
        """A step begins; a snapshot is taken."""
        self.look()
        self.members[name].messages.append(Message(id, self._order(), is_prompt=False))

    def _order(self) -> int:
        self._orders += 1
        return self._orders

    def call(self, name: str, id: str) -> None:
        """A call begins, of whatever kind."""
        self.members[name].messages[-1].calls.append((id, self._order()))

    def is_running(self, name: str) -> bool:
        """Whether a command of a session runs."""
        return name in self._running

    def begin_shell(self, name: str, id: str) -> None:
        """A command begins."""
        self.look()
        if not self._running:
            self._moved_to.clear()
        self._running[name] = []
        self.call(name, id)
        self._commands[name] = self._last_call(name)

    def end_shell(self, name: str) -> None:
        """A command is over: what was seen meanwhile is recorded with it."""
        self.look()
        pos, order = self._commands.pop(name)
        rows = [Row(pos, order, record) for record in self._running.pop(name)]
        self.members[name].rows += rows

    def begin_declared(self, name: str, id: str, paths: Iterable[str]) -> None:
        """A tool begins to write paths, and looks at them first."""
        held = set(paths)
        self.look(held)
        self._held = held
        self._captured |= held
        self.call(name, id)

    def end_declared(self, name: str, made: Iterable[str]) -> None:
        """It is over: all that became of its paths is its own."""
        held, self._held = self._held, set()
        records = [self._settle(path, "declared", frozenset((name,))) for path in sorted(held)]
        pos, order = self._last_call(name)
        rows = [Row(pos, order, record) for record in records if record is not None]
        folders = [Row(pos, order, self._folder(name, each), is_folder=True) for each in made]
        self.members[name].rows += [*rows, *folders]

    def end_killed(self, name: str, made: Iterable[str] = ()) -> None:
        """The process of a call is gone: what it did is its own, or nobody knows whose."""
        held, self._held = self._held, set()
        declared = [self._settle(path, "observed", frozenset((name,)), sure=False) for path in held]
        self.look()
        records = [*declared, *self._running.pop(name, [])]
        pos, order = self._last_call(name)
        self._commands.pop(name, None)
        unsure = [replace(record, sure=False) for record in records if record is not None]
        self.log = [record for record in self.log if record not in records] + unsure
        self.members[name].rows += [Row(pos, order, record) for record in unsure]
        folders = [Row(pos, order, self._folder(name, each), is_folder=True) for each in made]
        self.members[name].rows += folders
        self.is_blurred = True

    def _folder(self, name: str, path: str) -> Record:
        return Record(self.now, path, None, None, "declared", frozenset((name,)))

    def _last_call(self, name: str) -> tuple[int, int]:
        message = self.members[name].messages[-1]
        return message.pos, message.calls[-1][1]

    # What an undo is about, and what became of it.

    def reverting(self, name: str, place: Place) -> list[Row]:
        """What a revert undoes, oldest first: rows behind the place, what pending reverts wrote."""
        member = self.members[name]
        hiding = [done for done in member.pending if done.wanted.hides]
        rows = [row for row in member.rows if row.is_after(place) and row not in member.out]
        touched = {row.record.path for row in rows if not row.is_folder}
        return _by_age([*rows, *_written(hiding), *self._pairs(member, touched)])

    def _pairs(self, member: Member, paths: Collection[str]) -> list[Row]:
        """Undos of calls with what they took out, where the files are touched anyway: together they
        are nothing."""
        found = []
        for each in member.undone:
            wrote = [Row(0, 0, record) for record in each.records]
            beside = [row for row in (*each.rows, *wrote) if row.record.path in paths]
            found += [replace(row, is_beside=True) for row in beside]
        return found

    def undoing(self, name: str, orders: Collection[int]) -> list[Row]:
        """What an undo of calls takes out, oldest first."""
        member = self.members[name]
        return _by_age(
            row
            for row in member.rows
            if row.order in orders and row.plan is None and row not in member.out
        )

    def undid(
        self, name: str, rows: Iterable[Row], after: Tree, entries: "Entries", moot: set[str]
    ) -> None:
        """An undo of calls was carried out and said this; at some paths nothing was left of
        them."""
        member = self.members[name]
        records, _ = self.carried_out(name, after)
        left = {path for path, each in entries.items() if each.outcome in LEFT} | moot
        went = [
            row
            for row in rows
            if not row.is_folder and row.record.source in OWN and row.record.path not in left
        ]
        for path in {row.record.path for row in went}:
            here = [row for row in member.rows if row.record.path == path and not row.is_folder]
            rest = [row for row in here if row not in member.out and row not in went]
            # What a revert of files wrote there goes with the last of the calls.
            if all(row.plan is not None for row in rest):
                went += rest
        member.out.update(went)
        member.undone.append(Undone(rows=went, records=records))

    def redid(self, name: str, undone: Undone, after: Tree, entries: "Entries") -> None:
        """An undo of calls was taken back, and this was said."""
        member = self.members[name]
        written, _ = self.carried_out(name, after)
        left = {path for path, each in entries.items() if each.outcome in LEFT}
        back = [row for row in undone.rows if row.record.path not in left]
        member.out.difference_update(back)
        member.undone.remove(undone)
        undid = [record for record in undone.records if record.path not in left]
        self.void |= {*undid, *written}
        rest = [row for row in undone.rows if row.record.path in left]
        if rest:
            kept = [record for record in undone.records if record.path in left]
            member.undone.append(Undone(rows=rest, records=kept))

    def before(self, name: str, place: Place) -> list[Row]:
        """What a session did before a place."""
        return _by_age(row for row in self.members[name].rows if not row.is_after(place))

    def unreverting(self, name: str) -> list[Row]:
        """What an unrevert undoes: all that pending reverts wrote."""
        return _by_age(_written(self.members[name].pending))

    def carried_out(self, name: str, after: Tree) -> tuple[list[Record], list[Record]]:
        """A plan changed the files to this; what it wrote, and the folders that it made."""
        changes = {path: after.files.get(path) for path in self.tree.differences(after)}
        self.look(changes)
        self._held = set(changes)
        made = self.write(changes)
        self.tree = after.copy()
        self._held = set()
        records = [self._settle(path, "plan", frozenset((name,))) for path in sorted(changes)]
        kept = [record for record in records if record is not None]
        return kept, [self._folder(name, each) for each in made]

    def reverted(
        self,
        name: str,
        place: Place,
        wanted: Wanted,
        after: Tree,
        entries: "Entries",
        earlier: tuple[list[Record], list[Record]] = ([], []),
    ) -> None:
        """A revert was carried out and said this; some of it perhaps before a crash."""
        member = self.members[name]
        records, made = self.carried_out(name, after)
        records, made = [*earlier[0], *records], [*earlier[1], *made]
        done = Done(
            number=self.now,
            place=place,
            wanted=wanted,
            records=records,
            made=made,
            left=frozenset(path for path, each in entries.items() if each.outcome in LEFT),
            observed=frozenset(path for path, each in entries.items() if each.source == "observed"),
        )
        member.pending.append(done)
        if not wanted.hides:
            self._own_up(member, done)

    def _own_up(self, member: Member, done: Done) -> None:
        """What was written without hiding messages is a change of the session."""
        if member.messages:
            pos, order = member.messages[-1].pos, self._order()
            member.rows += [Row(pos, order, each, done) for each in done.records]
            member.rows += [Row(pos, order, each, done, is_folder=True) for each in done.made]

    def unreverted(self, name: str, after: Tree, entries: "Entries") -> None:
        """An unrevert was carried out and said this; what it had to leave can be tried again."""
        member = self.members[name]
        written, _ = self.carried_out(name, after)
        pending, member.pending = member.pending, []
        member.rows = [row for row in member.rows if row.plan not in pending]
        left = {path for path, each in entries.items() if each.outcome in LEFT}
        undone = [record for done in pending for record in done.records]
        put_back = {record.path for record in written} - left
        self.void |= {record for record in (*undone, *written) if record.path in put_back}
        for done in pending:
            kept = [each for each in done.records if each.path in left]
            if kept:
                over = {folder for path in left for folder in above(path)}
                made = [each for each in done.made if each.path in over]
                wanted = replace(done.wanted, scope="files")
                narrowed = replace(done, wanted=wanted, records=kept, made=made)
                member.pending.append(narrowed)
                self._own_up(member, narrowed)

    # What an operation comes to.

    def changes(self, op: Op, actor: str) -> Changes:
        """What an operation of somebody comes to now; empty if it makes no sense."""
        changes = self._changes(op, actor)
        return {
            path: state for path, state in changes.items() if self.tree.files.get(path) != state
        }

    def _changes(self, op: Op, actor: str) -> Changes:
        match op:
            case Write(path, mode):
                return self._put(path, self._text(actor, mode))
            case Link(path):
                target = File(self._line(actor, "link").strip(), stat.S_IFLNK | 0o777)
                return self._put(path, target)
            case Binary(path):
                content = self._line(actor, "binary\0")
                return self._put(path, File(content, stat.S_IFREG | 0o644))
            case Empty(path):
                return self._put(path, File(b"", stat.S_IFREG | 0o644))
            case Delete(path):
                return {each: None for each in (path, *self.tree.below(path)) if self._is(each)}
            case Move() | Copy():
                return self._moved(op)
            case Rewind(path, back):
                old = self._versions.get(path, [])
                return self._put(path, old[-1 - back]) if len(old) > back else {}
        return self._edited(op, actor)

    def _is(self, path: str) -> bool:
        return path in self.tree.files

    def _put(self, path: str, file: File) -> Changes:
        """Put a file at a path; what is in its way goes."""
        gone = [each for each in (*above(path), *self.tree.below(path)) if self._is(each)]
        return {**dict.fromkeys(gone), path: file}

    def _moved(self, op: Move | Copy) -> Changes:
        near = (op.path, *above(op.path)), (op.to, *above(op.to))
        if op.path in near[1] or op.to in near[0]:
            return {}
        whole = isinstance(op, Move) and op.path in self.tree.folders
        moved = self.tree.below(op.path) if whole else [op.path] if self._is(op.path) else []
        changes: Changes = dict.fromkeys(moved) if isinstance(op, Move) else {}
        for path in moved:
            changes |= self._put(op.to + path.removeprefix(op.path), self.tree.files[path])
        return changes

    def _edited(self, op: Slot | Patch | Chmod, actor: str) -> Changes:
        file = self.tree.files.get(op.path)
        if file is None or not file.is_regular:
            return {}
        if isinstance(op, Chmod):
            return {op.path: replace(file, mode=stat.S_IFREG | op.mode)}
        text = list(lines(file.content))
        if isinstance(op, Patch):
            text[op.at : op.at + op.cut] = [self._line(actor, "line")]
        else:
            marks = [number for number, line in enumerate(text) if b" mark" in line]
            if len(marks) < op.slot + 2:
                return {}
            fresh = [self._line(actor, "line") for _ in range(op.count)]
            text[marks[op.slot] + 1 : marks[op.slot + 1]] = fresh
        return {op.path: replace(file, content=b"".join(text))}

    def _text(self, actor: str, mode: int) -> File:
        text = [self._line(actor, "mark")]
        for _ in range(SLOTS):
            text += [self._line(actor, "line"), self._line(actor, "mark")]
        return File(b"".join(text), stat.S_IFREG | mode)

    def _line(self, actor: str, what: str) -> bytes:
        self._lines += 1
        return b"%d %s %s\n" % (self._lines, actor.encode(), what.encode())


@dataclass(frozen=True, slots=True)
class Entry:
    """What a receipt says of one path."""

    outcome: str
    reason: str | None
    source: str


Entries: TypeAlias = dict[str, Entry]


def _by_age(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.record.number)


def _written(plans: Iterable[Done]) -> list[Row]:
    return [
        Row(0, 0, record, done, is_folder=is_folder)
        for done in plans
        for records, is_folder in ((done.records, False), (done.made, True))
        for record in records
    ]


def is_behind_link(tree: Tree, paths: Iterable[str]) -> bool:
    """Whether a symlink is on the way to a path: what a tool names there is another file."""
    files = [tree.files[each] for path in paths for each in above(path) if each in tree.files]
    return any(not file.is_regular for file in files)


def again(tree: Tree, changes: Changes) -> Changes:
    """The same changes after somebody came in between; nothing if there is no room any more."""
    gone = {path for path, state in changes.items() if state is None}
    if gone & tree.folders:
        return {}
    for path in changes.keys() - gone:
        in_the_way = {each for each in (*above(path), *tree.below(path)) if each in tree.files}
        if in_the_way - gone:
            return {}
    return changes


def missing_folders(tree: Tree, paths: Iterable[str]) -> set[str]:
    """The folders that have to be made on the way to paths where nothing is."""
    absent = [path for path in paths if path not in tree.files]
    return {folder for path in absent for folder in above(path)} - tree.folders


def standing_by_path(world: World, name: str) -> dict[str, list[Row]]:
    """The changes of a session that no pending revert took out, by path, oldest first."""
    found: dict[str, list[Row]] = {}
    for row in _by_age(world.members[name].standing()):
        if not row.is_folder:
            found.setdefault(row.record.path, []).append(row)
    return {path: rows for path, rows in found.items() if any(_is_own(row) for row in rows)}


def others(world: World, own: Sequence[Record]) -> list[Record]:
    """What others did to the path of some changes."""
    return [each for each in world.everything() if each.path == own[0].path and each not in own]


def _is_own(row: Row) -> bool:
    return row.record.source in OWN
