"""What a server holds in memory, with whatever processes it started."""

import subprocess
from collections.abc import Iterator
from pathlib import Path


def resident(pid: int) -> int:
    """Bytes of a process and its children that are in memory."""
    processes = ",".join(map(str, _tree(pid)))
    asked = ["ps", "-o", "rss=", "-p", processes]
    told = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True).stdout
    return sum(int(kilobytes) * 1024 for kilobytes in told.split())


def _tree(pid: int) -> Iterator[int]:
    """Where the system does not tell who a process's children are, the process alone."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _tree(int(child))
