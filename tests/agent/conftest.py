"""A world to test the agent in, on SQLite, and on PostgreSQL where it matters."""

from pathlib import Path

import pytest

from kedge.engine import upkeep
from kedge.engine.settings import Settings
from tests.agent.world import World
from tests.engine.conftest import WAITS
from tests.engine.engine_factory import NEVER, PAUSES
from tests.support.timeouts import PATIENCE, defaults_of


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is waited for, and no engine recovers or tidies by itself beside a test."""
    for name in PAUSES:
        monkeypatch.setattr(upkeep, name, NEVER)
    for name in ("stop_patience", "snapshot_budget"):
        monkeypatch.setitem(defaults_of(Settings), name, PATIENCE)
    for name in (*WAITS, "agent.system_prompt._GIT_PATIENCE", "server.sse.hub._PATCH_PATIENCE"):
        monkeypatch.setattr(f"kedge.{name}", PATIENCE)


@pytest.fixture
def world(tmp_path: Path, patient: None) -> World:
    """A folder, a home and a SQLite file."""
    return World.made(tmp_path)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def any_world(request: pytest.FixtureRequest, tmp_path: Path, patient: None) -> World:
    """A folder, a home and a database of either kind."""
    database = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return World.made(tmp_path, database)
