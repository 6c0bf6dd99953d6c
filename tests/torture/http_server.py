"""A `kedge serve` that is killed and started again on the same data, and what a kill leaves."""

import asyncio
import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

from tests.server.world import Client
from tests.support.servers import scratch
from tests.support.timeouts import PATIENCE
from tests.torture.orders import ROOT

MARK = "KEDGE_KILL_TEST"
"""A variable that every process of a world inherits, whoever started it."""
_LOOK = 0.01


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of one world, and its database."""

    root: Path
    database: str | None
    """A PostgreSQL; else a file in the data folder."""
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """The worktree of all clients."""
        return self.root / "work"

    @property
    def data(self) -> Path:
        """What the server keeps."""
        return self.root / "data"

    @property
    def log(self) -> Path:
        """Where commands of the agent say that they ran; a line each, outside of the worktree."""
        return self.root / "outside" / "log"

    @property
    def complaints(self) -> Path:
        """What the servers said on standard error."""
        return self.root / "complaints"

    def lines(self) -> list[str]:
        """What commands said so far."""
        return self.log.read_text().split()


def build(root: Path, database: str | None, checkout: Path = ROOT) -> Place:
    """An empty worktree, and a configuration that lets commands write to the log."""
    environ = {**scratch(root / "home"), "PYTHONPATH": str(checkout / "src"), MARK: str(root)}
    place = Place(root, database, environ)
    place.work.mkdir()
    place.log.parent.mkdir()
    place.log.touch()
    config = Path(environ["XDG_CONFIG_HOME"], "opencode", "opencode.json")
    config.parent.mkdir()
    rules = {"external_directory": {f"{place.log.parent}/*": "allow"}}
    config.write_text(json.dumps({"permission": rules}))
    return place


class ServerEnded(Exception):
    """A server that was to serve has ended by itself."""


class ServerProcess:
    """One life of the server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self._begun = time.monotonic()
        self.answered = 0.0
        """Seconds from the start until health and sessions were answered."""

    @classmethod
    async def start(cls, place: Place) -> "ServerProcess":
        """Begin to start it."""
        command = [sys.executable, "-m", "kedge", "serve", "--port", "0", "--data", str(place.data)]
        if place.database is not None:
            command += ["--database", place.database]
        with place.complaints.open("a") as complaints:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(place.work),
                env=place.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=complaints,
            )
        return cls(process)

    async def client(self) -> Client:
        """Wait until it answers."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            said = (await self._process.stdout.readline()).decode().split()
            if not said:
                raise ServerEnded(f"exit code {await self._process.wait()}")
            client = Client(said[-1], {})
            for target in ("/global/health", "/session"):
                reply = await client.get(target)
                if reply.status != 200:
                    raise ServerEnded(f"{target} was answered with {reply.status}")
        self.answered = time.monotonic() - self._begun
        return client

    async def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@dataclass(frozen=True, slots=True)
class AtKill:
    """What the database said when the server was dead, and nobody had looked at it since."""

    begun: frozenset[str]
    """Prompts that a run had taken up,"""
    calling: frozenset[str]
    """those of them in the middle of a tool call,"""
    waiting: frozenset[str]
    """and prompts that none had, each the last one of its session."""
    reverting: frozenset[str]
    """Sessions in the middle of a revert."""
    unfinished: int
    """How many answers were."""
    lines: tuple[str, ...]
    """What commands had said."""
    integrity: str = "ok"


async def look(place: Place) -> AtKill:
    """Read what a kill left; of SQLite in a copy, so that the next server finds it as it was."""
    read = _of_sqlite if place.database is None else _of_postgres
    return await asyncio.to_thread(read, place)


_MESSAGES = "SELECT session_id, pos, id, role, parent_id FROM message ORDER BY session_id, pos"
_CALLS = "SELECT session_id, message_pos, data FROM part WHERE type = 'tool'"
_UNFINISHED = "SELECT count(*) FROM message WHERE open = 1"
_REVERTING = "SELECT session_id FROM plan WHERE state = 'planned'"
_OTHERS = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
Query: TypeAlias = Callable[[str], list[tuple[Any, ...]]]


def _of_sqlite(place: Place) -> AtKill:
    copy = place.root / "copy"
    copy.mkdir()
    for name in ("kedge.db", "kedge.db-wal"):
        if (place.data / name).exists():
            shutil.copy(place.data / name, copy / name)
    connection = sqlite3.connect(copy / "kedge.db")
    try:
        ((integrity,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
        return _at_kill(lambda text: connection.execute(text).fetchall(), place, integrity)
    finally:
        connection.close()
        shutil.rmtree(copy)


def _of_postgres(place: Place) -> AtKill:
    assert place.database is not None
    with psycopg.connect(place.database, autocommit=True) as connection:
        # What a dead client had sent may still be carried out.
        while connection.execute(_OTHERS).fetchone():
            time.sleep(_LOOK)
        return _at_kill(lambda text: connection.execute(text).fetchall(), place)


def _at_kill(query: Query, place: Place, integrity: str = "ok") -> AtKill:
    running = {
        (session, pos)
        for session, pos, data in query(_CALLS)
        if json.loads(data)["state"]["status"] in ("pending", "running")
    }
    begun, calling = set[str](), set[str]()
    prompts: dict[str, list[str]] = {}
    for session, pos, id, role, parent in query(_MESSAGES):
        if role == "user":
            prompts.setdefault(session, []).append(id)
        elif parent in prompts.get(session, ()):
            taken = prompts[session][: prompts[session].index(parent) + 1]
            begun.update(taken)
            if (session, pos) in running:
                calling.update(taken)
    waiting = {asked[-1] for asked in prompts.values()} - begun
    reverting = frozenset(session for (session,) in query(_REVERTING))
    return AtKill(
        frozenset(begun),
        frozenset(calling),
        frozenset(waiting),
        reverting,
        query(_UNFINISHED)[0][0],
        tuple(place.lines()),
        integrity,
    )


def orphans(place: Place, server: int) -> list[str]:
    """Processes of this world that are not the server or below it."""
    found, parents = dict[int, str](), dict[int, int]()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            environ = (folder / "environ").read_bytes()
            stat = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # It has ended, or is somebody else's.
        state, parent = stat.rpartition(")")[2].split()[:2]
        parents[int(folder.name)] = int(parent)
        if os.fsencode(f"{MARK}={place.root}") in environ.split(b"\0") and state != "Z":
            found[int(folder.name)] = command
    return [
        f"{pid}: {command}" for pid, command in found.items() if not _is_below(pid, server, parents)
    ]


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid > 1 and pid != ancestor:
        pid = parents.get(pid, 0)
    return pid == ancestor
