"""A session in an empty folder, for tools to be called in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.engine import upkeep
from kedge.engine.settings import Settings
from tests.agent.tools.scene import Scene, scene_in
from tests.engine.engine_factory import NEVER, PAUSES
from tests.support.timeouts import PATIENCE, defaults_of


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens by itself, and all is waited for."""
    for name in PAUSES:
        monkeypatch.setattr(upkeep, name, NEVER)
    for name in ("stop_patience", "snapshot_budget"):
        monkeypatch.setitem(defaults_of(Settings), name, PATIENCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the session works in."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
async def scene(folder: Path, tmp_path: Path) -> AsyncIterator[Scene]:
    """A session in the folder."""
    async with scene_in(folder, tmp_path / "kedge.db") as made:
        yield made
