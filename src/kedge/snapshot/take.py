"""Takes a snapshot: from the known state of the files, through their trees, to a keep-commit."""

import math
import re
from collections.abc import Mapping
from time import monotonic
from urllib.parse import quote_from_bytes, unquote_to_bytes

from kedge.domain.errors import SnapshotNotFound
from kedge.snapshot.maintenance import Maintenance
from kedge.snapshot.objects.durable import make_folder, replace_file
from kedge.snapshot.objects.formats import BLOB, TREE
from kedge.snapshot.objects.keeps import Keep
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.objects.user_packs import BlobCopy
from kedge.snapshot.repository.head import read_head
from kedge.snapshot.resources import Opened
from kedge.snapshot.values import Head, Snapshot
from kedge.snapshot.worktree.seed import Seed, seed_from
from kedge.snapshot.worktree.stat_cache import Remembered, load, save

_ID = re.compile("[0-9a-f]{40}")
# Files that keep changing are listed for users, who will not read more than this.
_MOST_UNSTABLE = 100


def keep(store: ObjectStore, snapshot: Snapshot, session: str | None) -> None:
    """Hold a snapshot for a session, or for a while; durable when this returns."""
    plain, executable = snapshot.base
    store.keep(
        session,
        files=bytes.fromhex(snapshot.id),
        notes=bytes.fromhex(snapshot.notes),
        base=store.put(BLOB, b"%o %o" % (plain, executable)),
        fields=_fields(snapshot),
    )
    store.flush()


def find(store: ObjectStore, id: str) -> Snapshot:
    """The newest snapshot with this tree."""
    found = store.find(bytes.fromhex(id)) if _ID.fullmatch(id) else None
    if found is None:
        raise SnapshotNotFound(id)
    return as_snapshot(store, found)


def as_snapshot(store: ObjectStore, kept: Keep) -> Snapshot:
    """The snapshot in a keep-commit."""
    plain, executable = store.read(kept.held.base)[1].split()
    return Snapshot(
        id=kept.held.files.hex(),
        notes=kept.held.notes.hex(),
        base=(int(plain, 8), int(executable, 8)),
        head=_head(kept.held.fields),
        unstable=tuple(map(unquote_to_bytes, kept.held.fields.get("unstable", "").split())),
    )


def _fields(snapshot: Snapshot) -> dict[str, str]:
    fields = {}
    if snapshot.head is not None:
        fields["head-ref"] = snapshot.head.ref or ""
        fields["head-commit"] = snapshot.head.commit or ""
    if snapshot.unstable:
        fields["unstable"] = " ".join(map(quote_from_bytes, snapshot.unstable[:_MOST_UNSTABLE]))
    return fields


def _head(fields: Mapping[str, str]) -> Head | None:
    if "head-ref" not in fields:
        return None
    return Head(ref=fields["head-ref"] or None, commit=fields.get("head-commit") or None)


def remember(opened: Opened, last: Snapshot) -> None:
    """Store the known state of the files, and keep the snapshot that contains all of it."""
    top, store = opened.worktree.top, opened.store
    tree = bytes.fromhex(last.id)
    if top.tree != tree:
        # A file was read since: it is in no snapshot yet.
        return
    # Of all snapshots ever kept for this, only the newest is useful.
    store.release(opened.holder)
    keep(store, last, opened.holder)
    make_folder(opened.memory.parent)
    name = f"{opened.memory.name}.new"
    replace_file(opened.memory, save(top, tree), beside=name)


def recall(opened: Opened) -> Remembered | None:
    """The state that an earlier process stored, if all of it is still in the object store."""
    try:
        content = opened.memory.read_bytes()
    except OSError:
        return None
    memory = load(opened.root.path, content)
    held = next(opened.store.chain(opened.holder), None)
    if memory is None or held is None or held.held.files != memory.snapshot:
        return None
    # From here on this process holds it, even if the memory is lost.
    keep(opened.store, as_snapshot(opened.store, held), None)
    now = next(opened.store.chain(opened.holder), None)
    return memory if now is not None and now.held.files == memory.snapshot else None


class Taker:
    """Takes the snapshots of one worktree; called by the holder of the turn."""

    def __init__(self, opened: Opened, upkeep: Maintenance) -> None:
        self._opened = opened
        self._store = opened.store
        self._worktree = opened.worktree
        self._upkeep = upkeep
        self._last: Snapshot | None = None
        self._seed: Seed | None = None
        """What the first snapshot takes from the user's repository, until all of it is copied."""
        self._copy: BlobCopy | None = None
        """Protects the copies until the first snapshot does."""
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
            # Once they have a snapshot, users may delete the repository that earlier ones still
            # need.
            self._upkeep.settle_debts(deadline)
        self._last = snapshot = self._keep(session)
        self._upkeep.note_use()
        return snapshot

    def catch_up(self) -> None:
        """Do the work that a snapshot had no time for, so that the next one need not."""
        self._worktree.follow_root()
        self._worktree.refresh()
        if self._seed is not None and self._settle(self._seed, math.inf):
            self._upkeep.check_wanted()
            self._worktree.refresh()
        if self._copy is not None:
            # Without the copy nothing else holds the objects that were found in the store.
            self._keep(None)

    def _keep(self, session: str | None) -> Snapshot:
        """Keep the known state of the files."""
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
        keep(self._store, snapshot, session)
        self._let_go()
        return snapshot

    @property
    def has_taken(self) -> bool:
        """Whether a snapshot was taken yet."""
        return self._last is not None

    def remember(self) -> None:
        """Store the known state of the files for the next process."""
        if self._last is not None:
            remember(self._opened, self._last)

    def close(self) -> None:
        """Stop copying."""
        self._let_go()

    def _let_go(self) -> None:
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def _settle(self, seed: Seed, deadline: float) -> bool:
        """Complete the copies from the user's index; returns whether files must be read instead."""
        # Git copies meanwhile.
        self._worktree.write(self._put_tree, self._put_blob)
        try:
            seed.copy.finish((deadline - monotonic()) / 2)
        finally:
            # However it ended, nothing more will be copied.
            self._seed = None
            self.seeded = len(seed.copy.copied)
            lacking = seed.copy.lacking()
            if lacking:
                self._worktree.distrust(lacking)
        return bool(lacking)

    def _recall(self) -> None:
        """Restore the known state of the files without reading them."""
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
