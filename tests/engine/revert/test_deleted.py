"""Sessions that are deleted while a revert of them is under way."""

from pathlib import Path

import pytest

from kedge._failpoints import armed
from tests.engine.engine_factory import EngineFactory
from tests.engine.revert.scene import Crash, crash, names, told, turn


@pytest.mark.parametrize("point", ["plan-stored", "before-outcome"])
async def test_a_restored_session_can_take_back_its_revert(
    place: EngineFactory, folder: Path, point: str
) -> None:
    """The revert was carried through meanwhile; messages and files are as after any other."""
    async with place.open() as engine:
        session = await engine.sessions.create()
        prompt = await turn(session, (folder / "a", "1\n"))
        with armed(point, crash), pytest.raises(Crash):
            await session.revert(prompt)
        await session.delete()
    async with place.open() as engine:
        assert names(folder) == []
        session = await engine.sessions.restore(session.id)
        assert session.info.revert is not None
        assert await session.diff() == []
        assert told(await session.unrevert()) == {"a": "recreated"}
        assert [diff.file for diff in await session.diff()] == names(folder) == ["a"]
