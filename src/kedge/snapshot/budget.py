"""Who may use the in-memory tree, for how long, and whether it may be used at all."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from kedge.domain.errors import SnapshotError, SnapshotRefused, SnapshotTimeout
from kedge.snapshot.values import Protection
from kedge.snapshot.worktree.file_reader import TooManyFiles


class Guard:
    """One user at a time, each within its budget; the first to exceed it pays for all."""

    def __init__(self, budget: float, on_degraded: Callable[[], None]) -> None:
        self._budget = budget
        self._on_degraded = on_degraded
        self._lock = threading.RLock()
        self._uses = 0
        self._unused = threading.Condition()
        self._process = os.getpid()
        self.is_closing = False
        self.protection = Protection.FULL
        self.reason = ""
        self.may_recover = False
        """Whether a scan in the background can end the present state."""

    @contextmanager
    def turn(self) -> Iterator[float]:
        """Use the tree until the yielded time of the monotonic clock at the latest."""
        self.check()
        asked = monotonic()
        if not self._lock.acquire(timeout=self._budget):
            # Whoever has it answers for it; it may be putting files back.
            raise SnapshotTimeout("somebody else is still using the worktree's snapshots")
        waited = monotonic() - asked
        try:
            self.check()
            with self.failing():
                yield asked + self._budget
        except SnapshotTimeout:
            # If others had most of the time, it says nothing of the worktree.
            if waited < self._budget / 2:
                self.degrade()
            raise
        finally:
            self._lock.release()

    @contextmanager
    def patient_turn(self) -> Iterator[None]:
        """Use the tree in the background, however long it takes."""
        with self._lock, self.failing():
            yield

    @contextmanager
    def use(self) -> Iterator[None]:
        """Use the worktree's files and the store, but not the tree: closing waits for it."""
        self.check_open()
        with self._unused:
            self.check_open()
            self._uses += 1
        try:
            with self.failing():
                yield
        finally:
            with self._unused:
                self._uses -= 1
                self._unused.notify_all()

    def wait_until_unused(self) -> None:
        """Return when nobody uses anything any more; nobody may begin when this is called."""
        with self._unused:
            self._unused.wait_for(lambda: not self._uses)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Turn what the machine says into what a caller can act on."""
        try:
            yield
        except TooManyFiles as error:
            self.refuse(str(error))
            self.may_recover = True
            raise
        except OSError as error:
            raise SnapshotError(f"the worktree cannot be read: {error}") from error

    def check(self) -> None:
        """Raise if no snapshot can be taken now."""
        self.check_open()
        if self.protection is Protection.DEGRADED:
            raise SnapshotTimeout(self.reason)
        if self.protection is not Protection.FULL:
            raise SnapshotRefused(self.reason)

    def check_open(self) -> None:
        """Raise if these snapshots can be used no more."""
        if not self.is_ours():
            raise SnapshotRefused(
                "another process opened these snapshots; open them anew after fork"
            )
        if self.is_closing:
            raise SnapshotRefused("these snapshots are closed")

    def is_ours(self) -> bool:
        """Whether this is the process that opened the snapshots."""
        return os.getpid() == self._process

    def refuse(self, reason: str, protection: Protection = Protection.REFUSED) -> None:
        self.protection, self.reason = protection, reason

    def restore(self) -> None:
        """A scan ended: the tree is known again."""
        if self.may_recover:
            self.protection, self.reason, self.may_recover = Protection.FULL, "", False

    def degrade(self) -> None:
        """Protect declared paths only, until a scan ends."""
        if self.protection is not Protection.FULL:
            return
        self.reason = (
            f"a snapshot took longer than {self._budget:g} s; until a scan in the background ends,"
            " only files that tools write themselves are protected"
        )
        self.protection = Protection.DEGRADED
        self.may_recover = True
        self._on_degraded()
