"""Checks of the processes of sessions' commands."""

from kedge.domain.child_processes import Process
from kedge.domain.errors import LeaseLost, SessionNotFound
from kedge.domain.sessions import SessionInfo
from kedge.domain.wire_errors import aborted
from kedge.store.queries.leases import release_lease, take_over
from kedge.store.queries.processes import drop_process, processes_of, put_process
from kedge.testing.store.database import Database
from kedge.testing.store.scene import Scene, opened, refused


async def a_process_is_known_until_its_call_ends(database: Database) -> None:
    """All that is needed to find it again, while it may have to be ended."""
    async with opened(database) as scene:
        info, other = await scene.add_session(), await scene.add_session()
        fence = await scene.acquire(info)
        first, second = _process(info, 1), _process(info, 2)
        for each in (first, second):
            await scene.write(put_process, each, fence)
        assert await scene.read(processes_of, info.id) == [first, second]
        assert await scene.read(processes_of, other.id) == []
        await scene.write(drop_process, first)
        assert await scene.read(processes_of, info.id) == [second]


async def a_process_that_is_told_again_is_the_new_one(database: Database) -> None:
    """Its number may have been used before, for the same call."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        for started in (5, 9_000_000_000_000):
            await scene.write(put_process, _process(info, 1, started), fence)
        (found,) = await scene.read(processes_of, info.id)
        assert found.started == 9_000_000_000_000


async def processes_end_with_their_run(database: Database) -> None:
    """Whether the session is released or taken over by another process."""
    async with opened(database) as scene:
        for ends in (_give_back, _take_over):
            info = await scene.add_session()
            await ends(scene, info)
            assert await scene.read(processes_of, info.id) == []


async def only_the_owner_starts_processes(database: Database) -> None:
    """A process that lost the session must not start any, as they could not be found and ended."""
    async with opened(database) as scene:
        info = await scene.add_session()
        old = await scene.acquire(info)
        await scene.acquire(info, "other", alive=False)
        with refused(LeaseLost):
            await scene.write(put_process, _process(info, 1), old)
        with refused(SessionNotFound):
            await scene.write(put_process, _process(scene.session(), 1))
        assert await scene.read(processes_of, info.id) == []


async def _give_back(scene: Scene, info: SessionInfo) -> None:
    fence = await scene.acquire(info)
    await scene.write(put_process, _process(info, 1), fence)
    await scene.write(release_lease, fence)


async def _take_over(scene: Scene, info: SessionInfo) -> None:
    fence = await scene.acquire(info)
    await scene.write(put_process, _process(info, 1), fence)
    await scene.bulk(
        take_over,
        info.id,
        "other",
        is_alive=lambda owner, late: False,
        now=scene.clock.now(),
        error=aborted("gone"),
    )


def _process(info: SessionInfo, pid: int, started: int = 7) -> Process:
    return Process(
        session_id=info.id,
        part_id="prt_1",
        machine="here",
        boot="now",
        pid=pid,
        pgid=pid,
        started=started,
    )
