"""Sessions and a person change one worktree in any order, and revert: nobody loses work.

All in memory: what is looked at is the planner alone.
"""

import os
import stat
from collections.abc import Mapping
from typing import get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kedge.domain.file_states import Absent, Present
from kedge.domain.receipts import RevertStrategy
from kedge.engine.revert.merge import Source
from tests.engine.revert.plan_documents import SLOTS, document, slots_of, split
from tests.engine.revert.plan_judge import judge
from tests.engine.revert.plan_model import PERSON, World, clearing
from tests.engine.revert.plan_trees import LINK, State

LONG = bool(os.environ.get("KEDGE_TORTURE"))
PATHS = [b"a", b"a/b", b"a/b/c", b"d", b"d/x", b"d/y", b"e", b"f"]
OLD = [b"a/b", b"d", b"e", b"f"]
MODES = [0o644, 0o755, 0o600]
LONGEST = 12

choices = st.integers(0, 999)
paths = st.sampled_from(PATHS)
sources = st.sampled_from([Source.DECLARED, Source.OBSERVED])
strategies = st.sampled_from(["merge", "merge", *get_args(RevertStrategy)])


class Editors(RuleBasedStateMachine):
    """Everybody edits lines and permissions of the same files; each undoing is judged at once."""

    @initialize(sessions=st.integers(2, 4), files=st.sets(st.sampled_from(OLD), min_size=1))
    def begin(self, sessions: int, files: set[bytes]) -> None:
        """A few sessions, and some files from before them."""
        names = [f"s{number}" for number in range(sessions)]
        empty: tuple[bytes, ...] = ()
        texts = {path: document((empty,) * SLOTS) for path in sorted(files)}
        self.world = World(names, texts)
        self.actors = [*names, PERSON]

    def do(self, who: int, changes: Mapping[bytes, State], source: Source) -> None:
        """Make changes; now and then nobody can say whose they are."""
        actor = self.actors[who % len(self.actors)]
        other = self.actors[who // 10 % len(self.actors)]
        if who > 900 and PERSON not in (actor, other) and actor != other:
            self.world.do_together([actor, other], changes)
        else:
            self.world.do(actor, changes, source)

    def actor(self, who: int) -> str:
        """Whose name is in the lines; what is shared is in nobody's."""
        return "nobody" if who > 900 else self.actors[who % len(self.actors)]

    def files(self) -> list[bytes]:
        """All regular files."""
        files = self.world.tree.files.items()
        return sorted(path for path, state in files if stat.S_ISREG(state.mode))

    def has_files(self) -> bool:
        return bool(self.files())

    @rule(edits=st.lists(st.tuples(choices, choices, choices), min_size=1))
    def edit(self, edits: list[tuple[int, int, int]]) -> None:
        """Replace what is in one slot of a file, mostly one of one's own, some times."""
        for who, which, slot in edits:
            if self.has_files():
                own = (who if slot > 99 else slot) % SLOTS
                self.edit_slot(who, which, own)

    def edit_slot(self, who: int, which: int, slot: int) -> None:
        path, state, content = self.text(which)
        slots = slots_of(content)
        if slots is not None:
            count = which // 10 % 3
            fresh = tuple(self.world.lines.fresh(self.actor(who)) for _ in range(count))
            new = document((*slots[:slot], fresh, *slots[slot + 1 :]))
            self.do(who, {path: self.world.blobs.file(new, state.mode)}, Source.DECLARED)

    def text(self, which: int) -> tuple[bytes, Present, bytes]:
        """Some regular file, its state and its content."""
        files = self.files()
        path = files[which % len(files)]
        state = self.world.tree.files[path]
        return path, state, self.world.blobs[state.blob]

    @precondition(has_files)
    @rule(who=choices, which=choices, mode=st.sampled_from(MODES))
    def change_mode(self, who: int, which: int, mode: int) -> None:
        """Change a file's permissions."""
        path, state, _ = self.text(which)
        new = Present(state.blob, stat.S_IFREG | mode)
        self.do(who, {path: new}, Source.OBSERVED)

    @rule(who=choices, back=st.integers(0, 8), strategy=strategies)
    def revert(self, who: int, back: int, strategy: RevertStrategy) -> None:
        """Revert a session, or move the boundary of its revert."""
        name = self.session(who)
        judge(self.world, self.world.revert(name, self.boundary(name, back), strategy))

    @precondition(lambda self: any(each.pending for each in self.world.sessions.values()))
    @rule(who=choices, strategy=strategies)
    def unrevert(self, who: int, strategy: RevertStrategy) -> None:
        """Undo a session's revert."""
        reverted = [name for name, each in self.world.sessions.items() if each.pending]
        judge(self.world, self.world.unrevert(reverted[who % len(reverted)], strategy))

    @rule(who=choices, back=st.integers(0, 8), strategy=strategies)
    def revert_files(self, who: int, back: int, strategy: RevertStrategy) -> None:
        """Take a session's changes back and go on."""
        name = self.session(who)
        self.world.prompt(name)
        judge(self.world, self.world.revert_files(name, self.boundary(name, back), strategy))

    def session(self, who: int) -> str:
        """The name of some session, of one that did something if there is one."""
        busy = [name for name, each in self.world.sessions.items() if each.changes]
        names = busy or list(self.world.sessions)
        return names[who % len(names)]

    def boundary(self, name: str, back: int) -> int:
        """Before one of the last changes of a session."""
        numbers = sorted({each.number for each in self.world.sessions[name].changes})
        return numbers[-1 - back % len(numbers)] - 1 if numbers else self.world.now


class Everybody(Editors):
    """Everybody also writes, patches, deletes, moves and links, files in place of folders too."""

    @rule(who=choices, path=paths, source=sources, mode=st.sampled_from(MODES))
    def write(self, who: int, path: bytes, source: Source, mode: int) -> None:
        """Write a whole file; what is in its way, a file or a folder, goes."""
        fresh = [self.world.lines.fresh(self.actor(who)) for _ in range(SLOTS)]
        content = document(tuple((line,) for line in fresh))
        state = self.world.blobs.file(content, stat.S_IFREG | mode)
        self.do(who, {**clearing(self.world.tree, path), path: state}, source)

    @precondition(Editors.has_files)
    @rule(who=choices, which=choices, at=st.integers(0, LONGEST), cut=st.integers(0, 3))
    def patch(self, who: int, which: int, at: int, cut: int) -> None:
        """Replace some lines anywhere in a file by one line."""
        path, state, content = self.text(which)
        lines = split(content)
        lines[at : at + cut] = [self.world.lines.fresh(self.actor(who))]
        new = self.world.blobs.file(b"".join(lines), state.mode)
        self.do(who, {path: new}, Source.OBSERVED)

    @precondition(lambda self: self.world.tree.files)
    @rule(who=choices, which=choices, source=sources)
    def delete(self, who: int, which: int, source: Source) -> None:
        """Delete a file or a symlink."""
        files = sorted(self.world.tree.files)
        self.do(who, {files[which % len(files)]: Absent()}, source)

    @precondition(lambda self: self.world.tree.files)
    @rule(who=choices, which=choices, to=paths)
    def rename(self, who: int, which: int, to: bytes) -> None:
        """Move a file or a symlink; what is in its way goes."""
        files = sorted(self.world.tree.files)
        path = files[which % len(files)]
        state = self.world.tree.files[path]
        gone: dict[bytes, State] = {path: Absent()}
        self.do(who, {**gone, **clearing(self.world.tree, to), to: state}, Source.OBSERVED)

    @rule(who=choices, path=paths, to=st.sampled_from([b"a", b"d/x", b"../out"]))
    def link(self, who: int, path: bytes, to: bytes) -> None:
        """Put a symlink at a path; what is in its way goes."""
        state = self.world.blobs.file(to, LINK)
        self.do(who, {**clearing(self.world.tree, path), path: state}, Source.DECLARED)


TestEditors = Editors.TestCase
TestEditors.settings = settings(max_examples=5000 if LONG else 100, stateful_step_count=20)
TestEverybody = Everybody.TestCase
TestEverybody.settings = settings(max_examples=5000 if LONG else 200, stateful_step_count=30)
