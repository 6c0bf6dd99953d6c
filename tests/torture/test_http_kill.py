"""Servers are killed at random moments while clients use them; nothing that they said is lost."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.postgres import fresh_database
from tests.torture.http_kill import World, report
from tests.torture.http_server import build

KILLS_PER_WORLD = 40


def kill(kills: int, folder: Path, server: str | None = None) -> str:
    """So many kills, in worlds that live through some of them each; gives the figures."""
    worlds: list[World] = []
    while (done := sum(each.ledger.kills for each in worlds)) < kills:
        root = folder / str(len(worlds))
        number = min(KILLS_PER_WORLD, kills - done)
        if server is None:
            worlds.append(_lived(len(worlds), number, root, None))
        else:
            with fresh_database(server) as database:
                worlds.append(_lived(len(worlds), number, root, database))
        wrong = worlds[-1].ledger.wrong
        assert wrong == [], (
            f"python -m tests.torture.http_kill --seed {worlds[-1].ledger.seed} --kills {number}"
        )
    return report(worlds)


def _lived(seed: int, kills: int, root: Path, database: str | None) -> World:
    root.mkdir()
    world = World(seed, build(root, database))
    asyncio.run(world.live_and_die(kills))
    return world


long = [pytest.mark.torture, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("kills", [4, pytest.param(1000, marks=long)])
def test_a_killed_server_on_sqlite_loses_nothing(kills: int, tmp_path: Path) -> None:
    """What was acknowledged is there, what was cut off says so, and nothing is left behind."""
    sys.stdout.write(f"\nHTTP on SQLite: {kill(kills, tmp_path)}\n")


@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=long)])
def test_a_killed_server_on_postgres_loses_nothing(
    kills: int, tmp_path: Path, postgres_server: str
) -> None:
    """The same with PostgreSQL, where what a dead server had sent may still be carried out."""
    sys.stdout.write(f"\nHTTP on PostgreSQL: {kill(kills, tmp_path, postgres_server)}\n")
