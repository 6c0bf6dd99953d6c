"""A data folder that was really used, to be damaged: sessions with turns, forks, reverts and
snapshots of files, made once and copied for each test."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kedge
from kedge.engine.doctor.doctor import examine
from kedge.engine.doctor.findings import Report
from kedge.engine.doctor.machine import Limits

PLENTY = Limits(watches=10**6, watches_used=0, instances=10**3, instances_used=0, descriptors=10**5)
"""A machine on which nothing is scarce, whatever the tests run on."""


@dataclass(frozen=True)
class Clinic:
    """A data folder and the worktree that its sessions worked in."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def folder(self) -> Path:
        return self.root / "work"

    @property
    def database(self) -> Path:
        return self.data / "kedge.db"

    @property
    def store(self) -> Path:
        """The snapshots of the one project."""
        [found] = (self.data / "snapshots").iterdir()
        return found

    async def examine(self, **options: Any) -> Report:  # noqa: ANN401 - as examine
        """What the doctor finds."""
        return await examine(data_dir=self.data, limits=lambda: PLENTY, **options)

    @contextmanager
    def rows(self) -> Iterator[sqlite3.Connection]:
        """The tables, to be damaged."""
        connection = sqlite3.connect(self.database)
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def value(self, sql: str, *args: object) -> Any:  # noqa: ANN401 - a column
        """The first column of the first row."""
        with self.rows() as rows:
            return rows.execute(sql, args).fetchone()[0]

    def copy(self, root: Path) -> "Clinic":
        """The same data in another folder; the worktree stays where it is."""
        shutil.copytree(self.data, root / "data")
        made = Clinic(root)
        made.folder.symlink_to(self.folder)
        return made


async def used(root: Path) -> Clinic:
    """A data folder in which all kinds of things happened."""
    clinic = Clinic(root)
    clinic.folder.mkdir()
    (clinic.folder / "a.txt").write_text("one\n")
    async with kedge.open(clinic.folder, data_dir=clinic.data) as engine:
        agent = kedge.Agent(engine)
        session = await engine.sessions.create("Work")
        for n in range(3):
            await agent.prompt(session, f"write a{n}.txt {n}")
        await agent.prompt(session, "bash echo two > b.txt; rm a.txt")
        messages = (await session.messages()).messages
        await session.fork()
        await session.revert(messages[-1].info.parentID)  # type: ignore[union-attr]
        other = await engine.sessions.create("More")
        await agent.prompt(other, "write c.txt three")
        await other.revert((await other.messages()).messages[0].info.id)
        await agent.prompt(other, "write d.txt four")
        gone = await engine.sessions.create("Gone")
        await gone.delete()
        await engine.upkeep.index()
        await agent.close()
    return clinic
