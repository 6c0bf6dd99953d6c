"""Processes killed at every fail point of a revert, and what the next engine makes of it."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from zlib import crc32

import msgspec
import pytest

import kedge
from kedge._failpoints import POINTS
from kedge.domain import wire
from kedge.domain.receipts import Receipt, ReceiptEntry
from kedge.engine.engine import Engine
from kedge.engine.revert import prepare
from kedge.engine.session import Session
from kedge.engine.settings import data_folder
from kedge.snapshot.files.locks import FileLocks
from kedge.store.queries.plans import PlanData
from kedge.testing.replay import both
from tests.engine.crash_world import Tree, World, boundary_of, build, files, left_over, whole
from tests.engine.engine_factory import EngineFactory
from tests.engine.revert.scene import lines, turn
from tests.engine.revert_process import SAVED, save
from tests.support.timeouts import PATIENCE

ROOT = Path(__file__).parents[2]
FIRST = [point for point in POINTS if not point.endswith("settle")]
"""Those that a process comes by that finds nothing to put in order."""
AGAIN = [point for point in POINTS if point != "plan-stored"]
"""Those that a process comes by that carries through what another one began."""
MOVES = {
    "revert": ([], "first"),
    "unrevert": (["first"], None),
    "move forward": (["first"], "second"),
    "move back": (["second"], "first"),
}
"""The boundaries before, and the one that is asked for when the process is killed."""
FAILED = ("conflict", "skipped")
LONG = pytest.mark.torture


async def run(place: EngineFactory, world: World, point: str, *order: str) -> None:
    """Have a process do something and be killed at a point."""
    assert await ended(place, world, point, *order) == -signal.SIGKILL


async def ended(place: EngineFactory, world: World, point: str, *order: str) -> int | None:
    """Have a process do something; the exit code tells whether it came by the point."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engine.revert_process"),
        *(str(place.folder), place.database, world.session, *order),
        cwd=ROOT,
        env={**os.environ, "KEDGE_FAILPOINT": point},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        await process.communicate()
    return process.returncode


async def built(place: EngineFactory, move: str) -> tuple[World, Receipt | None]:
    """A world in which a move is about to be made, and what its receipt should be."""
    before, target = MOVES[move]
    async with place.open() as engine:
        world = await build(engine, place.folder)
        session = await engine.sessions.get(world.session)
        for each in before:
            await session.revert(getattr(world, each))
        if target is None:
            return world, None
        planned = await session.revert(getattr(world, target), dry_run=True)
        return world, msgspec.structs.replace(planned, applied=True)


def order_of(world: World, move: str) -> tuple[list[str], Tree]:
    """What to tell the process, and the files that this should lead to."""
    target = MOVES[move][1]
    if target is None:
        return ["unrevert"], world.full
    return ["revert", getattr(world, target)], world.at(getattr(world, target))


def assert_old_or_new(found: Tree, old: Tree, new: Tree) -> None:
    """No path holds anything but what it held before or should hold after."""
    for path, state in found.items():
        assert state in (old.get(path), new.get(path)), path


async def assert_goes_on(engine: Engine, session: Session, world: World) -> None:
    """From here the boundary moves as ever, and the log tells the same as the tables."""
    for boundary in (None, world.second, None):
        receipt = await (session.revert(boundary) if boundary else session.unrevert())
        assert {entry.reason for entry in receipt.files} <= {None}
        assert whole(world.folder) == world.at(boundary)
        assert (await boundary_of(engine, session))[0] == boundary
    replayed, tables = await both(engine.store)
    assert replayed == tables
    assert left_over(world.folder) == []


@pytest.mark.parametrize("point", FIRST)
@pytest.mark.parametrize(
    "move",
    [
        "revert",
        "unrevert",
        *(pytest.param(f"move {way}", marks=LONG) for way in ("forward", "back")),
    ],
)
async def test_killed_anywhere_all_is_done_in_the_end(
    place: EngineFactory, move: str, point: str
) -> None:
    """Each path is old or new when the process is gone, and all are new when the next has begun."""
    world, planned = await built(place, move)
    old = whole(place.folder)
    order, new = order_of(world, move)
    await run(place, world, point, *order)
    assert_old_or_new(whole(place.folder), old, new)
    async with place.open() as engine:
        assert whole(place.folder) == new
        assert left_over(place.folder) == []
        session = await engine.sessions.get(world.session)
        boundary, receipt = await boundary_of(engine, session)
        assert world.at(boundary) == new
        assert receipt == planned
        await assert_goes_on(engine, session, world)


EXCHANGING = ("before-exchange", "after-exchange", "after-compare", "after-replace")


@pytest.mark.parametrize(
    "point", [*AGAIN[::2], *(pytest.param(point, marks=LONG) for point in AGAIN[1::2])]
)
async def test_killed_again_all_is_done_in_the_end(place: EngineFactory, point: str) -> None:
    """It does not matter how many processes it takes to carry a revert through."""
    world, planned = await built(place, "revert")
    # Files are replaced before others are deleted: later there is nothing left to exchange.
    first = "before-exchange" if point in EXCHANGING else "after-set-aside"
    await run(place, world, first, "revert", world.first)
    await run(place, world, point, "recover")
    assert_old_or_new(whole(place.folder), world.full, world.bare)
    async with place.open() as engine:
        session = await engine.sessions.get(world.session)
        assert whole(place.folder) == world.bare
        assert await boundary_of(engine, session) == (world.first, planned)
        await assert_goes_on(engine, session, world)


@pytest.mark.parametrize("point", ["after-set-aside", "after-exchange"])
async def test_whichever_engine_starts_next(
    any_place: EngineFactory, tmp_path: Path, point: str
) -> None:
    """On either kind of database, and be it opened on another folder and for other things."""
    world, planned = await built(any_place, "revert")
    await run(any_place, world, point, "revert", world.first)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with EngineFactory(elsewhere, any_place.database).open(
        settings=kedge.Settings(snapshots=False)
    ) as engine:
        session = await engine.sessions.get(world.session)
        assert whole(world.folder) == world.bare
        assert await boundary_of(engine, session) == (world.first, planned)


async def test_many_start_at_once_and_the_next_prompt_is_final(place: EngineFactory) -> None:
    """One of them carries the revert through, none twice; then the session goes on from there."""
    world, planned = await built(place, "revert")
    await run(place, world, "after-exchange", "revert", world.first)
    # A point that only a revert of their own would bring them to.
    starts = [ended(place, world, "plan-stored", "recover") for _ in range(3)]
    assert await asyncio.gather(*starts) == [0, 0, 0]
    async with place.open() as engine:
        session = await engine.sessions.get(world.session)
        assert await boundary_of(engine, session) == (world.first, planned)
        prompt = await turn(session, (place.folder / "edited", "three\n"))
        assert await boundary_of(engine, session) == (None, None)
        assert (await session.messages()).messages[0].info.id == prompt
        assert len(await session.tails()) == 1
        assert whole(place.folder) == {
            **world.bare,
            "edited": (world.bare["edited"][0], b"three\n"),
        }


@pytest.mark.parametrize("point", ["after-exchange", "after-apply", "after-outcome"])
async def test_a_revert_of_files_alone_is_carried_through(place: EngineFactory, point: str) -> None:
    """Messages stay to be seen, and it can be taken back, or a revert of all comes on top."""
    world, _ = await built(place, "revert")
    await run(place, world, point, "revert", world.first, "files")
    async with place.open() as engine:
        session = await engine.sessions.get(world.session)
        assert session.info.revert is None
        assert whole(place.folder) == world.bare
        await session.unrevert()
        assert whole(place.folder) == world.full
    await run(place, world, point, "revert", world.second, "files")
    async with place.open() as engine:
        session = await engine.sessions.get(world.session)
        assert whole(place.folder) == world.half
        await session.revert(world.first)
        assert whole(place.folder) == world.bare
        await session.unrevert()
        assert whole(place.folder) == world.full
    assert left_over(place.folder) == []


@pytest.mark.torture
@pytest.mark.parametrize("point", FIRST)
async def test_killed_each_time_it_comes_by(tmp_path: Path, point: str) -> None:
    """The second file, the third, and so on: what is done of the others makes no difference."""
    for time in count(2):
        folder = tmp_path / str(time)
        folder.mkdir()
        place = EngineFactory(folder, str(tmp_path / f"{time}.db"))
        world, planned = await built(place, "revert")
        if await ended(place, world, f"{point}:{time}", "revert", world.first) == 0:
            break
        assert_old_or_new(whole(folder), world.full, world.bare)
        async with place.open() as engine:
            session = await engine.sessions.get(world.session)
            assert await boundary_of(engine, session) == (world.first, planned)
            assert whole(folder) == world.bare
            await session.unrevert()
            assert whole(folder) == world.full
        assert left_over(folder) == []


@pytest.mark.parametrize("point", FIRST)
@pytest.mark.parametrize(
    "move", ["revert", *(pytest.param(each, marks=pytest.mark.torture) for each in list(MOVES)[1:])]
)
async def test_what_others_save_in_between_survives(
    place: EngineFactory, move: str, point: str
) -> None:
    """Their bytes are in the file, the receipt says conflict, all else is done or not begun."""
    world, _ = await built(place, move)
    order, target = order_of(world, move)
    old, new = files(whole(place.folder)), files(target)
    await run(place, world, point, *order)
    edits = save_half(world, point)
    async with place.open() as engine:
        session = await engine.sessions.get(world.session)
        told = last_receipt(place)
        found = files(whole(place.folder))
        assert_theirs(found, edits)
        for path in world.paths:
            failed = path in told and told[path].outcome in FAILED
            if path in edits:
                was_to_change = old.get(path) != new.get(path)
                assert failed == (was_to_change and point != "after-outcome"), path
            elif not failed:
                assert found.get(path) == new.get(path), path
            elif "kept as" not in (told[path].reason or ""):
                assert found.get(path) == old.get(path), path
        for boundary in (None, world.first, world.second):
            await (session.revert(boundary) if boundary else session.unrevert())
            assert_theirs(whole(place.folder), edits)
            assert (await boundary_of(engine, session))[0] == boundary
    # What somebody put where something was that is nowhere else by now: that is kept beside it.
    reasons = " ".join(entry.reason or "" for entry in told.values())
    assert all(f"kept as {path}" in reasons for path in left_over(place.folder))


def save_half(world: World, seed: str) -> dict[str, str]:
    """Save about half of the paths, as far as there can be files; gives what they hold."""
    edits: dict[str, str] = {}
    for path in world.paths:
        if crc32(f"{seed} {path}".encode()) % 2:
            place = world.folder / path
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                continue
            if not place.is_dir() or place.is_symlink():
                edits[path] = f"a day's work on {path}\n"
                save(place, edits[path])
    return edits


def assert_theirs(found: Tree, edits: Mapping[str, str]) -> None:
    """What others saved is where they saved it."""
    assert {path: found[path][1].decode() for path in edits} == edits


def last_receipt(place: EngineFactory) -> dict[str, ReceiptEntry]:
    """What the newest plan says of each path, also if it is closed and forgotten."""
    with sqlite3.connect(place.database) as database:
        (data,) = database.execute("SELECT data FROM plan ORDER BY timeline DESC").fetchone()
    database.close()
    return {entry.path: entry for entry in wire.decode(data, PlanData).receipt.files}


async def test_an_edit_of_what_was_done_costs_nothing(place: EngineFactory) -> None:
    """A file that was put back, then edited by somebody after the crash, is a conflict; still an
    unrevert brings the session's lines back, beside theirs."""
    world, _ = await built(place, "revert")
    await run(place, world, "after-apply", "revert", world.first)
    save(place.folder / "merged", lines((5, "person"), (8, "theirs")))
    async with place.open() as engine:
        assert last_receipt(place)["merged"].outcome == "conflict"
        await (await engine.sessions.get(world.session)).unrevert()
    expected = lines((1, "two"), (5, "person"), (8, "theirs"))
    assert (place.folder / "merged").read_text() == expected


async def test_a_file_that_is_being_written_costs_nothing(
    place: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was put back, and that a call is writing at the restart, is a conflict; still an
    unrevert brings the session's work back."""
    monkeypatch.setattr(prepare, "PATIENCE", 0)
    world, _ = await built(place, "revert")
    await run(place, world, "after-apply", "revert", world.first)
    locks = FileLocks(data_folder(None))
    async with locks.locked([bytes(place.folder / "edited")], 0), place.open():
        assert last_receipt(place)["edited"].outcome == "conflict"
    async with place.open() as engine:
        await (await engine.sessions.get(world.session)).unrevert()
    assert whole(place.folder) == world.full


async def test_a_save_in_the_last_moment_goes_back_in_place(place: EngineFactory) -> None:
    """Saved between the look and the swap, and then the process died: it is theirs again."""
    world, _ = await built(place, "revert")
    await run(place, world, "after-exchange", "race", world.first, "edited")
    assert (place.folder / "edited").read_bytes() == world.bare["edited"][1]
    async with place.open() as engine:
        session = await engine.sessions.get(world.session)
        assert (place.folder / "edited").read_text() == SAVED
        told = last_receipt(place)
        assert [path for path in told if told[path].outcome == "conflict"] == ["edited"]
        await session.unrevert()
        expected = {**world.full, "edited": (world.full["edited"][0], SAVED.encode())}
        assert whole(place.folder) == expected
    assert left_over(place.folder) == []


@pytest.mark.parametrize("saved", [None, "saved meanwhile\n"])
async def test_killed_while_a_file_has_no_name(place: EngineFactory, saved: str | None) -> None:
    """Where names cannot be swapped, a file is away for a moment: it comes back, or stays what
    somebody put there."""
    world, planned = await built(place, "revert")
    assert planned is not None
    await run(place, world, "after-set-aside", "revert_without_swaps", world.first)
    assert not (place.folder / "edited").exists()
    if saved is not None:
        save(place.folder / "edited", saved)
    async with place.open() as engine:
        session = await engine.sessions.get(world.session)
        boundary, receipt = await boundary_of(engine, session)
        assert boundary == world.first
        wanted = dict(world.bare)
        if saved is not None:
            wanted["edited"] = wanted["edited"][0], saved.encode()
        assert (receipt == planned) == (saved is None)
        assert whole(place.folder) == wanted
        assert left_over(place.folder) == []


async def test_two_saves_are_both_kept(place: EngineFactory) -> None:
    """Of one in the last moment and one after the crash, the newer is in place, the older beside
    it, under a name that the receipt tells."""
    world, _ = await built(place, "revert")
    await run(place, world, "after-exchange", "race", world.first, "edited")
    save(place.folder / "edited", "saved once more\n")
    async with place.open():
        reason = last_receipt(place)["edited"].reason
    (kept,) = left_over(place.folder)
    assert reason is not None
    assert reason.endswith(f"one version is kept as {kept}")
    assert (place.folder / "edited").read_text() == "saved once more\n"
    assert (place.folder / kept).read_text() == SAVED


async def test_calls_that_a_crash_cut_off_are_reverted(place: EngineFactory) -> None:
    """What they had done by then is theirs, though only observed, and comes back by an unrevert."""
    async with place.open() as engine:
        world = await build(engine, place.folder)
    before = files(whole(place.folder))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engine.revert_process"),
        *(str(place.folder), place.database, world.session, "work"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b'"half done"\n'
    process.kill()
    await process.communicate()
    after = files(whole(place.folder))
    assert after != before
    async with place.open() as engine:
        assert engine.recovery.sessions == [world.session]
        session = await engine.sessions.get(world.session)
        prompt = (await session.messages()).messages[-2].info.id
        receipt = await session.revert(prompt)
        assert [(each.path, each.outcome.value, each.source) for each in receipt.files] == [
            ("edited", "restored", "observed"),
            ("new/file", "deleted", "observed"),
            ("private", "recreated", "observed"),
            ("shell", "deleted", "observed"),
        ]
        assert files(whole(place.folder)) == before
        await session.unrevert()
        assert files(whole(place.folder)) == after
        await session.revert(world.first)
        assert files(whole(place.folder)) == files(world.bare)
