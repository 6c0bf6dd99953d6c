"""What a collection would free is told before it does it, and collecting harms no kedge that
works."""

import asyncio
import os
from pathlib import Path

import pytest

import kedge
from kedge.domain.clock import SystemClock
from kedge.engine.collection import collect_space, survey_space
from kedge.engine.doctor.doctor import examine
from kedge.engine.settings import Settings
from tests.engine.doctor.clinic import PLENTY, Clinic, used

DAY = 86_400_000


class Later:
    """The clock of two days later: what was released is no longer held, new packs are young."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        return SystemClock().now() + 2 * DAY


@pytest.fixture
async def aged(tmp_path: Path) -> Clinic:
    """Used data with old packs, of which one session was purged."""
    clinic = await used(tmp_path)
    for path in clinic.store.glob("objects/pack/*"):
        os.utime(path, (1, 1))
    settings = Settings(retention=0.0)
    async with kedge.open(clinic.folder, data_dir=clinic.data, settings=settings) as engine:
        for session in (await engine.sessions.list()).sessions:
            if session.info.title == "More":
                await session.delete()
        await engine.upkeep.purge()
    return clinic


async def test_what_is_told_is_done(aged: Clinic) -> None:
    """The preview names what would be freed and why the rest stays, and changes nothing."""
    before = sorted(aged.store.glob("objects/pack/*"))
    [space] = await survey_space(data_dir=aged.data, clock=Later())
    assert sorted(aged.store.glob("objects/pack/*")) == before
    assert space.worktree == str(aged.folder)
    assert space.freed > 0
    whys = {each.title or each.what: each.why for each in space.held}
    assert whys["Work"] == "it has a revert that can be taken back"
    assert whys["Work (fork #1)"] == "the session can be reverted"
    assert whys["a worktree"] == "the next process that opens it compares files with it"
    [done] = await collect_space(data_dir=aged.data, clock=Later())
    assert done.failure == ""
    assert done.freed > 0
    [after] = await survey_space(data_dir=aged.data, clock=Later())
    assert (after.freed, after.scattered) == (0, 0)


async def test_nothing_is_freed_early(aged: Clinic) -> None:
    """On the day of its release, a session's files stay, and it is said why."""
    [early] = await survey_space(data_dir=aged.data)
    assert "it was released less than a day ago" in {each.why for each in early.held}
    [later] = await survey_space(data_dir=aged.data, clock=Later())
    assert early.freed < later.freed


async def test_beside_a_writing_engine(aged: Clinic) -> None:
    """Collections beside turns and reverts free what is garbage and nothing else."""
    async with kedge.open(aged.folder, data_dir=aged.data) as engine:
        agent = kedge.Agent(engine)
        at_work = True

        async def work(name: str) -> None:
            session = await engine.sessions.create(name)
            for n in range(3):
                await agent.prompt(session, f"write {name}{n}.txt {n}")
            messages = (await session.messages()).messages
            await session.revert(messages[0].info.id)
            await session.unrevert()

        async def collect() -> int:
            freed = 0
            while at_work:
                for each in await collect_space(data_dir=aged.data, clock=Later()):
                    assert each.failure == ""
                    freed += each.freed
            return freed

        collecting = asyncio.create_task(collect())
        await asyncio.gather(*map(work, "xy"))
        at_work = False
        assert await collecting > 0
        await agent.close()
    report = await examine(data_dir=aged.data, limits=lambda: PLENTY)
    assert report.findings == []
    async with kedge.open(aged.folder, data_dir=aged.data) as engine:
        for session in (await engine.sessions.list()).sessions:
            if session.info.title in ("x", "y"):
                await session.revert((await session.messages()).messages[0].info.id)
    assert [name for name in os.listdir(aged.folder) if name[0] in "xy"] == []
