"""Two processes' worth of stores, driven at random, against a plain model of what is held."""

import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kedge.snapshot.objects import journals
from kedge.snapshot.objects.formats import BLOB, EMPTY_TREE, TREE, blob_id, encode_tree
from kedge.snapshot.objects.gc import RELEASED_SECONDS
from kedge.snapshot.objects.store import ObjectStore
from tests.snapshot.objects_git import FILE, check, read_files
from tests.snapshot.test_objects_keeps import SetClock

WEEK = 7 * 86400.0

which = st.integers(0, 1)
sessions = st.sampled_from(["a", "b", "c"])


@dataclass
class Writer:
    """A store with its tree in memory, and what it did since it last flushed."""

    store: ObjectStore
    tree: dict[bytes, bytes] = field(default_factory=dict)
    undone: list[tuple[str, set[bytes], set[bytes]]] = field(default_factory=list)
    """Per step: the session, trees that it then holds, trees that it then holds no more."""
    flushed: dict[bytes, bytes] = field(default_factory=dict)
    releasing: set[str] = field(default_factory=set)
    """Sessions whose release nobody else can know of yet."""


class Stores(RuleBasedStateMachine):
    """Keeps, releases, crashes and collections in any order lose nothing that was flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SetClock()
        self.clock.seconds = 4_000_000_000
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "s"
        self.limit, journals.SEAL_OBJECTS = journals.SEAL_OBJECTS, 25
        self.writers = [Writer(self.open()), Writer(self.open())]
        self.held: dict[str, set[bytes]] = defaultdict(set)
        self.contents: dict[bytes, dict[bytes, bytes]] = {}
        self.count = 0

    def open(self) -> ObjectStore:
        """A store of which all packs are old, and whose commits are the same in every run."""
        return ObjectStore(self.folder, clock=self.clock)

    @rule(which=which, session=st.none() | sessions, name=st.sampled_from([b"f", b"g", b"h"]))
    def keep(self, which: int, session: str | None, name: bytes) -> None:
        """Change one file and keep the tree; what did not change is not put again."""
        writer = self.writers[which]
        self.count += 1
        writer.tree = writer.tree | {name: b"%d" % self.count}
        writer.store.put(BLOB, writer.tree[name])
        entries = [(name, FILE, blob_id(content)) for name, content in writer.tree.items()]
        tree = writer.store.put(TREE, encode_tree(entries))
        base = writer.store.put(BLOB, b"644 755")
        writer.store.keep(session, files=tree, notes=EMPTY_TREE, base=base)
        self.contents[tree] = writer.tree
        if session is not None and session not in self.writers[1 - which].releasing:
            writer.undone.append((session, {tree}, set()))

    @rule(which=which, session=sessions)
    def release(self, which: int, session: str) -> None:
        """Release what this process can know of a session."""
        writer = self.writers[which]
        known = self.held[session].union(
            *(trees for name, trees, _ in writer.undone if name == session)
        )
        writer.store.release(session)
        writer.undone.append((session, set(), known))
        writer.releasing.add(session)
        # What others keep without knowing of a release may go with it, or may stay.
        other = self.writers[1 - which]
        other.undone = [step for step in other.undone if step[0] != session or not step[1]]

    @rule(which=which)
    def flush(self, which: int) -> None:
        """From now on it counts."""
        self.writers[which].store.flush()
        self._count(self.writers[which])

    def _count(self, writer: Writer) -> None:
        for session, more, less in writer.undone:
            self.held[session] = (self.held[session] | more) - less
        writer.undone.clear()
        writer.releasing.clear()
        writer.flushed = writer.tree

    @rule(which=which, keep_taken_for=st.sampled_from([0.0, WEEK]))
    def collect(self, which: int, keep_taken_for: float) -> None:
        """Collect, which flushes too."""
        self.writers[which].store.collect(keep_taken_for=keep_taken_for)
        self._count(self.writers[which])

    @rule()
    def wait(self) -> None:
        """A day passes, in which nobody leaves anything buffered."""
        for which in (0, 1):
            self.flush(which)
        self.clock.seconds += RELEASED_SECONDS + 1

    @rule(which=which)
    def reopen(self, which: int) -> None:
        """One process ends in order, another begins."""
        self.writers[which].store.close()
        self._count(self.writers[which])
        self.writers[which] = Writer(self.open())

    @rule(which=which)
    def crash(self, which: int) -> None:
        """One process ends at once: its locks are gone, and so is what it had not flushed."""
        self.writers[which].store.settle()
        self.writers[which].store.forget_parent()
        self.writers[which] = Writer(self.open())

    @invariant()
    def all_that_is_held_is_there(self) -> None:
        """Every process reads every snapshot that is held, and its own newest."""
        for writer in self.writers:
            for session, trees in self.held.items():
                released = set().union(
                    *(less for name, _, less in writer.undone if name == session)
                )
                assert trees - released <= {keep.files for keep in writer.store.chain(session)}
                for tree in trees:
                    assert read_files(writer.store, tree) == self.contents[tree]
            for content in (*writer.tree.values(), *writer.flushed.values()):
                assert writer.store.read(blob_id(content)) == (BLOB, content)
            assert writer.store.problems() == []

    def teardown(self) -> None:
        """Git agrees in the end."""
        try:
            for writer in self.writers:
                writer.store.close()
            with self.open() as store:
                store.settle()
            check(self.folder)
        finally:
            journals.SEAL_OBJECTS = self.limit
            self.temporary.cleanup()


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=max(5, settings().max_examples // 5),  # each step syncs the disk
    stateful_step_count=25,
)
