"""The second process of the fuzzer: told over a pipe what to do, it changes a worktree and pauses.

It takes no snapshots; `kedge.testing.fuzz.mutator` starts it.
"""

import os
import sys

import msgspec

from kedge.testing.fuzz.mutator import Burst, mutate
from kedge.testing.fuzz.world import World


def main(arguments: list[str]) -> None:
    """Read bursts from standard input until it ends."""
    root, outside, limit = arguments
    world = World(root=os.fsencode(root), outside=os.fsencode(outside), limit=int(limit))
    for line in sys.stdin.buffer:
        paused = mutate(world, msgspec.json.decode(line, type=Burst))
        sys.stdout.buffer.write(msgspec.json.encode(paused) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
