"""Kills writers at random moments and looks whether all they were told is stored is there."""

import asyncio
import itertools
import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import kedge
from kedge.testing.replay import both
from tests.support.postgres import fresh_database
from tests.torture.ledger import Ledger, open_ends
from tests.torture.orders import Orders, deadline, start

KILLS_PER_DATABASE = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """One way of being killed."""

    role: str
    lines: int
    """The kill comes after fewer lines than this; 0: while the writer opens the database."""
    wal_limit: int | None = None


FEW_LINES = 200
"""A short run kills no later than this."""
WRITING = Plan("mixed", 1500)
OPENING = Plan("mixed", 0)
CHECKPOINTING = Plan("mixed", 1500, wal_limit=32 * 1024)
FORKING = Plan("fork", 60)

SQLITE_PLANS = {WRITING: 50, OPENING: 20, CHECKPOINTING: 20, FORKING: 10}
POSTGRES_PLANS = {WRITING: 14, OPENING: 3, FORKING: 3}


def write_and_kill(
    plan: Plan, most: int, orders: Orders, chance: random.Random, ledger: Ledger
) -> None:
    """Let a writer write, kill it, and note what it said."""
    with start("writer", orders) as process, deadline(process):
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert json.loads(next(lines)) == ["opening"]
        if plan.lines:
            assert json.loads(next(lines)) == ["opened"]
            for _ in range(chance.randrange(min(plan.lines, most))):
                ledger.take(*json.loads(next(lines)))
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(chance.random() * 0.08)
        process.kill()
        for line in lines:
            if line.endswith("\n"):
                ledger.take(*json.loads(line))


async def judge(orders: Orders, ledger: Ledger) -> None:
    """Open the database again and hold it against the ledger and against its own event log."""
    async with kedge.open(orders.directory, database=orders.database) as engine:
        replayed, stored = await both(engine.store)
        assert await engine.statuses() == {}
        assert ledger.cut_off <= set(engine.recovery.sessions)
    assert replayed == stored
    assert ledger.losses(stored) == []
    assert [end for each in stored.sessions.values() for end in open_ends(each)] == []
    ledger.settle()


def check_file(path: Path) -> None:
    """SQLite finds nothing wrong with the file."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def run_plans(plans: dict[Plan, int], share: int, databases: Iterator[str], folder: Path) -> str:
    """Carry out a share of the kills; gives the figures."""
    kills = acknowledged = 0
    most = max(each.lines for each in plans) if share == 1 else FEW_LINES
    for plan, count in plans.items():
        for n in range(max(1, count // share)):
            # Opening is about files that are empty; else a kill finds what the ones before it left.
            if n % KILLS_PER_DATABASE == 0 or plan is OPENING:
                database, ledger = next(databases), Ledger()
            seed = kills
            orders = Orders(
                role=plan.role,
                directory=str(folder),
                database=database,
                seed=seed,
                wal_limit=plan.wal_limit,
            )
            before = ledger.acknowledged
            write_and_kill(plan, most, orders, random.Random(seed), ledger)
            asyncio.run(judge(orders, ledger))
            if not database.startswith("postgresql:"):
                check_file(Path(database))
            kills += 1
            acknowledged += ledger.acknowledged - before
    assert acknowledged > 0
    return f"kill test: {kills} kills, {acknowledged} acknowledged writes, 0 lost"


each_share = pytest.mark.parametrize(
    "share", [40, pytest.param(1, marks=[pytest.mark.torture, pytest.mark.timeout(1800)])]
)


@each_share
def test_sqlite_survives_kills(share: int, tmp_path: Path) -> None:
    """Whatever a killed writer was told is stored is there, and in the events as in the tables."""
    databases = (str(tmp_path / f"{n}.db") for n in itertools.count())
    sys.stdout.write(f"\nSQLite {run_plans(SQLITE_PLANS, share, databases, tmp_path)}\n")


@pytest.mark.postgres
@each_share
def test_postgres_survives_kills(share: int, tmp_path: Path, postgres_server: str) -> None:
    """The same with PostgreSQL, where a transaction may still end after its writer did."""
    with ExitStack() as stack:
        databases = iter(lambda: stack.enter_context(fresh_database(postgres_server)), "")
        figures = run_plans(POSTGRES_PLANS, share, databases, tmp_path)
    sys.stdout.write(f"\nPostgreSQL {figures}\n")
