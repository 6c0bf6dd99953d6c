"""A process that changes files with one of kedge's tools; `KEDGE_FAILPOINT` says where it dies.

What it should do comes as JSON: the tool and its input, which files to read first, and which ones
somebody else saves when the process comes by a fail point.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import kedge
from kedge._failpoints import armed
from kedge.agent.tools.apply_patch import apply_patch
from kedge.agent.tools.edit import edit
from kedge.agent.tools.read import read
from kedge.agent.tools.tool import Tool
from kedge.agent.tools.write import write
from kedge.engine import heartbeats, upkeep
from kedge.snapshot.files import atomic
from tests.agent.tools.scene import Scene
from tests.engine.engine_factory import NEVER, PAUSES
from tests.engine.revert_process import save

TOOLS: dict[str, Tool] = {each.name: each for each in (write, edit, apply_patch)}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the process should do."""

    session: str
    tool: str = ""
    """Without one, it only opens the engine."""
    input: dict[str, Any] = {}
    reads: list[str] = []
    saves: dict[str, tuple[str, str]] = {}
    """By fail point: a path and its new content."""
    swaps: bool = True
    """Whether the file system can exchange two names."""
    protects: bool = True
    back: dict[str, Any] | None = None
    """The input that takes back what the first did; with it, the two are repeated for ever."""


def saving(order: Order, folder: Path) -> ExitStack:
    """Have somebody else save files at fail points."""
    stack = ExitStack()
    for point, (name, text) in order.saves.items():
        act: Callable[[], None] = partial(save, folder / name, text)
        stack.enter_context(armed(point, act))
    return stack


async def main(folder: str, database: str, text: str) -> None:
    """Follow an order."""
    order = msgspec.json.decode(text, type=Order)
    heartbeats.EVERY = NEVER
    for name in PAUSES:
        setattr(upkeep, name, NEVER)
    if not order.swaps:
        atomic._system_call = lambda: None  # type: ignore[assignment]  # as where there is none
    settings = kedge.Settings(snapshots=order.protects)
    async with kedge.open(folder, database=database, settings=settings) as engine:
        if order.tool:
            scene = Scene(Path(folder), engine, await engine.sessions.get(order.session))
            for path in order.reads:
                await scene.run(read, filePath=path)
            with saving(order, Path(folder)):
                await scene.run(TOOLS[order.tool], **order.input)
                while order.back is not None:
                    sys.stdout.write(".")
                    sys.stdout.flush()
                    await scene.run(TOOLS[order.tool], **order.back)
                    await scene.run(TOOLS[order.tool], **order.input)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
