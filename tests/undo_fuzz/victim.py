"""The process that is killed: opens an engine and stands in the middle of a call, or reverts until
it reaches the fail point in its environment. It does what the JSON in its argument says."""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any, Literal

import kedge
from kedge.engine.session import Session
from tests.undo_fuzz.disk_level import write_files
from tests.undo_fuzz.world import File, State


async def stand_in_call(session: Session, orders: dict[str, Any]) -> None:
    """Change files in a call, say where, and wait to be killed."""
    paths = orders["paths"] if orders["role"] == "declared" else []
    effects: Literal["none", "unknown"] = "none" if paths else "unknown"
    async with (
        session.turn("Work") as turn,
        turn.step() as step,
        step.tool("work", {}, reads=paths, writes=paths, effects=effects) as call,
    ):
        write_files(Path(orders["root"]), decoded(orders["changes"]))
        said = [turn.message.id, step.message.id, call.part.id]
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)


def decoded(changes: dict[str, Any]) -> dict[str, State]:
    """Changes as they were before they were written into the orders."""
    return {
        path: None if each is None else File(base64.b64decode(each[0]), each[1])
        for path, each in changes.items()
    }


async def main(orders: dict[str, Any]) -> None:
    """Do as ordered."""
    data = Path(orders["data"])
    async with kedge.open(orders["root"], database=data / "kedge.db", data_dir=data) as engine:
        session = await engine.sessions.get(orders["session"])
        if orders["role"] == "revert":
            await session.revert(orders["message"], orders["part"])
        else:
            await stand_in_call(session, orders)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
