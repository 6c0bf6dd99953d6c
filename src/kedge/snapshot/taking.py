"""How one snapshot is taken: from what is known of the files, through their trees, to a keep on the
disk; whose turn it is to take one is the guard's concern."""

import math
from time import monotonic

from kedge.snapshot import kept
from kedge.snapshot.memory import recall, remember
from kedge.snapshot.objects.formats import BLOB, TREE
from kedge.snapshot.objects.user_packs import BlobCopy
from kedge.snapshot.opening import Opened
from kedge.snapshot.repository.head import read_head
from kedge.snapshot.upkeep import Upkeep
from kedge.snapshot.values import Snapshot
from kedge.snapshot.worktree.seeding import Seed, seed_from


class Taker:
    """Takes the snapshots of one worktree; called by whoever has the turn."""

    def __init__(self, opened: Opened, upkeep: Upkeep) -> None:
        self._opened = opened
        self._store = opened.store
        self._worktree = opened.worktree
        self._upkeep = upkeep
        self._last: Snapshot | None = None
        self._seed: Seed | None = None
        """What the first snapshot takes from the user's repository, until all of it is copied."""
        self._copy: BlobCopy | None = None
        """What keeps the copies, until the first snapshot does."""
        self.seeded = 0
        upkeep.catch_up = self.catch_up

    def take(self, deadline: float, session: str | None = None) -> Snapshot:
        """Take one until a time of the monotonic clock, kept for a session or for a while."""
        self._worktree.follow_root()
        if not self._worktree.is_known and self._seed is None:
            self._recall()
        self._worktree.refresh(deadline)
        if self._seed is not None and self._settle(self._seed, deadline):
            self._worktree.refresh(deadline)
        if self._upkeep.owes:
            # Whoever has a snapshot may delete the repository that earlier ones still need.
            self._upkeep.settle_debts(deadline)
        self._last = snapshot = self._keep(session)
        self._upkeep.note_use()
        return snapshot

    def catch_up(self) -> None:
        """Do what a snapshot had no time for, so that the next one need not; takes its time."""
        self._worktree.follow_root()
        self._worktree.refresh()
        if self._seed is not None and self._settle(self._seed, math.inf):
            self._upkeep.check_wanted()
            self._worktree.refresh()
        if self._copy is not None:
            # Without the copy nothing else holds what was found in the store.
            self._keep(None)

    def _keep(self, session: str | None) -> Snapshot:
        """Keep what is known of the files."""
        self._worktree.check_root()
        trees = self._worktree.write(self._put_tree, self._put_blob)
        repository = self._worktree.spaces.root.repository
        snapshot = Snapshot(
            id=trees.files.hex(),
            notes=trees.notes.hex(),
            base=self._worktree.base,
            head=read_head(repository) if repository is not None else None,
            unstable=self._worktree.unstable(),
        )
        kept.keep(self._store, snapshot, session)
        self._let_go()
        return snapshot

    @property
    def has_taken(self) -> bool:
        """Whether there was a snapshot yet."""
        return self._last is not None

    def remember(self) -> None:
        """Write down what is known of the files for the next process."""
        if self._last is not None:
            remember(self._opened, self._last)

    def close(self) -> None:
        """Copy nothing any more."""
        self._let_go()

    def _let_go(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def _settle(self, seed: Seed, deadline: float) -> bool:
        """Have what came from the user's index in the store; whether files must be read for it."""
        # Git copies meanwhile.
        self._worktree.write(self._put_tree, self._put_blob)
        try:
            seed.copy.finish((deadline - monotonic()) / 2)
        finally:
            # However it ended, nothing more comes from there.
            self._seed = None
            self.seeded = len(seed.copy.copied)
            lacking = seed.copy.lacking()
            if lacking:
                self._worktree.distrust(lacking)
        return bool(lacking)

    def _recall(self) -> None:
        """Find what is known of the files without reading them."""
        memory = recall(self._opened)
        if memory is not None:
            self._worktree.lister.memory = memory
            return
        self._seed = seed_from(self._opened.root, self._worktree.spaces.root, self._store)
        if self._seed is not None:
            self._copy = self._seed.copy
            self._worktree.lister.memory = self._seed

    def _put_tree(self, content: bytes) -> bytes:
        return self._store.put(TREE, content)

    def _put_blob(self, content: bytes) -> bytes:
        return self._store.put(BLOB, content)
