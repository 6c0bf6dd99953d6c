"""Work on many files shared out among threads, and what the writer promises all the same."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kedge._failpoints import armed
from kedge.domain.file_states import FileStep, Outcome
from kedge.snapshot.files.atomic import in_shares
from kedge.snapshot.files.root import Root
from kedge.snapshot.files.writer import Writer
from tests.snapshot.files_world import ABSENT, TAG, Killed, World, file_system, step

MANY = 200
"""More than one batch, in several shares."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty worktree."""
    with file_system("swapping"):
        yield World(tmp_path)


def replacing_many(world: World) -> list[FileStep]:
    """Files in some folders, and the steps that give each another content."""
    steps = []
    for number in range(MANY):
        path = b"d%d/file%d" % (number % 7, number)
        old, new = world.present(b"old %d" % number), world.present(b"new %d" % number)
        world.lay(path, old)
        steps.append(step(number, path, old, new))
    return steps


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("least", [1, 16])
def test_each_thing_gets_its_own_result(number: int, least: int) -> None:
    """In the order of the things, whoever did the work."""

    def work(things: Sequence[int]) -> list[int]:
        return [thing * 2 for thing in things]

    assert in_shares(work, range(number), least=least) == [2 * each for each in range(number)]


def test_few_things_are_not_shared() -> None:
    """What must be done one by one is: fewer than two shares have one thread, the caller's."""
    threads = set()

    def work(things: Sequence[int]) -> list[None]:
        threads.add(threading.get_ident())
        return [None for _ in things]

    in_shares(work, range(31), least=16)
    assert threads == {threading.get_ident()}


def test_when_an_error_is_raised_no_thread_is_at_work() -> None:
    """Nothing goes on behind the back of whoever hears of it."""
    before = threading.active_count()

    def work(things: Sequence[int]) -> list[None]:
        if 0 in things:
            raise Killed
        return [None for _ in things]

    with pytest.raises(Killed):
        in_shares(work, range(80))
    assert threading.active_count() == before


def test_many_files_are_put_in_place_together(world: World) -> None:
    """Several wait for the disk at the same time; one alone would wait here for ever."""
    steps = replacing_many(world)
    several = threading.Barrier(2)

    def meet() -> None:
        several.wait(60)

    # The first at one place goes on when another is at the other.
    with armed("before-exchange", meet), armed("after-exchange", meet):
        results = world.put(*steps)
    assert {result.outcome for result in results} == {Outcome.RESTORED}
    assert [result.path for result in results] == [each.path for each in steps]
    assert all(world.state(each.path) == each.want for each in steps)
    assert world.own_names() == []


def test_many_files_are_deleted_together(world: World) -> None:
    """As many are put in place; what somebody saved in the last moment stays."""
    steps = [step(each.number, each.path, each.expect, ABSENT) for each in replacing_many(world)]
    several, theirs = threading.Barrier(2), steps[-1]

    def meet() -> None:
        several.wait(60)

    def save() -> None:
        world.at(theirs.path).write_bytes(b"theirs")
        meet()

    with armed("before-set-aside", save), armed("after-set-aside", meet):
        results = world.put(*steps)
    assert [result.path for result in results] == [each.path for each in steps]
    left = [result.path for result in results if result.outcome is not Outcome.DELETED]
    assert left == [theirs.path]
    assert world.contents() == [b"theirs"]


def test_what_somebody_saved_meanwhile_costs_only_that_file(world: World) -> None:
    """It stays in place, and all others are written."""
    steps = replacing_many(world)
    theirs = steps[60]

    def save() -> None:
        world.at(theirs.path).write_bytes(b"theirs")

    with armed("after-sync", save):
        results = world.put(*steps)
    left = [result.path for result in results if result.outcome is not Outcome.RESTORED]
    assert left == [theirs.path]
    assert world.at(theirs.path).read_bytes() == b"theirs"
    assert all(world.state(each.path) == each.want for each in steps if each is not theirs)
    assert world.own_names() == []


@pytest.mark.parametrize("place", ["before-exchange", "after-exchange", "after-compare"])
def test_after_a_crash_among_many_each_is_done_or_not_begun(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Cleaned up and put again, all are done; a process that dies takes nothing away."""
    steps = replacing_many(world)

    def die() -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("kedge.snapshot.files.steps.Spot.discard", lambda self, name: None)
        with armed(place, die, at=50), pytest.raises(Killed):
            world.put(*steps)
    assert world.own_names() != []
    assert world.clean_up(*steps) == []
    assert world.own_names() == []
    assert all(world.state(each.path) in (each.expect, each.want) for each in steps)
    outcomes = {result.outcome for result in world.put(*steps)}
    assert outcomes == {Outcome.UNCHANGED, Outcome.RESTORED}
    assert all(world.state(each.path) == each.want for each in steps)


def test_every_thread_asks_before_its_next_file(world: World) -> None:
    """After it was forbidden, nothing is written but what was allowed before."""
    steps = replacing_many(world)
    allowed = threading.Semaphore(150)

    def may_write() -> None:
        if not allowed.acquire(blocking=False):
            raise Killed

    with (
        pytest.raises(Killed),
        Root(bytes(world.path)) as root,
        Writer(root, world.blobs.__getitem__, tag=TAG, may_write=may_write) as writer,
    ):
        writer.put(steps)
    written = sum(world.state(each.path) == each.want for each in steps)
    # The first batch was allowed its temporary files, and a few of them to be put in place.
    assert 0 < written <= 150 - 64
    assert world.own_names() == []
