"""Runs `kedge` with an engine that never closes, and little patience or none to speak of."""

import asyncio
import sys

from kedge.cli.main import main
from kedge.engine.engine import Engine
from kedge.server import lifecycle


async def never(engine: Engine) -> None:
    """Hang."""
    await asyncio.Event().wait()


if __name__ == "__main__":
    lifecycle._STOP_PATIENCE = float(sys.argv[1])
    Engine.close = never  # type: ignore[assignment,method-assign]  # it is to hang
    sys.exit(main(sys.argv[2:]))
