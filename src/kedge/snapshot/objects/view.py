"""A store as a reader sees it that changes nothing: journals of others are neither taken over nor
sealed, and no folder is made."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from kedge.domain.errors import ObjectMissing, SnapshotError, SnapshotStoreDamaged
from kedge.snapshot.objects.alternates import Borrowed
from kedge.snapshot.objects.durable import disk_errors
from kedge.snapshot.objects.formats import EMPTY_TREE, TREE
from kedge.snapshot.objects.gc import CollectionPause
from kedge.snapshot.objects.journal import ForeignJournals, Journal
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packs import Packs
from kedge.snapshot.objects.refs import Refs

_LOOK = 0.05


class StoreView:
    """The objects and refs of a store; not thread-safe."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root.absolute())
        self._packs = Packs(self.layout.objects)
        self._foreign = ForeignJournals(self.layout.journals)
        self._refs = Refs(self.layout)
        self._borrowed = Borrowed(self.layout)

    def refresh(self) -> None:
        """Read what was added since."""
        with disk_errors(f"reading {self.layout.root}"):
            self._foreign.refresh(set())
            self._packs.reopen()

    def read(self, id: bytes) -> tuple[bytes, bytes]:
        """Kind and content of an object; the content is checked against the id."""
        if id == EMPTY_TREE:
            return TREE, b""
        damage: SnapshotStoreDamaged | None = None
        with disk_errors(f"reading {self.layout.root}"):
            for source in (self._packs.read, self._foreign.read, self._borrowed.read):
                try:
                    found = source(id)
                except SnapshotStoreDamaged as error:
                    damage = error
                    continue
                if found is not None:
                    return found
        raise damage or ObjectMissing(id.hex())

    def has(self, id: bytes) -> bool:
        """Whether an object is in the store itself."""
        return id == EMPTY_TREE or self._foreign.has(id) or self._packs.exists(id)

    def journals(self) -> Iterator[Journal]:
        """The journals as of the last `refresh`."""
        yield from self._foreign

    def tips(self) -> dict[str, set[bytes]]:
        """The commits of each ref, in files and in journals."""
        # Journals first: a ref moves from there to its file.
        found: dict[str, set[bytes]] = {}
        with disk_errors(f"reading the refs of {self.layout.root}"):
            self._foreign.refresh(set())
            for journal in self._foreign:
                for name, tip in journal.refs.items():
                    found.setdefault(name, set()).add(tip.commit)
            for name, commit in self._refs.all().items():
                found.setdefault(name, set()).add(commit)
        return found

    @contextmanager
    def without_collections(self, patience: float) -> Iterator[None]:
        """Keep all processes from collecting; wait for one that does."""
        deadline = monotonic() + patience
        with disk_errors(f"pausing collections of {self.layout.root}"):
            while (pause := CollectionPause.begin(self.layout)) is None:
                if monotonic() > deadline:
                    raise SnapshotError(
                        f"another process has been collecting {self.layout.root} for too long;"
                        " try again when it is done"
                    )
                sleep(_LOOK)
        try:
            yield
        finally:
            pause.end()

    def close(self) -> None:
        """Close the files."""
        self._foreign.close()


def stores_in(data: Path) -> list[Path]:
    """The stores of a data folder, one for each project."""
    folder = data / "snapshots"
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(os.listdir(folder)) if (folder / name).is_dir()]
