"""Being the only kedge that takes snapshots or writes files in a worktree, so that whoever numbers
what it sees or does there gets one order of all; only the worktree's lock is this module's."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from kedge.domain.errors import RootBusy
from kedge.snapshot.applying import apply
from kedge.snapshot.disk import Disk
from kedge.snapshot.files.holding import Hold, hold, holder_of, is_only_looked_at
from kedge.snapshot.files.opening import naps
from kedge.snapshot.files.recovering import clean_up
from kedge.snapshot.files.steps import MayWrite, Step, always
from kedge.snapshot.guard import Guard
from kedge.snapshot.looking import look
from kedge.snapshot.opening import Opened
from kedge.snapshot.taking import Taker
from kedge.snapshot.values import Present, Result, Snapshot

PATIENCE = 30.0
"""Seconds that somebody waits for another kedge that only looks at the same worktree."""

SOON = 2.0
"""Seconds that somebody waits for another process that changes its files, or is stopped."""


SURE = 0.5
"""Seconds after which a process that seems to change files does."""


class Order:
    """How to become the only one in a worktree."""

    def __init__(self, opened: Opened, guard: Guard, taker: Taker, limit: int) -> None:
        self._opened = opened
        self._guard = guard
        self._taker = taker
        self._limit = limit

    def attempt(self) -> Hold | None:
        """The worktree, if nobody else has it; what a dead restore left in it is put in order."""
        with self._guard.use():
            held = hold(self._opened.root, self._opened.looking)
            if held is not None:
                self._put_in_order(held)
            return held

    def wait(self) -> Hold:
        """The worktree, as soon as nobody else has it; `RootBusy` if that takes too long."""
        patience = self.patience(time.monotonic())
        pauses = naps()
        while (held := self.attempt()) is None:
            patience.check()
            time.sleep(next(pauses))
        return held

    def patience(self, began: float) -> "Patience":
        """How long to wait for the worktree, since a time of the monotonic clock."""
        return Patience(self._opened, began)

    def _put_in_order(self, held: Hold) -> None:
        try:
            if self._opened.plans.are_there():
                with held.used() as root:
                    self._opened.plans.clean_up(root)
        except BaseException:
            held.release()
            raise

    def under(self, held: Hold) -> "Ordered":
        """What can be done in the worktree by whoever has it."""
        return Ordered(self._opened, self._guard, self._taker, held, self._limit)


class Patience:
    """How long somebody waits for a worktree that another process has."""

    def __init__(self, opened: Opened, began: float) -> None:
        self._opened = opened
        self._began = began
        self._blocked_since = began
        self._blocker: str | None = None

    def check(self) -> None:
        """Raise `RootBusy` if the worktree is not worth waiting for any longer: if one process has
        changed its files, or was stopped, all the time. Between two that only look, and while one
        begins or ends to, nobody says that he does."""
        now = time.monotonic()
        if now - self._began < min(SOON, PATIENCE):
            return
        root = self._opened.root
        holder = holder_of(root)
        if holder != self._blocker or is_only_looked_at(root, self._opened.looking):
            self._blocker, self._blocked_since = holder, now
        if now - self._blocked_since >= SURE or now - self._began >= PATIENCE:
            raise RootBusy(holder)


class Ordered:
    """A worktree in which no other kedge takes a snapshot or applies steps meanwhile."""

    def __init__(self, opened: Opened, guard: Guard, taker: Taker, held: Hold, limit: int) -> None:
        self._store = opened.store
        self._worktree = opened.worktree
        self._guard = guard
        self._taker = taker
        self._held = held
        self._limit = limit

    def track(self, *, session: str | None = None) -> Snapshot:
        """As `Snapshots.track`."""
        # Given up by whoever waited for it, it does not keep the worktree: it gets no number.
        with self._guard.turn() as deadline:
            snapshot = self._taker.take(deadline, session)
        self._held.check()
        return snapshot

    def look(self, paths: Iterable[bytes], *, session: str | None = None) -> dict[bytes, Disk]:
        """As `Snapshots.look`."""
        with self._guard.use(), self._held.used() as root:
            return look(root, self._store, paths, session=session, limit=self._limit)

    def holding(self, blobs: Collection[str]) -> list[tuple[bytes, Present]]:
        """Covered paths that held these blobs when a snapshot was last taken. Looks at every file
        that is known, so it is for the rare case."""
        with self._guard.patient_turn():
            found = self._worktree.holding({bytes.fromhex(blob) for blob in blobs})
        return [(path, Present(file.blob.hex(), file.mode)) for path, file in found]

    def apply(
        self,
        steps: Sequence[Step],
        *,
        tag: str,
        folders: Sequence[bytes] = (),
        resumed: bool = False,
        on_result: Callable[[Result], None] | None = None,
        may_write: MayWrite = always,
    ) -> list[Result]:
        """Carry out steps: writes, then deletions, then folders that are empty by now.

        What stands where something is to be written goes first. A step with `needs` is carried out
        only if its content is at one of these paths by then.

        A path that is as wanted is done (`UNCHANGED`), one that is as expected is written, any
        other is left alone: so the same steps may be applied again after a crash, once `clean_up`
        has put in order what it left. All is on the disk for good when this returns; `on_result`
        is called for each path before that. `tag` is in the names of temporary files. `may_write`
        is called before each change: if it raises, the rest is left as after a crash.
        """
        with self._guard.use(), self._held.changing() as root:
            return apply(
                root,
                self._read,
                steps,
                tag=tag,
                folders=folders,
                resumed=resumed,
                on_result=on_result,
                may_write=may_write,
            )

    def clean_up(
        self, steps: Sequence[Step], *, tag: str, may_write: MayWrite = always
    ) -> list[Result]:
        """Put in order what a crash left of steps; the results are of the paths with trouble."""
        with self._guard.use(), self._held.changing() as root:
            return clean_up(root, steps, tag=tag, may_write=may_write)

    def _read(self, blob: str) -> bytes:
        return self._store.read(bytes.fromhex(blob))[1]
