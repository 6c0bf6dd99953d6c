"""What a torture test tells the processes that it starts, and how it starts them."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

PATIENCE = 300.0
"""Seconds that a process of a test may take for anything before the test fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What one process is to do to which database."""

    role: str
    directory: str
    database: str
    seed: int
    wal_limit: int | None = None
    """Checkpoint this early (bytes), and look after every second commit."""
    seconds: float = 0.0
    """How long to write; for those that stop by themselves."""


def start(module: str, orders: Orders) -> subprocess.Popen[str]:
    """A process that runs a module of `tests.torture`; it reads and writes lines of JSON."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.torture.{module}", json.dumps(asdict(orders))],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def deadline(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that hangs, so that reading from it ends."""
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def received() -> Orders:
    """The orders of this process."""
    orders = Orders(**json.loads(sys.argv[1]))
    if orders.wal_limit is not None:
        _checkpoint_often(orders.wal_limit)
    return orders


def report(*line: Any) -> None:  # noqa: ANN401 - anything that is JSON
    """Tell the test something; returns when it is in the pipe, where a kill cannot reach it."""
    remaining = memoryview(json.dumps(line).encode() + b"\n")
    while remaining:
        remaining = remaining[os.write(sys.stdout.fileno(), remaining) :]


def _checkpoint_often(wal_limit: int) -> None:
    from kedge.store.sqlite import checkpoints, connection, store

    connection.WAL_LIMIT = wal_limit
    checkpoints.WAL_LIMIT = wal_limit  # type: ignore[attr-defined]  # imported there by name
    store._COMMITS_PER_LOOK = 2
