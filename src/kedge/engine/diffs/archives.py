"""The object stores of projects, opened to be read; no worktree is needed, it may be gone."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kedge.domain.errors import EngineClosed, ObjectMissing, SnapshotError
from kedge.snapshot.objects.store import ObjectStore

MOST_OPEN = 8
"""Stores that nobody reads at the moment are closed above this."""


@dataclass(slots=True)
class _Open:
    store: ObjectStore
    users: int = 0


class Archives:
    """The stores in a data folder; every method may be called by any thread."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "snapshots"
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._most = MOST_OPEN

    @contextmanager
    def opened(self, project: str) -> Iterator[ObjectStore]:
        """The store of a project, for as long as it is being read."""
        with self._lock:
            found = self._take(project)
        try:
            yield found.store
        finally:
            with self._lock:
                found.users -= 1
            self._close_unused()

    @contextmanager
    def reading(self, projects: Sequence[str]) -> Iterator[Callable[[str], bytes]]:
        """Reads blobs, each from the first of the projects that has it."""
        with ExitStack() as stack:
            stores = [stack.enter_context(self.opened(project)) for project in projects]
            yield partial(_read, stores)

    def close(self) -> None:
        """Let go of all of them; whoever is still reading does it when done."""
        with self._lock:
            self._most = 0
        self._close_unused()

    def _take(self, project: str) -> _Open:
        if self._most == 0:
            raise EngineClosed
        found = self._open.get(project)
        if found is None:
            found = self._open[project] = _Open(ObjectStore(self._folder / project))
        self._open.move_to_end(project)
        found.users += 1
        return found

    def _close_unused(self) -> None:
        with self._lock:
            unused = [name for name, found in self._open.items() if not found.users]
            too_many = max(0, len(self._open) - self._most)
            closing = [self._open.pop(name) for name in unused[:too_many]]
        for found in closing:
            # It wrote nothing of its own: what it could not tidy up is left for the next process.
            with suppress(SnapshotError):
                found.store.close()


def _read(stores: Sequence[ObjectStore], blob: str) -> bytes:
    for store in stores:
        with suppress(ObjectMissing):
            return store.read(bytes.fromhex(blob))[1]
    raise ObjectMissing(blob)
