"""A process that is paused in the middle of a revert for longer than its lease lasts, as a machine
that is suspended: others take the session over, and it writes no file after that."""

from functools import partial
from pathlib import Path

import pytest

from kedge.domain.sessions import Idle
from kedge.engine.engine import Engine
from kedge.store.queries.leases import run_of
from kedge.store.queries.plans import pending_plans, unfinished_plans
from kedge.testing.replay import both
from tests.engine.engine_factory import EngineFactory
from tests.engine.engine_processes import Child
from tests.engine.revert.scene import names, put, told, turn


async def until_expired(engine: Engine, session_id: str) -> None:
    """Wait until the lease of a session is over by the clock of the database."""
    while not (await engine.store.read(partial(run_of, session_id)))[1]:
        pass


async def test_a_paused_revert_writes_nothing_after_it_was_taken_over(
    any_place: EngineFactory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops before its next file, says so, and leaves the plan to whoever took the session."""
    for name in ("a", "b", "c"):
        put(folder / name, "before\n")
    async with any_place.open() as engine:
        session = await engine.sessions.create()
        files = [(folder / name, "after\n") for name in ("a", "b", "c")]
        prompt = await turn(session, *files)
        async with Child(any_place, "revert_and_pause", session.id, prompt) as child:
            await child.until_paused()
            written = [path for path, _ in files if path.read_text() == "before\n"]
            assert len(written) == 1
            await until_expired(engine, session.id)
            with monkeypatch.context() as patched:
                patched.setattr("kedge.snapshot.exclusive.PATIENCE", 0.0)
                await engine.recovery.recover()
            # It is taken over, but the paused process still has the folder.
            (plan,) = await engine.store.read(unfinished_plans)
            child.resume()
            assert await child.hear_all() == ["LeaseLost"]
        assert [path for path, _ in files if path.read_text() == "before\n"] == written
        assert names(folder) == ["a", "b", "c"]
        await engine.recovery.recover()
        assert await engine.store.read(unfinished_plans) == []
        (done,) = await engine.store.read(lambda: pending_plans(session.id))
        assert done.id == plan.id
        assert told(done.data.receipt) == dict.fromkeys(["a", "b", "c"], "restored")
        assert {path.read_text() for path, _ in files} == {"before\n"}
        assert await session.status() == Idle()
        replayed, tables = await both(engine.store)
        assert replayed == tables
