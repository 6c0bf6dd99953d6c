"""A process that runs one command with the bash tool, to be killed meanwhile.

It says its session's id on a line, and with `gate` which process waits at the gate.
"""

import asyncio
import sys
from pathlib import Path

import kedge
from kedge.agent.tools.bash import bash
from kedge.domain.child_processes import Process
from kedge.engine import upkeep
from kedge.engine.processes import Processes
from kedge.store.queries.fences import Fence
from tests.agent.tools.scene import scene_in
from tests.engine.engine_factory import NEVER, PAUSES


def say(word: object) -> None:
    """Tell the test."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def stand(self: Processes, fence: Fence, part_id: str, pid: int) -> Process | None:
    """Leave the process at its gate."""
    say(pid)
    await asyncio.Event().wait()
    return None


async def main(folder: str, database: str, mode: str, command: str) -> None:
    """Run the command in a new session."""
    for name in PAUSES:
        setattr(upkeep, name, NEVER)
    if mode == "gate":
        Processes.remember = stand  # type: ignore[method-assign]
    settings = kedge.Settings(snapshots=mode != "bare")
    async with scene_in(Path(folder), Path(database), settings=settings) as scene:
        say(scene.session.id)
        await scene.run(bash, command=command)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
