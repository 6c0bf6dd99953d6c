"""A served world."""

from collections.abc import AsyncIterator

import pytest

from tests.agent.conftest import patient, world
from tests.agent.world import World
from tests.server.world import Served, serve

__all__ = ["patient", "served", "world"]


@pytest.fixture
async def served(world: World) -> AsyncIterator[Served]:
    """A server on a folder with a few files, with the offline model and an empty home."""
    async with serve(world) as running:
        yield running
