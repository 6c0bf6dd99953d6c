"""The other process of a test: an agent on the same database that does as it is told, and says
what happens as one JSON text per line until it is told to go or killed."""

import asyncio
import json
import os
import sys
from pathlib import Path

import kedge
from kedge.agent import Agent
from kedge.domain.events import PartDelta, PartUpdated, SessionStatusChanged
from kedge.domain.parts import ToolPart
from kedge.engine import upkeep
from kedge.engine.event_log import Event
from kedge.engine.session import Session
from tests.agent.world import World
from tests.engine.engine_factory import NEVER, PAUSES
from tests.engine.engine_processes import Child


class Worker(Child):
    """Such a process, as the test sees it; killed at the end if it is still there."""

    def __init__(self, world: World, session: str, verb: str, text: str) -> None:
        module = [sys.executable, "-m", "tests.agent.worker"]
        self._command = [*module, str(world.root), world.database, session, verb, text]
        self._process = None

    async def __aenter__(self) -> "Worker":
        await super().__aenter__()
        return self

    async def hears(self, what: str) -> None:
        """Wait until it said this."""
        while await self.hear() != what:
            pass


def said(event: Event) -> str:
    """An event in one word or two."""
    properties = event.properties
    if isinstance(properties, PartDelta):
        return "speaks"
    if isinstance(properties, SessionStatusChanged):
        return type(properties.status).__name__.lower()
    if isinstance(properties, PartUpdated) and isinstance(properties.part, ToolPart):
        state = properties.part.state
        if (getattr(state, "metadata", None) or {}).get("output"):
            return f"{properties.part.tool} says something"
        return f"{properties.part.tool} {type(state).__name__}"
    return event.type


def say(word: str) -> None:
    """Tell the test."""
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()


async def main(root: str, database: str, session_id: str, verb: str, text: str) -> None:
    """Prompt or run a command, and tell of everything."""
    for name in PAUSES:
        setattr(upkeep, name, NEVER)
    world = World(Path(root), database)
    # Tasks may run in the background wherever they may where this was started.
    given = {name: os.environ[name] for name in ("OPENCODE_EXPERIMENTAL",) if name in os.environ}
    environ = {**world.environ, **given}
    async with world.open() as engine, Agent(engine, environ=environ) as agent:
        session = await engine.sessions.get(session_id)
        async with engine.events.subscribe() as events:
            listening = asyncio.create_task(_tell(events))
            begun = asyncio.create_task(_do(agent, session, verb, text))
            await asyncio.to_thread(sys.stdin.readline)
            await begun
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    say("gone")


async def _do(agent: Agent, session: Session, verb: str, text: str) -> None:
    match verb:
        case "prompt":
            await agent.prompt(session, text)
        case "shell":
            await agent.shell(session, text)
        case "summarize":
            await agent.summarize(session)


async def _tell(events: kedge.engine.event_log.Subscription) -> None:
    async for event in events:
        say(said(event))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
