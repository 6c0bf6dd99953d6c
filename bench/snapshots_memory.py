"""`python -m bench.snapshots_memory <folder> <data>`: prints by how many bytes a process grows, now
and at its largest, when it takes snapshots of a folder."""

import gc
import sys
from pathlib import Path

# Imported before anything is weighed: what a library takes by itself is not what a tree takes.
import pygit2  # noqa: F401

from bench.snapshots_sides import open_snapshots, wait_until_independent


def main(root: Path, data: Path) -> None:
    """Watch a folder and say what that took."""
    before = _status("VmRSS")
    with open_snapshots(root, data) as snapshots:
        snapshots.track()
        wait_until_independent(snapshots)
        gc.collect()
        print(_status("VmRSS") - before, _status("VmHWM") - before)


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"this system does not say {name}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
