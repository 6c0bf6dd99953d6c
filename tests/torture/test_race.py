"""Many processes on one database: nobody gets an error, and a listener hears everything once."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kedge
from kedge.store.queries.event_log import events_after
from kedge.store.sqlite.connection import WAL_LIMIT
from kedge.testing.replay import both
from tests.torture.orders import Orders, deadline, start
from tests.torture.racer import LEAST

SHORT, LONG = 1.0, 10.0

each_length = pytest.mark.parametrize(
    "seconds", [SHORT, pytest.param(LONG, marks=[pytest.mark.torture, pytest.mark.timeout(300)])]
)


@dataclass
class Race:
    """What the processes of a race counted."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    log_size: int = 0
    seqs: list[int] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    logged: list[int] = field(default_factory=list)

    def figures(self) -> str:
        """The figures in one line."""
        rate = len(self.latencies) / self.seconds
        return (
            f"{len(self.latencies)} writes, {rate:.0f}/s, latency {_spread(self.latencies)},"
            f" {len(self.errors)} errors, log at most {self.log_size / 2**20:.1f} MiB;"
            f" {len(self.seqs)} events heard, lag {_spread(self.lags)}"
        )


def _spread(times: list[float]) -> str:
    if not times:
        return "not measured"
    ordered = sorted(times)
    p50, p99 = (ordered[round(p * (len(ordered) - 1))] for p in (0.5, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {ordered[-1]:.1f} ms"


@contextmanager
def racer(orders: Orders) -> Iterator[subprocess.Popen[str]]:
    """A process of a race that is ready to start."""
    with start("racer", orders) as process, deadline(process):
        assert line(process) == ["ready"]
        yield process


def line(process: subprocess.Popen[str]) -> list[Any]:
    """The next thing that a process says."""
    assert process.stdout is not None
    text = process.stdout.readline()
    assert text, f"a process ended early, with {process.wait()}"
    said: list[Any] = json.loads(text)
    return said


def say(process: subprocess.Popen[str], text: str) -> None:
    """Tell a process something."""
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def run_race(
    database: str,
    folder: Path,
    seconds: float,
    *,
    writers: int,
    readers: int = 0,
    wal_limit: int | None = None,
) -> Race:
    """Let all start at the same instant on a database that does not exist yet."""
    race = Race(seconds)
    roles = ["write"] * writers + ["read"] * readers
    with ExitStack() as stack:
        orders = [
            Orders(
                role=role,
                directory=str(folder),
                database=database,
                seed=seed,
                seconds=seconds,
                wal_limit=wal_limit,
            )
            for seed, role in enumerate([*roles, "listen"])
        ]
        *racers, listener = [stack.enter_context(racer(each)) for each in orders]
        for process in [*racers, listener]:
            say(process, "go")
        for role, process in zip(roles, racers, strict=True):
            _, result = line(process)
            race.errors += result["errors"]
            race.log_size = max(race.log_size, result["log_size"])
            if role == "write":
                race.latencies += result["latencies"]
        asyncio.run(_judge(database, folder, race))
        say(listener, str(race.logged[-1]))
        _, heard = line(listener)
        race.seqs, race.lags = heard["seqs"], heard["lags"]
    return race


async def _judge(database: str, folder: Path, race: Race) -> None:
    async with kedge.open(folder, database=database) as engine:
        replayed, stored = await both(engine.store)
        assert replayed == stored
        seq = 0
        while events := await engine.store.scan(partial(events_after, seq)):
            race.logged += [each.seq for each in events]
            seq = events[-1].seq


def check(race: Race) -> None:
    """No error reached a caller; the listener heard every event once and in order."""
    assert race.errors == []
    assert race.seqs == sorted(set(race.seqs))
    assert race.seqs == race.logged
    assert len(race.latencies) >= 3 * LEAST


@each_length
def test_ten_writers_on_one_file(seconds: float, tmp_path: Path) -> None:
    """Ten processes write to one SQLite file, an eleventh hears every event once, in order."""
    race = run_race(str(tmp_path / "kedge.db"), tmp_path, seconds, writers=10)
    sys.stdout.write(f"\nSQLite, 10 writers: {race.figures()}\n")
    check(race)
    assert race.log_size < 16 * WAL_LIMIT


@each_length
def test_the_log_stays_small_under_constant_readers(seconds: float, tmp_path: Path) -> None:
    """Readers that never pause see no error and do not let the write-ahead log grow on and on."""
    limit = 512 * 1024
    race = run_race(
        str(tmp_path / "kedge.db"), tmp_path, seconds, writers=3, readers=4, wal_limit=limit
    )
    sys.stdout.write(f"\nSQLite, 3 writers, 4 readers: {race.figures()}\n")
    check(race)
    assert 0 < race.log_size < 40 * limit


@pytest.mark.postgres
@each_length
def test_four_writers_on_one_server(seconds: float, tmp_path: Path, postgres_url: str) -> None:
    """Four processes write to one PostgreSQL database, a fifth hears every event once, in order."""
    race = run_race(postgres_url, tmp_path, seconds, writers=4)
    sys.stdout.write(f"\nPostgreSQL, 4 writers: {race.figures()}\n")
    check(race)
