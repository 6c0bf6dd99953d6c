"""A session that does things to files, for tests of blame."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kedge.domain.blame import LineOrigin
from kedge.engine.engine import Engine
from kedge.engine.session import Session


class Worker:
    """A session with a turn for each call."""

    def __init__(self, engine: Engine, session: Session, folder: Path) -> None:
        self._engine = engine
        self.session = session
        self._folder = folder
        self.prompts: list[str] = []
        self.calls: list[str] = []

    @asynccontextmanager
    async def call(self, *paths: str | bytes) -> AsyncIterator[None]:
        """A call that declares paths, or else may do anything."""
        async with self.session.turn("Go on") as turn, turn.step() as step:
            self.prompts.append(turn.message.id)
            declared = step.tool("write", {}, reads=paths, writes=paths)
            call = declared if paths else step.tool("bash", {}, effects="unknown")
            async with call:
                self.calls.append(call.part.id)
                yield

    async def write(self, path: str, text: str | bytes) -> None:
        """Write a file as a tool does."""
        async with self.call(path):
            content = text if isinstance(text, bytes) else text.encode()
            (self._folder / path).write_bytes(content)

    async def blame(self, path: str | bytes) -> list[tuple[str, str]]:
        """The lines of a file, each with the number of the call that wrote it, from 0, or else with
        what kind of line it is."""
        found = await self._engine.blame(path)
        return [(line.text, self._name(found.origins[line.origin])) for line in found.lines]

    def _name(self, origin: LineOrigin) -> str:
        if origin.partID is None:
            return origin.kind
        return str(self.calls.index(origin.partID)) if origin.partID in self.calls else "another"


@pytest.fixture
async def worker(engine: Engine, folder: Path) -> Worker:
    """A session."""
    return Worker(engine, await engine.sessions.create(), folder)


@pytest.fixture
async def other(engine: Engine, folder: Path) -> Worker:
    """Another session in the same folder."""
    return Worker(engine, await engine.sessions.create(), folder)
