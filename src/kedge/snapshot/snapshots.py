"""Snapshots of one worktree: takes, compares and restores them. All methods are thread-safe.

Sessions are known here only by their ids, under which snapshots are kept.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from kedge.domain.errors import RootBusy
from kedge.domain.file_states import Present, State
from kedge.domain.sessions import FileDiff
from kedge.snapshot import history, take
from kedge.snapshot.diffs.patches import file_diffs, git_diff
from kedge.snapshot.diffs.trees import TreeChange, compare, tree_changes
from kedge.snapshot.exclusive import Hold, Order, Ordered
from kedge.snapshot.files.reader import Disk
from kedge.snapshot.files.writer import Writer
from kedge.snapshot.inspect import capture, identify, look, older_than
from kedge.snapshot.maintenance import Maintenance
from kedge.snapshot.objects.formats import BLOB
from kedge.snapshot.objects.layout import Usage
from kedge.snapshot.protection import Guard, why_refused
from kedge.snapshot.repository.signatures import signature
from kedge.snapshot.resources import Opened, open_worktree
from kedge.snapshot.restore import put_back, steps_back, undoing
from kedge.snapshot.take import Taker
from kedge.snapshot.values import (
    Change,
    Patch,
    Protection,
    Result,
    Snapshot,
    SnapshotSettings,
    Status,
)

SnapshotLike = Snapshot | str

LARGE_INDEX = 1 << 20
"""Bytes; with the index of some ten thousand files, a first snapshot takes noticeably long."""


class Snapshots:
    """The snapshots of one worktree."""

    def __init__(self, opened: Opened, settings: SnapshotSettings, way: str | None) -> None:
        self._opened = opened
        self._root = opened.root
        self._store = opened.store
        self._worktree = opened.worktree
        self.settings = settings
        self._guard = Guard(settings.budget, self._wake)
        self._upkeep = Maintenance(self._store, self._worktree, self._guard, settings)
        self._taker = Taker(opened, self._upkeep)
        self.order = Order(opened, self._guard, self._taker, settings.file_size)
        self._way = way if way == "declared" else None
        if self._way is not None:
            self._guard.refuse("only declared paths are covered, as requested", Protection.DECLARED)
        if reason := why_refused(self._root.path, self._worktree.spaces.private):
            self._guard.refuse(reason)

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str],
        *,
        data: str | os.PathLike[str],
        project: str,
        settings: SnapshotSettings | None = None,
        way: str | None = None,
    ) -> Self:
        """Open the snapshots of a folder; the first snapshot reads it.

        `data` is the folder for snapshots, and `project` names the store in it: worktrees of one
        project share common content. `way` is how changes are detected; by default the best way
        that the machine offers.
        """
        settings = settings or SnapshotSettings()
        opened = open_worktree(
            root, data=Path(data).absolute(), project=project, settings=settings, way=way
        )
        return cls(opened, settings, way)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop background work, and leave everything in order for the next process."""
        if self._guard.is_closing:
            return
        self._guard.is_closing = True
        if not self._guard.is_ours():
            # A forked child closes what it inherited; the rest belongs to its parent.
            self._worktree.close()
            self._root.close()
            return
        self._upkeep.hurry()
        with self._guard.patient_turn():
            # All users are done now, and no new one can begin.
            known = self._guard.protection is Protection.FULL
        self._guard.wait_until_unused()
        self._upkeep.stop()
        try:
            self._taker.close()
            if known:
                self._taker.remember()
        finally:
            self._worktree.close()
            self._store.close()
            self._root.close()

    def _wake(self) -> None:
        self._upkeep.wake()

    # Taking

    def track(self, *, session: str | None = None) -> Snapshot:
        """Take a snapshot of the worktree as it is now, kept for a session or for a while.

        Raises `SnapshotRefused`, `SnapshotTimeout` or another `SnapshotError` if that fails.
        """
        with self._guard.turn() as deadline:
            self._clean_up()
            return self._taker.take(deadline, session)

    @contextmanager
    def ordered(self) -> Iterator[Ordered]:
        """Get exclusive access: no other kedge takes a snapshot or applies steps in this worktree.

        Raises `RootBusy` if another one does so for too long.
        """
        with self._held() as held:
            yield self.order.under(held)

    @contextmanager
    def _held(self) -> Iterator[Hold]:
        held = self.order.wait()
        try:
            yield held
        finally:
            held.release()

    def _follow_root(self) -> None:
        if not self._root.is_same():
            with self._guard.patient_turn():
                self._worktree.follow_root()

    def _clean_up(self) -> None:
        """Clean up after a process that died while it restored files."""
        if self._opened.plans.are_there():
            # Unless another process is doing so right now.
            with suppress(RootBusy), self._root.lock(0):
                self._opened.plans.clean_up(self._root)

    def capture(self, paths: Iterable[bytes], *, session: str | None = None) -> dict[bytes, State]:
        """Store the present content of these paths; from now on they are covered even if
        ignored."""
        with self._guard.use():
            self._follow_root()
            limit = self.settings.file_size
            states = {path: capture(self._root, self._store, path, limit) for path in paths}
            self._worktree.declare(states)
            present = (state for state in states.values() if isinstance(state, Present))
            self._store.hold(session, [bytes.fromhex(state.blob) for state in present])
            self._store.flush()
        return states

    def identify(self, paths: Iterable[bytes]) -> dict[bytes, State]:
        """The present states of these paths, with computed blob ids; nothing is stored."""
        with self._guard.use(), self._root.opened_again() as root:
            return {path: identify(root, path) for path in paths}

    def moved_in(
        self, states: Mapping[bytes, Present], since: int, looked: int | None
    ) -> set[bytes]:
        """Those of the paths whose file is older than a time of the file clock, and the same as no
        other file that kedge looks at: it was moved there from where kedge does not look.

        One that was written since is only counted if it came to its path after `looked`, a time of
        the monotonic clock at which all that kedge looks at was known.
        """
        with self._guard.use(), self._root.opened_again() as root:
            older = older_than(root, states, since)
        if not older:
            return set()
        moved = {path for path, times in older.items() if times.written < since}
        blobs = {bytes.fromhex(states[path].blob) for path in older}
        with self._guard.patient_turn():
            if looked is not None:
                written = {path: older[path].made for path in older.keys() - moved}
                moved |= self._worktree.moved_in(written, looked)
            known = self._worktree.holding(blobs)
        copied = {file.blob.hex() for path, file in known if path not in states}
        return {path for path in moved if states[path].blob not in copied}

    def look(self, paths: Iterable[bytes], *, session: str | None = None) -> dict[bytes, Disk]:
        """The present states of these paths, ignored or not, stored so that they can be
        recovered."""
        with self._guard.use(), self._root.opened_again() as root:
            return look(root, self._store, paths, session=session, limit=self.settings.file_size)

    def put_blobs(self, contents: Iterable[bytes], *, session: str | None = None) -> list[str]:
        """Store contents that are in no file, and keep them for a session or for a while."""
        with self._guard.use():
            blobs = [self._store.put(BLOB, content) for content in contents]
            self._store.hold(session, blobs)
            self._store.flush()
        return [blob.hex() for blob in blobs]

    def inherit(self, origin: str, fork: str) -> None:
        """Keep for a fork what is kept for its origin now."""
        with self._guard.use():
            self._store.inherit(origin, fork)
            self._store.flush()

    def release(self, session: str) -> None:
        """Keep nothing for a session any more; what no other session keeps is deleted after a
        while."""
        self._store.release(session)
        self._store.flush()

    # Comparing

    def patch(self, since: SnapshotLike) -> Patch:
        """The files that changed since a snapshot, as absolute paths."""
        old = self._find(since)
        changes = history.changes(self._read, old, self.track())
        files = [self._root.path + b"/" + change.path for change in changes if change.is_covered]
        return Patch(old.id, tuple(map(os.fsdecode, files)))

    def changes(self, old: SnapshotLike, new: SnapshotLike) -> tuple[Change, ...]:
        """Every path whose state differs, with its states in both snapshots."""
        return history.changes(self._read, self._find(old), self._find(new))

    def uncovered_changes(self, old: SnapshotLike, new: SnapshotLike) -> tuple[Change, ...]:
        """Paths that may have changed, but where one of two snapshots does not know."""
        return history.uncovered_changes(self._read, self._find(old), self._find(new))

    def diff(self, since: SnapshotLike) -> str:
        """The changes since a snapshot, as plain `git diff` text."""
        old = self._find(since)
        return git_diff(self._covered(old, self.track()), self._read)

    def diff_full(
        self, old: SnapshotLike, new: SnapshotLike, *, room: int | None = None
    ) -> list[FileDiff]:
        """The changes between two snapshots, file by file, with at most `room` bytes of text."""
        return file_diffs(self._covered(self._find(old), self._find(new)), self._read, room=room)

    def diffs_of(self, changes: Iterable[Change], *, room: int | None = None) -> list[FileDiff]:
        """As `diff_full`, for given changes of any origin."""
        return file_diffs(tree_changes(changes), self._read, room=room)

    def git_diff_of(self, changes: Iterable[Change], *, room: int | None = None) -> str:
        """As `diff`, for given changes; a file that does not fit has only its header."""
        return git_diff(tree_changes(changes), self._read, room=room)

    def _covered(self, old: Snapshot, new: Snapshot) -> list[TreeChange]:
        before, after = history.View(self._read, old), history.View(self._read, new)
        return [
            change
            for change in compare(self._read, before.files, after.files)
            if before.covers(change.path, change.old) and after.covers(change.path, change.new)
        ]

    def state(self, snapshot: SnapshotLike, path: bytes) -> State:
        """The state of a path in a snapshot."""
        return self.states(snapshot, [path])[path]

    def states(self, snapshot: SnapshotLike, paths: Iterable[bytes]) -> dict[bytes, State]:
        """The state of each path in a snapshot."""
        view = history.View(self._read, self._find(snapshot))
        return {path: view.state(path) for path in paths}

    def replaced(self, old: str, new: str | None) -> dict[bytes, Present]:
        """The states in a tree at paths where a newer one, or none, has something else."""
        newer = None if new is None else bytes.fromhex(new)
        return history.replaced(self._read, bytes.fromhex(old), newer)

    def held(self, tree: str, paths: Iterable[bytes]) -> dict[bytes, Present]:
        """The states in a tree at those of the paths that it holds."""
        return history.held(self._read, bytes.fromhex(tree), paths)

    def read(self, blob: str) -> bytes:
        """The content of a blob."""
        return self._read(bytes.fromhex(blob))

    def has(self, blob: str) -> bool:
        """Whether the store itself has a blob, so that nothing else is needed to read it."""
        return self._store.has(bytes.fromhex(blob))

    def can_read(self, blob: str) -> bool:
        """Whether the content of a blob can be read."""
        return self._store.exists(bytes.fromhex(blob))

    def _read(self, id: bytes) -> bytes:
        return self._store.read(id)[1]

    def _find(self, snapshot: SnapshotLike) -> Snapshot:
        return snapshot if isinstance(snapshot, Snapshot) else take.find(self._store, snapshot)

    # Status and verification

    def status(self) -> Status:
        """The current status; never blocks."""
        watch, covered, upkeep = self._worktree.watch, self._worktree.covered, self._upkeep
        troubles = [
            upkeep.lost,
            upkeep.trouble,
            self._opened.plans.damaged(),
            *self._store.problems(),
        ]
        protection, reason = self._guard.protection, self._guard.reason
        if protection is Protection.FULL and not self._taker.has_taken:
            protection, reason = Protection.PENDING, "no snapshot has been taken yet"
        elif protection is Protection.FULL and upkeep.owes:
            protection = Protection.PENDING
            reason = "earlier snapshots need objects that are only in a repository of yours yet"
        return Status(
            protection=protection,
            reason=reason,
            way=self._way or watch.way,
            way_reason=self._worktree.way_reason,
            files=covered.count,
            watches=watch.count(),
            overflows=self._worktree.overflows,
            verifications=upkeep.verifications,
            mismatches=upkeep.mismatches,
            seeded=self._taker.seeded,
            trouble=next(filter(None, troubles), ""),
        )

    def is_slow(self) -> bool:
        """Whether the next snapshot takes long: the first one of a repository with many files."""
        if self._taker.has_taken:
            return False
        repository = self._worktree.spaces.root.repository
        index = None if repository is None else signature(repository.index_file)
        return index is not None and index[2] >= LARGE_INDEX

    def usage(self) -> Usage:
        """The disk space of the project's snapshots; over the budget, also what keeps them."""
        return self._store.usage()

    def verify(self) -> list[bytes]:
        """Compare everything known with the disk now; returns the paths with changes that were
        missed.

        Their state is correct afterwards, and the status counts them.
        """
        with self._guard.turn():
            pass
        return self._upkeep.verify()

    def give_up(self) -> None:
        """A caller stopped waiting for a snapshot: protect only declared paths for now."""
        self._guard.degrade()

    # Restoring

    def restore(self, snapshot: SnapshotLike) -> list[Result]:
        """Make the worktree hold exactly what a snapshot holds, wherever both are covered.

        The present content is stored first. A path that another program changes meanwhile is left
        alone, and the result says so.
        """
        old = self._find(snapshot)
        with self._held() as held, self._guard.turn() as deadline:
            now = self._taker.take(deadline)
            return self._put_back(held, history.changes(self._read, old, now))

    def revert(self, patches: Sequence[Patch]) -> list[Result]:
        """Restore each file of the patches to its content in the first patch that names it."""
        with self._held() as held, self._guard.turn() as deadline:
            now = history.View(self._read, self._taker.take(deadline))
            view = lru_cache(self._view)
            changes, results = undoing(patches, self._root.path, view, now.state)
            return sorted(results + self._put_back(held, changes), key=lambda result: result.path)

    def _view(self, id: str) -> history.View:
        return history.View(self._read, self._find(id))

    def _put_back(self, held: Hold, changes: Sequence[Change]) -> list[Result]:
        held.check()
        steps, results = steps_back(changes, self.can_read)
        if steps:
            with (
                held.changing() as root,
                self._opened.plans.carried_out(steps) as tag,
                Writer(root, self.read, tag=tag) as writer,
            ):
                results += put_back(writer, steps)
        return sorted(results, key=lambda result: result.path)
