"""The port for knowing what changed: a watch is armed on folders and asked what to look at again.

A hint never says what happened, only where to look; a watch in any doubt says "everything".
"""

from dataclasses import dataclass, field
from typing import Protocol

from kedge.snapshot.worktree.entries import Folder


@dataclass(slots=True)
class Hints:
    """Where to look again."""

    everything: bool = False
    names: dict[Folder, dict[bytes, "Hint"]] = field(default_factory=dict)


@dataclass(slots=True)
class Hint:
    """Why to look at a name: its stat data do not tell all."""

    written: bool = False
    """Its content may have changed though its stat data are the same."""
    replaced: bool = False
    """Another folder may stand in its place, whatever its inode number is."""


class Watch(Protocol):
    """One way to know what changed."""

    way: str
    overflows: int
    """How often it lost count, and everything had to be looked at."""

    def add(self, folder: Folder) -> None:
        """Begin to notice changes in a folder, before it is listed; raises `WatchesUsedUp`."""
        ...

    def remove(self, folder: Folder) -> None:
        """Stop noticing; the folder is gone or no longer covered."""
        ...

    def collect(self) -> Hints:
        """Everything noticed since the last call, all that was written before this one included."""
        ...

    def count(self) -> int:
        """How many folders are being watched."""
        ...

    def close(self) -> None: ...


class WatchesUsedUp(Exception):
    """The machine allows no more watches."""


class Rescan:
    """Knows nothing between two looks: everything is compared by its stat data each time."""

    way = "scan"
    overflows = 0

    def add(self, folder: Folder) -> None:
        """Nothing to arm."""

    def remove(self, folder: Folder) -> None:
        """Nothing to disarm."""

    def collect(self) -> Hints:
        return Hints(everything=True)

    def count(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to release."""
