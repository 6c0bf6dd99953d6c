"""Interrupted and disturbed writing: whatever happens at whichever system call, nobody's bytes are
lost, nothing outside is touched, and after the clean-up each path is old or new."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.errors import LeaseLost
from kedge.domain.file_states import FileStep, Outcome, Present, State
from kedge.snapshot.files.root import Root
from kedge.snapshot.files.steps import temporary_name
from kedge.snapshot.files.writer import clean_up
from tests.snapshot.files_world import (
    ABSENT,
    TAG,
    Killed,
    World,
    dying_at,
    file_system,
    step,
    watched,
)

KINDS = ["swapping", "linking", "plain"]


def _plan(world: World) -> list[FileStep]:
    """One step of every kind, laid out on disk as expected."""
    old, new = world.present(b"old"), world.present(b"new", 0o100755)
    steps = [
        step(0, b"gone/deep", world.present(b"deleted", 0o100600), ABSENT),
        step(1, b"fol\xffder/file", old, new),
        step(2, b"made/for/it", ABSENT, world.present(b"created")),
        step(3, b"was-file", old, world.link(b"../outside/canary")),
        step(4, b"was-link", world.link(b"../outside/canary"), new),
    ]
    for one in steps:
        world.lay(one.path, one.expect)
    return steps


def _interrupt(world: World, steps: list[FileStep], calls: int) -> bool:
    """Carry out the steps until so many system calls; whether that was the end of them."""
    try:
        with watched(dying_at(calls)):
            world.put(*steps)
    except Killed:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_at_any_system_call_leaves_every_path_old_or_new(kind: str, tmp_path: Path) -> None:
    """After the clean-up each path is as before or as wanted, and a second run finishes."""
    for calls in itertools.count():
        world = World(tmp_path / str(calls))
        steps = _plan(world)
        with file_system(kind):
            done = _interrupt(world, steps, calls)
            assert world.clean_up(*steps) == []
            assert world.own_names() == []
            for one in steps:
                if world.at(one.path).parent.exists():
                    assert _settled(world, one)
            assert {result.outcome for result in world.put(*steps)} <= {
                Outcome.RESTORED,
                Outcome.RECREATED,
                Outcome.DELETED,
                Outcome.UNCHANGED,
            }
        assert [world.state(one.path) for one in steps] == [one.want for one in steps]
        assert world.own_names() == []
        world.assert_outside_untouched()
        if done:
            break
    assert calls > 50


def _settled(world: World, one: FileStep) -> bool:
    return world.state(one.path) in (one.expect, one.want)


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_during_the_clean_up_is_cleaned_up_too(kind: str, tmp_path: Path) -> None:
    """The clean-up may be interrupted anywhere and begun again."""
    for calls, again in itertools.product(range(30, 120, 3), range(0, 60, 7)):
        world = World(tmp_path / f"{calls}-{again}")
        steps = _plan(world)
        with file_system(kind):
            _interrupt(world, steps, calls)
            try:
                with watched(dying_at(again)):
                    world.clean_up(*steps)
            except Killed:
                assert world.clean_up(*steps) == []
        assert world.own_names() == []
        assert all(_settled(world, one) for one in steps if world.at(one.path).parent.exists())
        shutil.rmtree(world.path)


@dataclass
class Editor:
    """Somebody at work on one path at given system calls; remembers what must not be lost."""

    world: World
    path: bytes
    moves: dict[int, str]
    precious: set[bytes] = field(default_factory=set)
    calls: int = 0
    newest: bytes | None = None

    def before(self) -> None:
        move = self.moves.get(self.calls)
        self.calls += 1
        if move is not None:
            getattr(self, move)(b"by the editor, %d" % self.calls)

    def save(self, data: bytes) -> None:
        """Write into the file that is there, or a new one."""
        self._clear(keep_file=True)
        if self._has_folder():
            self.world.at(self.path).write_bytes(data)
            self._wrote(data)

    def save_by_rename(self, data: bytes) -> None:
        self._clear(keep_file=True)
        if self._has_folder():
            beside = self.world.at(self.path).with_name("editors-own")
            beside.write_bytes(data)
            beside.replace(self.world.at(self.path))
            self._wrote(data)

    def delete(self, data: bytes) -> None:
        self._clear()
        self.newest = None

    def make_folder(self, data: bytes) -> None:
        self._clear()
        if self._has_folder():
            self.world.at(self.path).mkdir()
            (self.world.at(self.path) / "inner").write_bytes(data)
            self.precious.add(data)
            self.newest = None

    def make_link(self, data: bytes) -> None:
        self._clear()
        if self._has_folder():
            self.world.at(self.path).symlink_to(self.world.outside / "canary")
            self.newest = None

    def lead_folder_outside(self, data: bytes) -> None:
        """Move the folder away and put a symlink to the canary's in its place."""
        folder = self.world.at(self.path).parent
        if self._has_folder():
            folder.rename(self.world.path / f"moved-{self.calls}")
            folder.symlink_to(self.world.outside)
            self.newest = None

    def _has_folder(self) -> bool:
        folder = self.world.at(self.path).parent
        return folder.is_dir() and not folder.is_symlink()

    def _clear(self, *, keep_file: bool = False) -> None:
        """Knowingly give up what is at the path."""
        place = self.world.at(self.path)
        if not self._has_folder():
            return
        if place.is_dir() and not place.is_symlink():
            self.precious.discard((place / "inner").read_bytes())
            shutil.rmtree(place)
        elif place.is_symlink():
            place.unlink()
        elif place.exists():
            self.precious.discard(place.read_bytes())
            if not keep_file:
                place.unlink()

    def _wrote(self, data: bytes) -> None:
        self.precious.add(data)
        self.newest = data


MOVES = [
    "save",
    "save_by_rename",
    "delete",
    "make_folder",
    "make_link",
    "lead_folder_outside",
]
CHANGES = [
    ("file", "file"),
    ("file", "absent"),
    ("absent", "file"),
    ("file", "link"),
    ("link", "file"),
    ("link", "absent"),
    ("absent", "link"),
]


def _state(world: World, kind: str, data: bytes) -> State:
    if kind == "absent":
        return ABSENT
    return world.present(data) if kind == "file" else world.link(data)


@pytest.mark.parametrize("kind", ["swapping", "linking"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_bytes_are_lost_to_an_edit_at_any_system_call(
    change: tuple[str, str], kind: str, tmp_path: Path
) -> None:
    """Each way of editing, before each system call: what was saved is there afterwards."""
    for move in MOVES:
        for call in itertools.count():
            base = tmp_path / f"{move}-{call}"
            if not _disturb(base, change, kind, {call: move}, None):
                break
            shutil.rmtree(base)
        assert call > 6


@given(
    change=st.sampled_from(CHANGES),
    kind=st.sampled_from(["swapping", "linking"]),
    moves=st.dictionaries(st.integers(0, 45), st.sampled_from(MOVES), max_size=4),
    death=st.none() | st.integers(0, 45),
)
def test_no_bytes_are_lost_to_many_edits_and_a_crash(
    change: tuple[str, str], kind: str, moves: dict[int, str], death: int | None
) -> None:
    """Whatever somebody saved at any moment is on disk afterwards, unless they replaced it."""
    with TemporaryDirectory() as base:
        _disturb(Path(base), change, kind, moves, death)


def _disturb(
    base: Path, change: tuple[str, str], kind: str, moves: dict[int, str], death: int | None
) -> bool:
    """Carry out one step with these edits; whether it came as far as the last of them."""
    with file_system(kind):
        world = World(base)
        one = step(0, b"d/f", _state(world, change[0], b"old"), _state(world, change[1], b"new"))
        world.lay(one.path, one.expect)
        editor = Editor(world, one.path, moves)
        die = dying_at(-1 if death is None else death)

        def before() -> None:
            editor.before()
            die()

        with suppress(Killed), watched(before):
            world.put(one)
        _assert_nothing_lost(world, editor)
        if "lead_folder_outside" not in moves.values():
            world.clean_up(one)
            assert world.own_names() == []
        _assert_nothing_lost(world, editor)
        if len(moves) <= 2 and editor.newest is not None:
            assert world.at(one.path).read_bytes() == editor.newest
        world.assert_outside_untouched()
        return editor.calls > max(moves, default=0)


def _assert_nothing_lost(world: World, editor: Editor) -> None:
    held = set(world.contents()) | set(world.blobs.values())
    assert editor.precious <= held


@pytest.mark.parametrize("kind", ["swapping", "linking"])
@pytest.mark.parametrize("want", ["file", "nothing"])
def test_what_no_store_has_is_not_removed(kind: str, want: str, tmp_path: Path) -> None:
    """Where the store lacks what a step replaces, the clean-up leaves on disk whatever is there:
    what was replaced, put back or beside it, and what somebody saved, at whichever call."""
    for death, edit in itertools.product(range(4, 60), [None, *range(0, 60, 3)]):
        world = World(tmp_path / f"{death}-{edit}")
        old = world.present(b"old")
        one = step(0, b"f", old, world.present(b"new") if want == "file" else ABSENT)
        world.lay(b"f", old)
        editor = Editor(world, b"f", {} if edit is None else {edit: "save_by_rename"})
        die = dying_at(death)

        def before(editor: Editor = editor, die: Callable[[], None] = die) -> None:
            editor.before()
            die()

        with file_system(kind):
            with suppress(Killed), watched(before):
                world.put(one)
            held = {b"old"} & set(world.contents())
            results = world.clean_up(one, is_stored=lambda blob: False)
        found = set(world.contents())
        assert held | editor.precious <= found
        assert world.own_names() == []
        if world.at(b"f.kedge-plan_1-0").exists():
            assert "f.kedge-plan_1-0" in results[0].reason
        elif edit is None:
            assert results == []
        shutil.rmtree(world.path)


@pytest.mark.parametrize("kind", ["swapping", "linking"])
def test_an_older_save_is_kept_in_sight_beside_the_newer_one(kind: str, tmp_path: Path) -> None:
    """When two saves come while a file is replaced, the newer is in place and the other named."""
    found = set()
    for first, second in itertools.combinations(range(40), 2):
        world = World(tmp_path / f"{first}-{second}")
        old, new = world.present(b"old"), world.present(b"new")
        world.lay(b"f", old)
        editor = Editor(world, b"f", {first: "save_by_rename", second: "save_by_rename"})
        with file_system(kind), watched(editor.before):
            result = world.put_one(b"f", old, new)
        kept = world.at(b"f.kedge-plan_1-0")
        if kept.exists():
            found.add(result.outcome)
            assert kept.name in result.reason
            assert {kept.read_bytes()} == editor.precious - {editor.newest}
            assert world.at(b"f").read_bytes() == editor.newest
    assert found == {Outcome.CONFLICT}


_CHILD = """
import os, sys
from hashlib import sha1
from kedge.snapshot.files.root import Root
from kedge.snapshot.files.steps import FileStep
from kedge.snapshot.files.writer import Writer
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Present

def state(data): return Present(blob_id(data).hex(), 0o100644)
def content(blob):
    sys.stdout.write("."); sys.stdout.flush()
    return contents[blob]
steps = [FileStep(number=n, path=b"d%d/f%d" % (n % 7, n), expect=state(b"old %d" % n),
              want=state(b"new %d" % n)) for n in range(300)]
contents = {step.want.blob: b"new %d" % step.number for step in steps}
with Root(os.fsencode(sys.argv[1])) as root, Writer(root, content, tag="plan_1") as writer:
    writer.put(steps)
"""


@pytest.mark.parametrize("files", [1, 40, 111, 290])
def test_a_killed_process_leaves_only_old_and_new_files(files: int, tmp_path: Path) -> None:
    """SIGKILL somewhere in a run over many files: no mixture, no left-over after the clean-up."""
    world = World(tmp_path)
    steps = []
    for number in range(300):
        old, new = world.present(b"old %d" % number), world.present(b"new %d" % number)
        steps.append(step(number, b"d%d/f%d" % (number % 7, number), old, new))
        world.lay(steps[-1].path, old)
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, world.path], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.read(files)
        child.send_signal(signal.SIGKILL)
    assert world.clean_up(*steps) == []
    assert world.own_names() == []
    states = [world.state(one.path) for one in steps]
    assert all(state in (one.expect, one.want) for state, one in zip(states, steps, strict=True))
    assert all(isinstance(state, Present) for state in states)
    world.put(*steps)
    assert [world.state(one.path) for one in steps] == [one.want for one in steps]
    assert os.listdir(world.outside) == ["canary"]


def test_what_is_gone_needs_no_order(tmp_path: Path) -> None:
    """A folder that was removed, or that something else has taken the place of, is passed over; so
    is a path that leads elsewhere. What the system refuses is told, and the others go on."""
    world = World(tmp_path)
    old, new = world.present(b"old"), world.present(b"new")
    paths = [b"gone/f", b"file/f", b"../outside/f", b"x" * 300 + b"/f", b"b/f"]
    plan = [step(number, path, old, new) for number, path in enumerate(paths)]
    world.at(b"file").write_bytes(b"no folder")
    world.lay(b"b/f", new)
    world.at(b"b/" + temporary_name(TAG, 4)).write_bytes(b"half")
    (trouble,) = world.clean_up(*plan)
    assert (trouble.path, trouble.outcome) == (plan[3].path, Outcome.SKIPPED)
    assert trouble.reason == "its name is too long for the file system"
    assert world.own_names() == []
    assert world.state(b"b/f") == new
    world.assert_outside_untouched()


def test_whoever_may_not_write_puts_nothing_in_order(tmp_path: Path) -> None:
    """It lost the files to another process, which does it."""
    world = World(tmp_path)
    old, new = world.present(b"old"), world.present(b"new")
    world.lay(b"f", old)
    world.at(temporary_name(TAG, 0)).write_bytes(b"half")

    def refuse() -> None:
        raise LeaseLost("ses_1")

    with Root(bytes(world.path)) as root, pytest.raises(LeaseLost):
        clean_up(root, [step(0, b"f", old, new)], tag=TAG, may_write=refuse)
    assert world.own_names() == [temporary_name(TAG, 0)]
