"""Reverts and whatever else runs in a session: one at a time, in whatever process."""

import asyncio
from pathlib import Path

import pytest

from kedge._failpoints import armed
from kedge.domain.errors import SessionBusy, TurnAborted
from kedge.engine.engine import Engine
from tests.engine.engine_factory import EngineFactory
from tests.engine.revert.scene import put, tree, turn


async def test_a_running_session_is_not_reverted(engine: Engine, folder: Path) -> None:
    """Nor is it while it only waits for the model."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1"))
    async with session.turn("More"):
        with pytest.raises(SessionBusy):
            await session.revert(prompt)
    assert (folder / "a").exists()


async def test_a_revert_waits_for_a_run_that_is_being_aborted(
    place: EngineFactory, folder: Path
) -> None:
    """Clients abort and revert at once; also when the run is in another process's engine."""
    async with place.open() as engine, place.open() as other:
        session = await engine.sessions.create()
        prompt = await turn(session, (folder / "a", "1"))
        entered, leaving = asyncio.Event(), asyncio.Event()

        async def run() -> None:
            async with session.turn("More"):
                try:
                    entered.set()
                    await asyncio.Event().wait()
                finally:
                    leaving.set()

        running = asyncio.create_task(run())
        await entered.wait()
        remote = await other.sessions.get(session.id)
        aborting = asyncio.create_task(remote.abort())
        await leaving.wait()
        receipt = await remote.revert(prompt)
        assert receipt.applied
        assert not (folder / "a").exists()
        assert await aborting
        with pytest.raises(TurnAborted):
            await running


async def test_two_reverts_at_once_are_one_after_the_other(
    place: EngineFactory, folder: Path
) -> None:
    """Or one is told that the session is busy; the tree is that of one boundary."""
    async with place.open() as engine, place.open() as other:
        session = await engine.sessions.create()
        states, prompts = [], []
        for n in range(3):
            states.append(tree(folder))
            prompts.append(await turn(session, (folder / "a", f"{n}")))
        remote = await other.sessions.get(session.id)
        results = await asyncio.gather(
            session.revert(prompts[0]),
            remote.revert(prompts[1]),
            session.revert(prompts[2]),
            return_exceptions=True,
        )
        failures = [each for each in results if isinstance(each, BaseException)]
        assert all(isinstance(each, SessionBusy) for each in failures)
        await session.refresh()
        assert session.info.revert is not None
        assert tree(folder) == states[prompts.index(session.info.revert.messageID)]


async def test_a_cancelled_revert_is_carried_out_whole(engine: Engine, folder: Path) -> None:
    """Whoever stops waiting finds the session reverted and idle."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1"))
    task: asyncio.Task[object] | None = None

    def cancel() -> None:
        assert task is not None
        task.cancel()

    with armed("plan-stored", cancel):
        task = asyncio.create_task(session.revert(prompt))
        with pytest.raises(asyncio.CancelledError):
            await task
    await session.refresh()
    assert session.info.revert is not None
    assert not (folder / "a").exists()
    await turn(session, (folder / "b", "2"))


async def test_while_a_revert_runs_a_prompt_is_refused(place: EngineFactory, folder: Path) -> None:
    """As while a turn runs."""
    async with place.open() as engine, place.open() as other:
        session = await engine.sessions.create()
        put(folder / "a", "0")
        prompt = await turn(session, (folder / "a", "1"))
        remote = await other.sessions.get(session.id)
        tried: list[asyncio.Task[str]] = []
        with armed("before-outcome", lambda: tried.append(asyncio.create_task(turn(remote)))):
            await session.revert(prompt)
        # Whether it came in between or after, it found the session whole.
        await asyncio.gather(*tried, return_exceptions=True)
        assert (folder / "a").read_text() == "0"
