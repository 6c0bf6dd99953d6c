"""Background work for snapshots: recover from a timeout, compare with the disk, collect garbage."""

import math
import threading
from collections.abc import Callable
from time import monotonic

from kedge.domain.errors import SnapshotTimeout
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.protection import Guard
from kedge.snapshot.values import SnapshotSettings
from kedge.snapshot.worktree.covered_files import TooManyFiles
from kedge.snapshot.worktree.state import WorktreeState

# This many folders take some milliseconds, so a snapshot never waits for long.
_FOLDERS_AT_A_TIME = 100
_PAUSE = 0.01
# Comparing must not take more than this share of the time.
_SHARE = 0.02
_COLLECT_EVERY = 3600.0


class Maintenance:
    """The background thread of one worktree, started when there is work."""

    def __init__(
        self, store: ObjectStore, worktree: WorktreeState, guard: Guard, settings: SnapshotSettings
    ) -> None:
        self._store = store
        self._worktree = worktree
        self._guard = guard
        self._settings = settings
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._used = False
        self._verify_at = monotonic() + settings.verification
        self._collect_at = monotonic() + _COLLECT_EVERY
        self._tidy_until = 0.0
        self._jobs = (
            self._copy_borrowed,
            self._rescan,
            self._verify_when_due,
            self._collect_when_due,
        )
        self.catch_up: Callable[[], None] = worktree.refresh
        """Does the work that a snapshot had no time for."""
        self.owes = True
        """Whether the store may still need objects that were only borrowed and not copied."""
        self.lost = ""
        """A description of borrowed objects that are lost for good."""
        self.verifications = 0
        self.mismatches = 0
        self.trouble = ""

    def note_use(self) -> None:
        """Record that a snapshot was taken: the worktree needs a comparison again."""
        self._used = True
        if self._thread is None:
            self._start()

    def wake(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kedge-upkeep", daemon=True)
                self._thread.start()

    def hurry(self) -> None:
        """Skip the scan that would end the degraded state: it is no longer needed."""
        self._stop.set()
        if self._guard.may_recover:
            self._worktree.covered.deadline = 0.0

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            for job in self._jobs:
                if not self._stop.is_set():
                    self._attempt(job)
            self._wake.wait(max(0.0, min(self._verify_at, self._collect_at) - monotonic()))

    def _attempt(self, job: Callable[[], None]) -> None:
        try:
            job()
        except TooManyFiles:
            # Already reported; it is tried again from time to time.
            return
        except Exception as error:  # noqa: BLE001  # whatever it is must not end the thread
            # No caller waits for it; the status reports it, and the job is tried again.
            self.trouble = str(error) or repr(error)

    # Jobs

    def _copy_borrowed(self) -> None:
        self.settle_debts()

    def settle_debts(self, deadline: float = math.inf) -> None:
        """Copy what an earlier version only borrowed, until a time of the monotonic clock."""
        lost = set[bytes]()
        if self._store.owes():
            # Objects known to be lost are searched for again later, but no snapshot waits for them.
            self.owes = not self.lost
            lost = self._store.settle_debts(deadline)
        if lost:
            # The worktree may still have objects that a repository has lost.
            with self._guard.patient_turn():
                if not self._worktree.is_known:
                    self._worktree.refresh(deadline)
                self._worktree.distrust(lost)
                self._worktree.refresh(deadline)
            lost = self._store.settle_debts(deadline)
        self.owes = False
        self.lost = _told(len(lost)) if lost else ""

    def check_wanted(self) -> None:
        """Raise if these snapshots are being closed: the next work could take long."""
        if self._stop.is_set():
            raise SnapshotTimeout("the snapshots are being closed")

    def _rescan(self) -> None:
        if self._guard.may_recover:
            with self._guard.patient_turn():
                if not self._stop.is_set():
                    self.catch_up()
                    self._guard.restore()

    def _verify_when_due(self) -> None:
        if monotonic() < self._verify_at:
            return
        started = monotonic()
        if self._used and self._worktree.watch.way == "inotify":
            self._used = False
            self.verify()
        spent = monotonic() - started
        self._verify_at = monotonic() + max(self._settings.verification, spent / _SHARE)

    def verify(self) -> list[bytes]:
        """Compare everything known with the disk in small steps; returns changes that were
        missed."""
        found: list[bytes] = []
        with self._guard.patient_turn():
            folders = list(self._worktree.top.everything())
        # A scan knows nothing between two snapshots anyway: then all at once is cheaper.
        some = _FOLDERS_AT_A_TIME if self._worktree.watch.way == "inotify" else len(folders)
        for start in range(0, len(folders), some):
            if self._stop.is_set():
                return found
            with self._guard.patient_turn():
                found += self._worktree.verify(folders[start : start + some])
            self._stop.wait(_PAUSE)
        self.verifications += 1
        self.mismatches += len(found)
        return found

    def _is_untidy(self) -> bool:
        # Once is enough: what could not be tidied then is still in use.
        return monotonic() >= self._tidy_until and self._store.is_untidy()

    def _collect_when_due(self) -> None:
        if monotonic() < self._collect_at and not self._is_untidy():
            return
        self._collect_at = self._tidy_until = monotonic() + _COLLECT_EVERY
        self._store.collect(keep_taken_for=self._settings.retention)


def _told(lost: int) -> str:
    return f"{lost} objects were borrowed from a repository that has lost them"
