"""The rounds of the fuzzer: changes beside snapshots, then a pause in which all is compared."""

import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, Protocol

from kedge.domain.errors import SnapshotError
from kedge.domain.file_states import Present
from kedge.snapshot import Snapshots
from kedge.snapshot.values import Snapshot
from kedge.snapshot.worktree import seed as seeding
from tests.snapshot_fuzz.disk import Fingerprint, Leaf, fingerprint, with_hidden_names
from tests.snapshot_fuzz.git import ask_git
from tests.snapshot_fuzz.mutator import Burst, Mutator, Paused, Places
from tests.snapshot_fuzz.oracle import Listing, read_worktree
from tests.snapshot_fuzz.report import Finding
from tests.snapshot_fuzz.verdicts import Restore, judge_changes, read_disk

Way = Literal["inotify", "scan"]
Kind = Literal["git", "plain"]

LIMIT = 50_000
"""Files of more bytes are not covered; small, so that the mutator often crosses it."""
_VERIFY_EVERY = 10
_FIRST_EVERY = 10
_RESTORE_EVERY = 20
_REOPEN_EVERY = 50
_FLOOD_EVERY = 50
_REMEMBERED = 40


class Opener(Protocol):
    """Opens the snapshots under test, with `LIMIT` as the size limit."""

    def __call__(self, root: Path, data: Path, *, way: Way) -> Snapshots: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot and the worktree that it was taken of."""

    snapshot: Snapshot
    listing: Listing


@dataclass(slots=True)
class Counts:
    """What a run came to."""

    rounds: int = 0
    operations: int = 0
    files: int = 0
    """The most files at a pause."""
    beside: int = 0
    """Snapshots taken while the worktree was changing."""
    unstable: int = 0
    """Those of them that list unstable paths."""
    refused: int = 0
    """Those that were not taken, for a reason that was said."""
    restores: int = 0
    firsts: int = 0
    """First snapshots."""
    seeded: int = 0
    """Blobs that these took from the packs of the repository."""
    blind: int = 0
    """Pauses at which a file had been written through a name that no watch can see."""

    def line(self) -> str:
        """The counts for people."""
        return (
            f"{self.rounds} rounds, {self.operations} operations, at most {self.files} files;"
            f" {self.beside} snapshots beside them ({self.unstable} with unstable paths,"
            f" {self.refused} refused), {self.restores} restores, {self.firsts} first snapshots"
            f" ({self.seeded} blobs from packs), {self.blind} blind pauses"
        )


@dataclass(slots=True, kw_only=True)
class Fuzz:
    """A worktree that one process changes while another takes snapshots of it."""

    folder: Path
    """An empty folder, for the worktree, the snapshots and what else is needed."""
    seed: int
    way: Way
    kind: Kind
    opener: Opener
    counts: Counts = field(default_factory=Counts)
    _snapshots: Snapshots = field(init=False)
    _mutator: Mutator = field(init=False)
    _empty: Snapshot = field(init=False)
    _taken: list[Taken] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make the worktree and start the mutator; both snapshots and mutator end with it."""
        outside = self.folder / "outside"
        for folder in (self.root, outside):
            folder.mkdir(parents=True)
        if self.kind == "git":
            ask_git([b"init", b"-q"], folder=bytes(self.root))
        places = Places(root=bytes(self.root), outside=bytes(outside), limit=LIMIT)
        with Mutator(places) as self._mutator:
            self._snapshots = self._open()
            try:
                self._empty = self._snapshots.track()
                self._compare(Paused(log=[]))
                yield
            finally:
                self._snapshots.close()

    def round(self) -> None:
        """One burst of changes beside snapshots, then the comparison; raises `Mismatch`."""
        number = self.counts.rounds
        dice = Random(f"{self.seed}:{number}:round")
        flood = number % _FLOOD_EVERY == _FLOOD_EVERY - 1
        burst = Burst(seed=f"{self.seed}:{number}", operations=dice.randrange(1, 40), floods=flood)
        self._mutator.start(burst)
        # Sometimes the changes must pile up: all in one look, or more than the queue holds.
        if not flood and dice.random() < 0.7:
            self._track_beside()
        paused = self._mutator.wait()
        self._note(paused.log)
        self._compare(paused)
        if number % _VERIFY_EVERY == _VERIFY_EVERY - 1:
            self._verify(paused)
        if self.kind == "git" and number % _FIRST_EVERY == _FIRST_EVERY - 1:
            self._take_first(paused)
        if number % _RESTORE_EVERY == _RESTORE_EVERY - 1:
            self._restore(dice.choice(self._taken), paused)
        if number % _REOPEN_EVERY == _REOPEN_EVERY - 1:
            self._reopen(paused)
        self.counts.rounds += 1
        self.counts.operations += len(paused.log)

    def _note(self, lines: Iterable[str]) -> None:
        with open(self.folder / "operations.log", "a") as file:
            file.writelines(f"{self.counts.rounds}: {line}\n" for line in lines)

    def _open(self) -> Snapshots:
        return self.opener(self.root, self.folder / "data", way=self.way)

    def _track_beside(self) -> None:
        while not self._mutator.has_paused():
            try:
                beside = self._snapshots.track()
            except SnapshotError as error:
                self.counts.refused += 1
                self._note([f"refused: {error!r}"])
            else:
                self.counts.unstable += bool(beside.unstable)
            self.counts.beside += 1

    def _compare(self, paused: Paused) -> None:
        """Nobody changes anything now: the snapshot must be what the oracle reads."""
        before = fingerprint(bytes(self.root))
        snapshot = self._snapshots.track(session="ses_fuzz" if len(self._taken) % 7 == 0 else None)
        listing = read_worktree(bytes(self.root), LIMIT)
        if self._is_blind(snapshot, listing, paused):
            self.counts.blind += 1
            self._snapshots.verify()
            snapshot = self._snapshots.track()
        touched = _differences(before, fingerprint(bytes(self.root)))
        now = Taken(snapshot, listing)
        self.counts.files = max(self.counts.files, len(now.listing.files))
        complaints = [f"track touched {path!r}" for path in touched]
        if snapshot.unstable:
            complaints.append(f"unstable though nothing changes: {snapshot.unstable}")
        if snapshot.id != now.listing.tree:
            complaints.append(f"the tree is {snapshot.id}, but should be {now.listing.tree}")
        if self._taken:
            last = self._taken[-1]
            said = self._snapshots.changes(last.snapshot, snapshot)
            complaints += judge_changes(said, last.listing, now.listing)
        self._complain(complaints, paused, now)
        self._taken = [*self._taken[-_REMEMBERED:], now]

    def _is_blind(self, snapshot: Snapshot, listing: Listing, paused: Paused) -> bool:
        """Whether all that is wrong was written through names that no watch can see.

        Such a name of a file is outside of the worktree, in an ignored folder, or gone again.
        """
        if self.way != "inotify":
            return False
        said = self._snapshots.changes(self._empty, snapshot)
        held = {each.path: each.after for each in said if isinstance(each.after, Present)}
        hidden = with_hidden_names(bytes(self.root), listing.files, paused.links)
        wrong = {path for path, leaf in listing.files.items() if held.get(path) != _state(leaf)}
        return held.keys() == listing.files.keys() and set() < wrong <= hidden

    def _verify(self, paused: Paused) -> None:
        """A full comparison finds nothing that was not noticed."""
        now = self._taken[-1]
        hidden = with_hidden_names(bytes(self.root), now.listing.files, paused.links)
        missed = [path for path in self._snapshots.verify() if path not in hidden]
        self._complain([f"verify: {path!r} had not been noticed" for path in missed], paused, now)

    def _take_first(self, paused: Paused) -> None:
        """A first snapshot, which takes what it can from the packs, is the same as any other."""
        # In some states git refuses; then there is less to take.
        for words in ([b"add", b"-A"], [b"repack", b"-q", b"-a", b"-d"]):
            ask_git(words, folder=bytes(self.root), good=range(256))
        data = self.folder / "first"
        with everything_seeded(), self.opener(self.root, data, way=self.way) as snapshots:
            first = snapshots.track()
            self.counts.seeded += snapshots.status().seeded
        self.counts.firsts += 1
        now = Taken(first, read_worktree(bytes(self.root), LIMIT))
        if first.id != now.listing.tree:
            told = f"the first snapshot is {first.id}, but should be {now.listing.tree}"
            self._complain([told], paused, now)
        shutil.rmtree(data)

    def _restore(self, wanted: Taken, paused: Paused) -> None:
        """Put an earlier worktree back, look at every path, then compare as after any change."""
        found = self._taken[-1]
        disk = read_disk(bytes(self.root))
        results = self._snapshots.restore(wanted.snapshot)
        restore = Restore(
            wanted=wanted.listing,
            found=found.listing,
            disk_before=disk,
            disk_after=read_disk(bytes(self.root)),
            results={each.path: each for each in results},
        )
        now = Taken(wanted.snapshot, read_worktree(bytes(self.root), LIMIT))
        self._complain([f"restore: {each}" for each in restore.complaints()], paused, now)
        self.counts.restores += 1
        self._compare(paused)

    def _reopen(self, paused: Paused) -> None:
        """A new start finds the same tree, and what was taken before."""
        self._snapshots.close()
        self._snapshots = self._open()
        self._compare(paused)

    def _complain(self, complaints: Iterable[str], paused: Paused, now: Taken) -> None:
        """Raise if there is anything to complain of."""
        if not (found := list(complaints)):
            return
        finding = Finding(
            command=self.command(),
            complaints=found,
            log=paused.log,
            oracle=now.listing,
            snapshot=self._snapshots.changes(self._empty, now.snapshot),
        )
        raise finding.mismatch()

    def command(self) -> str:
        """What to type to see the run again up to this round."""
        words = ["python", "-m", "tests.snapshot_fuzz", "--root-folder", "NEW-FOLDER"]
        words += ["--seed", str(self.seed), "--rounds", str(self.counts.rounds + 1)]
        return shlex.join([*words, "--way", self.way, "--kind", self.kind])


@contextmanager
def everything_seeded() -> Iterator[None]:
    """First snapshots take blobs from packs however few there are."""
    fewest, seeding.FEWEST_FILES = seeding.FEWEST_FILES, 0
    try:
        yield
    finally:
        seeding.FEWEST_FILES = fewest


def _state(leaf: Leaf) -> Present:
    return Present(leaf.blob, leaf.mode)


def _differences(before: Fingerprint, after: Fingerprint) -> list[bytes]:
    paths = before.keys() | after.keys()
    return sorted(path for path in paths if before.get(path) != after.get(path))
