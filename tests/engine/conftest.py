"""Engines to test with: on SQLite, on PostgreSQL where it matters; processes of their own on
request."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kedge.engine.engine import Engine
from tests.engine.places import Place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to work in, which is not under version control."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def place(folder: Path, tmp_path: Path) -> Place:
    """The folder and a SQLite file."""
    return Place(folder, str(tmp_path / "kedge.db"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def any_place(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Place:
    """The folder and a database of either kind."""
    if request.param == "postgres":
        return Place(folder, str(request.getfixturevalue("postgres_url")))
    return Place(folder, str(tmp_path / "kedge.db"))


@pytest.fixture
async def engine(place: Place) -> AsyncIterator[Engine]:
    """An engine on SQLite."""
    async with place.open() as opened:
        yield opened


@pytest.fixture
async def any_engine(any_place: Place) -> AsyncIterator[Engine]:
    """An engine on either kind of database."""
    async with any_place.open() as opened:
        yield opened


@pytest.fixture
async def children() -> AsyncIterator[AsyncExitStack]:
    """Ends the child processes that a test started, whatever happened to them."""
    async with AsyncExitStack() as stack:
        yield stack
