"""How much room a store takes, and what keeps it from taking less."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The size of a store in bytes, and who holds what."""

    journals: int
    packs: int
    budget: int
    keeps: Mapping[str, int] = field(default_factory=dict)
    """By ref, how many snapshots are held; looked at only when over the budget."""

    @property
    def over_budget(self) -> int:
        return max(0, self.journals + self.packs - self.budget)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What keeps the space, most first."""
        most = sorted(self.keeps.items(), key=lambda item: (-item[1], item[0]))
        return tuple(f"{name} holds {count} snapshots" for name, count in most)


def size_of(folder: Path) -> int:
    """The room that the files of a folder take on the disk."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue  # a journal was sealed, or a pack replaced
    return total
