"""Kills processes at random moments while they revert and unrevert, with and without somebody who
saves files before the next one starts, and looks whether files and session agree."""

import asyncio
import json
import random
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import kedge
from kedge.testing.replay import both
from tests.engine.crash_world import Tree, World, boundary_of, build, files, left_over, whole
from tests.engine.revert_process import SETTINGS, save
from tests.torture.orders import Orders, deadline, start

KILLS = 200
LONGEST = 0.25
"""Seconds that a move takes at most, as long as the machine has nothing else to do."""
MOST_MOVES = 4
"""The kill comes in one of so many moves."""


@dataclass(slots=True)
class Figures:
    """What the kills hit."""

    kills: int = 0
    cut_off: int = 0
    """Kills that left a plan unfinished."""
    edited: int = 0
    """Kills after which somebody saved files before the next start."""
    moves: int = 0
    """Moves that were acknowledged."""
    conflicts: int = 0
    """Paths that recovery left to somebody who had saved them."""


@dataclass(slots=True)
class Heard:
    """Where a process was when it was killed."""

    now: str | None
    """The boundary that was reached last,"""
    asked: list[str | None] = field(default_factory=list)
    """and the one that was asked for since, if any."""

    def take(self, said: str, boundary: str | None = None) -> None:
        """Note a line."""
        if said == "doing":
            self.asked = [boundary]
        elif said == "done":
            self.now, self.asked = boundary, []


def move_and_kill(orders: Orders, chance: random.Random, heard: Heard) -> int:
    """Let a process move the boundary about and kill it; tells how many moves it had made."""
    moves = 0
    with start("reverter", orders) as process, deadline(process):
        assert process.stdout is not None
        left = chance.randrange(MOST_MOVES)
        for line in process.stdout:
            said = json.loads(line)
            heard.take(*said)
            moves += said[0] == "done"
            left -= said[0] == "doing"
            if left < 0:
                break
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(chance.random() * LONGEST)
        process.kill()
        for line in process.stdout:
            if line.endswith("\n"):
                heard.take(*json.loads(line))
                moves += json.loads(line)[0] == "done"
    return moves


def unfinished(database: str) -> bool:
    """Whether a plan is still to be carried through."""
    with sqlite3.connect(database) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM plan WHERE state = 'planned'"
        ).fetchone()
    connection.close()
    return bool(count)


def save_some(world: World, chance: random.Random) -> dict[str, bytes]:
    """Save some files in place of what is there now; gives what they hold."""
    there = sorted(files(whole(world.folder)))
    edits = {
        path: f"a day's work on {path}: {chance.random()}\n"
        for path in chance.sample(there, chance.randint(1, len(there)))
    }
    for path, text in edits.items():
        save(world.folder / path, text)
    return {path: text.encode() for path, text in edits.items()}


async def judge(orders: Orders, world: World, heard: Heard, edits: dict[str, bytes]) -> int:
    """Open the engine again: what it carried through, what the session says, and the files agree.

    Tells how many conflicts there are.
    """
    before = whole(world.folder)
    async with kedge.open(orders.directory, database=orders.database, settings=SETTINGS) as engine:
        session = await engine.sessions.get(world.session)
        boundary, receipt = await boundary_of(engine, session)
        assert boundary in (heard.now, *heard.asked)
        assert left_over(world.folder) == []
        found = whole(world.folder)
        replayed, tables = await both(engine.store)
        assert replayed == tables
        failed = {
            entry.path
            for entry in (receipt.files if receipt else ())
            if entry.outcome in ("conflict", "skipped")
        }
        if edits:
            assert_agrees(files(found), files(world.at(boundary)), files(before), edits)
        else:
            assert found == world.at(boundary)
            assert failed == set()
    heard.now, heard.asked = boundary, []
    return len(failed)


def assert_agrees(found: Tree, wanted: Tree, before: Tree, edits: dict[str, bytes]) -> None:
    """What somebody saved is there; all else is as the boundary has it, unless that is in its
    way."""
    for path in found.keys() | wanted.keys() | edits.keys():
        if path in edits:
            assert found[path][1] == edits[path], path
        elif found.get(path) != wanted.get(path):
            assert found.get(path) == before.get(path), path
            assert any(_in_the_way(path, edit) for edit in edits), path


def _in_the_way(one: str, other: str) -> bool:
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")


async def built(orders: Orders) -> World:
    """A new session in a new worktree."""
    async with kedge.open(orders.directory, database=orders.database, settings=SETTINGS) as engine:
        return await build(engine, Path(orders.directory))


@pytest.mark.parametrize(
    "share", [40, pytest.param(1, marks=[pytest.mark.torture, pytest.mark.timeout(1800)])]
)
def test_reverts_survive_kills(share: int, tmp_path: Path) -> None:
    """Two kills in each worktree: after the first all is as if there had been none, after the
    second all but what somebody saved before the next start, and that is as they saved it."""
    figures = Figures()
    for number in range(KILLS // share // 2):
        chance = random.Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        plain = Orders(
            role="", directory=str(folder), database=str(tmp_path / f"{number}.db"), seed=number
        )
        world = asyncio.run(built(plain))
        heard = Heard(None)
        orders = Orders(
            role=f"{world.session} {world.first} {world.second}",
            directory=plain.directory,
            database=plain.database,
            seed=number,
        )
        for is_edited in (False, True):
            figures.moves += move_and_kill(orders, chance, heard)
            figures.kills += 1
            figures.cut_off += unfinished(orders.database)
            edits = save_some(world, chance) if is_edited else {}
            figures.edited += is_edited
            figures.conflicts += asyncio.run(judge(orders, world, heard, edits))
    assert share > 1 or figures.cut_off > 0
    sys.stdout.write(
        f"\nreverts: {figures.kills} kills, {figures.cut_off} of them left a plan unfinished, "
        f"{figures.edited} with saves before the next start, {figures.moves} moves acknowledged, "
        f"{figures.conflicts} conflicts, 0 lost\n"
    )
