"""The process that is killed: opens an engine on a test's database and reverts, or only opens it.

`KEDGE_FAILPOINT` says where it ends; if it does not, it says so.
"""

import asyncio
import sys
from pathlib import Path

import kedge
from kedge._failpoints import armed
from kedge.domain.receipts import RevertScope
from kedge.engine import upkeep
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.snapshot.files import atomic
from tests.engine.engine_factory import NEVER, PAUSES
from tests.engine.engine_process import beat, say, told
from tests.engine.revert.scene import put
from tests.support.timeouts import PATIENCE

SAVED = "saved in the last moment\n"
SETTINGS = kedge.Settings(stop_patience=PATIENCE, snapshot_budget=PATIENCE)


async def recover(engine: Engine, session: Session) -> None:
    """What an engine does when it opens is all."""


async def revert(
    engine: Engine, session: Session, message: str, scope: RevertScope = "all"
) -> None:
    """Take the session back to a message."""
    await session.revert(message, scope=scope)


async def unrevert(engine: Engine, session: Session) -> None:
    """Put back what was taken out."""
    await session.unrevert()


async def undo(engine: Engine, session: Session, part: str) -> None:
    """Take one call out."""
    await session.undo(parts=[part])


async def redo(engine: Engine, session: Session, part: str) -> None:
    """Put one call back."""
    await session.redo(parts=[part])


async def race(engine: Engine, session: Session, message: str, name: str) -> None:
    """Revert, and have a file saved right before it is replaced."""
    with armed("before-exchange", lambda: save(engine.directory / name, SAVED)):
        await session.revert(message)


async def revert_without_swaps(engine: Engine, session: Session, message: str) -> None:
    """Revert as on a file system that can neither swap names nor take only a free one."""
    atomic._system_call = lambda: None  # type: ignore[assignment]  # as where there is none
    await session.revert(message)


async def work(engine: Engine, session: Session) -> None:
    """Stand in the middle of a shell call and of a declared one, both half done."""
    folder = engine.directory
    async with (
        session.turn("Work") as turn,
        turn.step() as step,
        step.tool("bash", {}, effects="unknown"),
        step.tool(
            "write", {}, reads=[folder / "edited"], writes=[folder / "edited", folder / "new/file"]
        ),
    ):
        put(folder / "edited", "half\n")
        put(folder / "new/file", "half\n")
        put(folder / "private", None)
        put(folder / "shell", "half\n")
        beat(engine, folder / "shell")
        say("half done")
        await told()


ROLES = {
    each.__name__: each
    for each in (recover, revert, unrevert, undo, redo, race, revert_without_swaps, work)
}


def save(path: Path, text: str) -> None:
    """Save a file as editors do, never into the one that is there."""
    beside = path.parent / "save.tmp"
    put(beside, text)
    beside.rename(path)


async def main(folder: str, database: str, session: str, role: str, *arguments: str) -> None:
    """Play a role."""
    for name in PAUSES:
        setattr(upkeep, name, NEVER)
    async with kedge.open(folder, database=database, settings=SETTINGS) as engine:
        await ROLES[role](engine, await engine.sessions.get(session), *arguments)
    say("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
