"""The journals of other processes, read as they grow."""

import os
from collections.abc import Iterator
from pathlib import Path

from kedge.snapshot.objects.journal import SUFFIX, Journal
from kedge.snapshot.objects.records import Tip


class ForeignJournals:
    """What other processes have written and not sealed yet, as of the last `refresh`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journals: dict[str, Journal] = {}

    def __iter__(self) -> Iterator[Journal]:
        return iter(self._journals.values())

    def refresh(self, own: set[str]) -> None:
        """Look for new journals and new records; `own` are the names of ours."""
        names = {name for name in os.listdir(self._folder) if name.endswith(SUFFIX)} - own
        for name in self._journals.keys() - names:
            self._journals.pop(name).close()
        for name in names - self._journals.keys():
            journal = _open(self._folder / name)
            if journal is not None:
                self._journals[name] = journal
        for journal in self._journals.values():
            journal.follow()

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if it is in one of them."""
        for journal in self._journals.values():
            found = journal.read(id)
            if found is not None:
                return found
        return None

    def has(self, id: bytes) -> bool:
        """Whether an object is in one of them."""
        return any(id in journal.index for journal in self._journals.values())

    def tips(self, name: str) -> list[Tip]:
        """Where these journals say that a ref stands."""
        return [journal.refs[name] for journal in self._journals.values() if name in journal.refs]

    def close(self) -> None:
        """Let go of the files."""
        while self._journals:
            self._journals.popitem()[1].close()


def _open(path: Path) -> Journal | None:
    try:
        return Journal(path, os.open(path, os.O_RDONLY))
    except FileNotFoundError:
        return None  # sealed since it was listed


def take_over_dead(folder: Path, own: set[str]) -> list[Journal]:
    """The journals whose writers are gone, now locked by us and hashed from end to end."""
    taken = []
    for name in sorted(os.listdir(folder)):
        if not name.endswith(SUFFIX) or name in own:
            continue
        journal = _open(folder / name)
        if journal is None:
            continue
        if journal.try_lock() and journal.is_linked():
            journal.verify()
            taken.append(journal)
        else:
            journal.close()
    return taken
