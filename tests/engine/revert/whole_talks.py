"""Conversations in memory: which change belongs to which message or call, and what a final revert
leaves of them."""

from dataclasses import dataclass, field, replace

from kedge.domain.receipts import RevertScope, RevertStrategy
from tests.engine.revert.plan_model import Record
from tests.engine.revert.plan_trees import prefixes


@dataclass(frozen=True)
class Place:
    """Where in a conversation a revert can go back to: a message, or a call in it."""

    pos: int
    part: str | None
    number: int
    """The last thing that had happened when the conversation came here."""

    def is_before(self, row: "Row") -> bool:
        """Whether a change came at this place or later."""
        if row.pos != self.pos:
            return row.pos > self.pos
        return self.part is None or row.part >= self.part

    @property
    def first_gone(self) -> int:
        """The position of the first message that goes as a whole."""
        return self.pos if self.part is None else self.pos + 1


@dataclass(frozen=True, eq=False)
class Row:
    """A change of a session, or a folder that a declared call of it made."""

    pos: int
    part: str
    number: int
    path: bytes
    record: Record | None
    """None for a folder."""
    plan: "Done | None" = None
    """The files-only revert that wrote it."""


@dataclass
class Talk:
    """A message, and the calls in it."""

    id: str
    place: Place
    is_prompt: bool
    calls: list[Place] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How a revert is to be done."""

    strategy: RevertStrategy = "merge"
    scope: RevertScope = "all"
    files: tuple[bytes, ...] | None = None

    @property
    def hides(self) -> bool:
        """Whether messages are to be hidden."""
        return self.scope != "files"

    def includes(self, path: bytes) -> bool:
        """Whether a path may be touched."""
        if self.scope == "messages":
            return False
        return self.files is None or any(each in (path, *prefixes(path)) for each in self.files)


@dataclass(frozen=True, kw_only=True, eq=False)
class Done:
    """A revert that can still be taken back."""

    number: int
    """When it was carried out."""
    boundary: Place
    wanted: Wanted
    records: list[Record]
    """What it wrote."""
    made: list[bytes]
    """Folders that it had to make."""
    left: set[bytes]
    """Paths that it left as they were, though they were asked for."""
    observed: set[bytes]
    """Paths of which it said that changes were only observed."""


@dataclass
class Member:
    """A session."""

    name: str
    rows: list[Row] = field(default_factory=list)
    pending: list[Done] = field(default_factory=list)
    talks: list[Talk] = field(default_factory=list)
    seen: dict[bytes, str | None] = field(default_factory=dict)
    """What it knows of paths: a blob, or that nothing was there."""
    out: set[Record] = field(default_factory=set)
    """What undos of chosen calls have taken out of the files."""
    acts: set[Record] = field(default_factory=set)
    """What undos and redos of chosen calls wrote."""
    has_chosen: bool = False
    """Whether calls of it were ever undone or redone by choice."""

    @property
    def hides(self) -> bool:
        """Whether messages are hidden."""
        return any(done.wanted.hides for done in self.pending)

    def since(self, boundary: Place) -> list[Row]:
        """What it changed since, as it happened."""
        rows = [row for row in self.rows if boundary.is_before(row) and row.record not in self.out]
        return sorted(rows, key=lambda row: row.number)

    def places(self) -> list[tuple[str, str | None, Place]]:
        """All that can be reverted to: ids of message and call, and where that leads."""
        found: list[tuple[str, str | None, Place]] = []
        prompt: Place | None = None
        for talk in self.talks:
            if talk.is_prompt or prompt is None:
                prompt = talk.place
            found.append((talk.id, None, prompt))
            for index, call in enumerate(talk.calls):
                # Before its first call nothing of a message is worth keeping.
                found.append((talk.id, call.part, call if index else prompt))
        return found

    def make_final(self) -> None:
        """What is hidden leaves the conversation; changes that were not undone stay with it."""
        if self.hides:
            boundary = [done for done in self.pending if done.wanted.hides][-1].boundary
            self._cut(boundary)
            # What no message is left for comes before all that follow.
            home = self.talks[-1].place if self.talks else boundary
            # A revert of some files only may have left others undone of messages that stay.
            self.rows = [
                replace(row, pos=home.pos) if boundary.is_before(row) else row
                for row in self.rows
                if not self.is_hidden(row)
                and not (row.record in self.out and boundary.is_before(row))
            ]
            self.out &= {row.record for row in self.rows}
            self.seen = {}
        self.pending = []

    def _cut(self, boundary: Place) -> None:
        self.talks = [talk for talk in self.talks if talk.place.pos < boundary.first_gone]
        if boundary.part is not None:
            last = self.talks[-1]
            last.calls = [call for call in last.calls if (call.part or "") < boundary.part]

    def _goes_undone(self, row: Row, boundary: Place) -> bool:
        return row.record in self.out and boundary.is_before(row)

    def is_hidden(self, row: Row) -> bool:
        """Whether a pending revert took a change out: the last that put its path back says."""
        for done in reversed(self.pending):
            looked = done.wanted.hides and done.wanted.includes(row.path)
            if looked and row.path not in done.left and row.number <= done.number:
                return done.boundary.is_before(row)
        return False
