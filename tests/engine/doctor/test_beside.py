"""The doctor beside a kedge that works, after one that was killed, and on PostgreSQL."""

import asyncio
from pathlib import Path

import psycopg
import pytest

import kedge
from kedge.engine.doctor.doctor import examine
from kedge.engine.doctor.findings import Report
from kedge.engine.doctor.repairs import planned, repair
from kedge.engine.settings import data_folder
from tests.engine.doctor.clinic import PLENTY
from tests.engine.engine_factory import EngineFactory
from tests.engine.engine_processes import Child


async def examined(data: Path, database: str | None = None) -> Report:
    """What is found in a data folder."""
    return await examine(data_dir=data, database=database, limits=lambda: PLENTY)


async def test_a_live_turn_is_not_stuck(folder: Path, tmp_path: Path) -> None:
    """Nothing is found while turns, forks and reverts go on."""
    data = tmp_path / "data"
    async with kedge.open(folder, data_dir=data) as engine:
        agent = kedge.Agent(engine)
        at_work = True

        async def work(name: str) -> None:
            session = await engine.sessions.create(name)
            for n in range(3):
                await agent.prompt(session, f"write {name}{n}.txt {n}")
            await session.fork()
            messages = (await session.messages()).messages
            await session.revert(messages[3].info.id)

        async def look() -> list[Report]:
            found = []
            while at_work:
                found.append(await examined(data))
            return found

        looking = asyncio.create_task(look())
        await asyncio.gather(*map(work, "ab"))
        at_work = False
        for report in await looking:
            assert report.findings == []
        await agent.close()
    assert (await examined(data)).findings == []


async def test_after_a_kill(place: EngineFactory) -> None:
    """What a killed process left is a notice, because the next kedge recovers it; the doctor can
    do that too, and finds nothing afterwards."""
    data = data_folder(None)
    async with place.open() as engine:
        session = await engine.sessions.create()
    async with Child(place, "work", session.id) as child:
        await child.hear()
        assert (await examined(data, place.database)).findings == []
        await child.kill()
    report = await examined(data, place.database)
    assert report.is_healthy
    assert {each.code for each in report.findings} == {"run-cut-off"}
    outcome = await repair(planned(report), data_dir=data, database=place.database)
    assert (len(outcome.done), outcome.failed) == (1, [])
    assert (await examined(data, place.database)).findings == []
    async with place.open() as engine:
        assert engine.recovery.sessions == []


@pytest.mark.postgres
async def test_on_postgres(folder: Path, tmp_path: Path, postgres_url: str) -> None:
    """Rows of a server are examined and repaired as those of a file; snapshots that are elsewhere
    are not said to be lost."""
    data = tmp_path / "data"
    async with kedge.open(folder, data_dir=data, database=postgres_url) as engine:
        agent = kedge.Agent(engine)
        session = await engine.sessions.create()
        await agent.prompt(session, "write a.txt one")
        await agent.close()
    assert (await examined(data, postgres_url)).findings == []
    with psycopg.connect(postgres_url, autocommit=True) as rows:
        rows.execute("INSERT INTO todo VALUES ('ses_gone', 1, NULL, 0, 0, '[]')")
        rows.execute("DELETE FROM session_place")
        rows.execute("UPDATE message SET open = 1 WHERE role = 'assistant'")
    report = await examined(data, postgres_url)
    codes = {each.code for each in report.findings}
    assert codes == {"rows-orphaned", "lists-differ", "message-open"}
    outcome = await repair(planned(report), data_dir=data, database=postgres_url)
    assert outcome.failed == []
    assert (await examined(data, postgres_url)).findings == []
    elsewhere = await examined(tmp_path / "elsewhere", postgres_url)
    assert elsewhere.findings == []
    assert "the snapshots of 1 sessions: they are on other machines" in elsewhere.unchecked
