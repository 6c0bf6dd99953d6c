"""How far a worktree is protected: refused folders, time budgets, and the degraded state."""

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from time import monotonic

from kedge.domain.errors import SnapshotError, SnapshotRefused, SnapshotTimeout
from kedge.snapshot.values import Protection
from kedge.snapshot.worktree.covered_files import TooManyFiles


class Guard:
    """Admits one user at a time, each within its budget; the first overrun degrades all."""

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
        """Whether a background scan can end the current state."""

    @contextmanager
    def turn(self) -> Iterator[float]:
        """Use the tree until the yielded time of the monotonic clock at the latest."""
        self.check()
        asked = monotonic()
        if not self._lock.acquire(timeout=self._budget):
            # The current user is responsible for its budget; it may be restoring files.
            raise SnapshotTimeout("another caller is still using the worktree's snapshots")
        waited = monotonic() - asked
        try:
            self.check()
            with self.failing():
                yield asked + self._budget
        except SnapshotTimeout:
            # If others used most of the time, the overrun says nothing about the worktree.
            if waited < self._budget / 2:
                self.degrade()
            raise
        finally:
            self._lock.release()

    @contextmanager
    def patient_turn(self) -> Iterator[None]:
        """Use the tree in the background, without a budget."""
        with self._lock, self.failing():
            yield

    @contextmanager
    def use(self) -> Iterator[None]:
        """Use the worktree's files and the store, but not the tree; closing waits for the end."""
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
        """Wait until nothing is in use any more; call it when no new use can begin."""
        with self._unused:
            self._unused.wait_for(lambda: not self._uses)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Translate OS errors into errors that a caller can act on."""
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
        """Raise if these snapshots cannot be used any more."""
        if not self.is_ours():
            raise SnapshotRefused(
                "another process opened these snapshots; open them anew after fork"
            )
        if self.is_closing:
            raise SnapshotRefused("these snapshots are closed")

    def is_ours(self) -> bool:
        """Whether this process opened the snapshots."""
        return os.getpid() == self._process

    def refuse(self, reason: str, protection: Protection = Protection.REFUSED) -> None:
        self.protection, self.reason = protection, reason

    def restore(self) -> None:
        """A scan has ended: the tree is known again."""
        if self.may_recover:
            self.protection, self.reason, self.may_recover = Protection.FULL, "", False

    def degrade(self) -> None:
        """Protect only declared paths until a scan ends."""
        if self.protection is not Protection.FULL:
            return
        self.reason = (
            f"a snapshot took longer than {self._budget:g} s; until a scan in the background ends,"
            " only files that tools write themselves are protected"
        )
        self.protection = Protection.DEGRADED
        self.may_recover = True
        self._on_degraded()


def why_refused(root: bytes, private: Collection[bytes]) -> str | None:
    """Why no snapshots are taken of a folder at all; None if they are.

    `private` are git's and kedge's own folders.
    """
    if root.endswith(b"/.git") or any((root + b"/").startswith(own + b"/") for own in private):
        return "kedge takes no snapshots of the inside of git, nor of its own data"
    if root == b"/":
        return "kedge takes no snapshots of the whole file system; work in a folder of it"
    home = os.path.realpath(os.path.expanduser(b"~"))
    if root == home or (home + b"/").startswith(root + b"/"):
        return (
            f"kedge takes no snapshots of {os.fsdecode(root)}, which is or holds the home folder;"
            " work in a folder of its own"
        )
    return None
