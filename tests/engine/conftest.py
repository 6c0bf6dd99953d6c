"""Engines to test with: on SQLite, on PostgreSQL where it matters; processes of their own on
request."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kedge.engine import upkeep
from kedge.engine.engine import Engine
from kedge.engine.settings import Settings
from tests.engine.engine_factory import NEVER, PAUSES, EngineFactory
from tests.support.timeouts import PATIENCE, defaults_of

WAITS = (
    "engine.worktrees._GIT_PATIENCE",
    "snapshot.objects.user_packs._PATIENCE",
    "snapshot.exclusive.PATIENCE",
    "snapshot.exclusive.SOON",
    "snapshot.repository.config._GIT_PATIENCE",
    "snapshot.repository.head._GIT_PATIENCE",
)
"""How long kedge waits for git, or for another kedge."""


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine indexes, recovers or tidies beside a test: on a loaded machine that is in its way.

    A test that is about it does it at the moment it means, or sets the pause itself.
    """
    for name in PAUSES:
        monkeypatch.setattr(upkeep, name, NEVER)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is waited for, however loaded the machine is; who tests a wait says how long it is."""
    for name in ("stop_patience", "snapshot_budget"):
        monkeypatch.setitem(defaults_of(Settings), name, PATIENCE)
    for name in WAITS:
        monkeypatch.setattr(f"kedge.{name}", PATIENCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to work in, which is not under version control."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def place(folder: Path, tmp_path: Path) -> EngineFactory:
    """The folder and a SQLite file."""
    return EngineFactory(folder, str(tmp_path / "kedge.db"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def any_place(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> EngineFactory:
    """The folder and a database of either kind."""
    if request.param == "postgres":
        return EngineFactory(folder, str(request.getfixturevalue("postgres_url")))
    return EngineFactory(folder, str(tmp_path / "kedge.db"))


@pytest.fixture
async def engine(place: EngineFactory) -> AsyncIterator[Engine]:
    """An engine on SQLite."""
    async with place.open() as opened:
        yield opened


@pytest.fixture
async def any_engine(any_place: EngineFactory) -> AsyncIterator[Engine]:
    """An engine on either kind of database."""
    async with any_place.open() as opened:
        yield opened


@pytest.fixture
async def children() -> AsyncIterator[AsyncExitStack]:
    """Ends the child processes that a test started, whatever happened to them."""
    async with AsyncExitStack() as stack:
        yield stack
