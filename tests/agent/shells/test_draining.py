"""Taking output that nobody waits for any more."""

import asyncio
import os
from pathlib import Path

import pytest

import kedge
from kedge.agent.shells import draining
from kedge.agent.shells.collecting import Collected
from kedge.agent.shells.draining import Pipe
from tests.support.patience import PATIENCE


async def test_what_nobody_waits_for_is_taken_at_leisure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine with nothing else to do is not kept busy by a program that writes without end."""
    source, sink = os.pipe()
    async with kedge.open(tmp_path, database=str(tmp_path / "kedge.db")) as engine:
        output = Collected(tmp_path / "out")
        pipe = Pipe(source, output, engine.processes)
        with monkeypatch.context() as patched:
            patched.setattr(draining, "_LEISURE", 3600)
            pipe.slow_down()
            os.write(sink, b"x")
            # A reader of the loop would be called in each of its turns.
            for _ in range(20):
                await asyncio.sleep(0)
            assert output.total == 0
        pipe.slow_down()
        os.close(sink)
        await pipe.finish(PATIENCE)
        assert pipe.has_ended
        assert output.total == 1


async def test_what_is_left_is_closed_with_the_engine(tmp_path: Path) -> None:
    """Nobody reads from it afterwards."""
    source, sink = os.pipe()
    async with kedge.open(tmp_path, database=str(tmp_path / "kedge.db")) as engine:
        pipe = Pipe(source, Collected(tmp_path / "out"), engine.processes)
        pipe.slow_down()
        engine.processes.keep(pipe)
    assert pipe.has_ended
    os.close(sink)
