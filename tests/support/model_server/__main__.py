"""The scripted model server as a process of its own, for benchmarks and for trying things."""

import argparse
import asyncio
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.support.model_server.answers import Reply
from tests.support.model_server.recorded import recorded
from tests.support.model_server.requests import Request
from tests.support.model_server.server import ModelServer, Script


def main() -> None:
    """Print the port, then answer until the process is ended or its input is closed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.model_server")
    parser.add_argument("--script", type=Path, help="a JSON list of answers; else `recorded`")
    parser.add_argument("--repeat", action="store_true", help="begin again after the last answer")
    options = parser.parse_args()
    script: Script = recorded
    if options.script is not None:
        replies = msgspec.json.decode(options.script.read_bytes(), type=list[Reply])
        script = _over_and_over(replies) if options.repeat else replies
    asyncio.run(_serve(script))


def _over_and_over(replies: list[Reply]) -> Callable[[Request], Reply]:
    again = itertools.cycle(replies)
    return lambda _request: next(again)


async def _serve(script: Script) -> None:
    async with ModelServer(script) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        # A parent that dies closes the pipe, so that no server outlives its bench.
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    main()
