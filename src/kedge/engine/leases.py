"""Renews the leases of an engine in a thread, because the event loop may be busy for long.

A process that was paused for longer than a lease lasts may have lost its sessions without knowing
it. The database refuses its writes there, but the file system does not, so code that writes files
for a session checks here before each file.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from kedge.domain.errors import KedgeError, LeaseLost
from kedge.engine.heartbeats import STEADY
from kedge.store.port import Store
from kedge.store.queries.fences import Fence
from kedge.store.queries.leases import renew_leases, run_of
from kedge.store.transaction import Script

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews all leases of one owner, three times in the life of a lease."""

    def __init__(self, store: Store, owner: str, lease_time: float) -> None:
        self._store = store
        self._owner = owner
        self._lease_time = lease_time
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._renewing = threading.Lock()
        self._until = 0.0
        """No lease of this owner expires before this time on the steady clock."""
        self._lapses = 0
        """How often a renewal was so late that another process may have taken a lease."""

    def start(self) -> None:
        """Start to renew, once; called before the first lease is taken."""
        if self._thread is None:
            self._until = now() + self._lease_time
            self._thread = threading.Thread(target=self._run, name="kedge-leases", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop renewing."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def still_held(self) -> Callable[[Fence], None]:
        """Make a check that raises `LeaseLost` if the given lease was lost since the check was
        made; to be called in a thread, before each file that is written under the lease.

        Make it before taking the lease, or before a transaction that needs the lease.
        """
        known = self._lapses

        def check(fence: Fence) -> None:
            nonlocal known
            # In this order: a late renewal counts a lapse before it extends the time.
            if now() < self._until and known == self._lapses:
                return
            # Late, but perhaps not taken: a laptop that slept goes on.
            self.renew()
            lapses = self._lapses
            if not self._store.run_blocking(partial(self._is_held, fence)):
                raise LeaseLost(fence.session_id)
            known = lapses

        return check

    def renew(self) -> None:
        """Renew everything now, and notice if that is too late."""
        with self._renewing:
            began = now()
            renew = partial(renew_leases, self._owner, ttl=round(self._lease_time * 1000))
            self._store.run_blocking(renew)
            # Checked at the end: the process may have been paused before the database got the
            # renewal.
            if now() >= self._until:
                self._lapses += 1
            self._until = began + self._lease_time

    def _is_held(self, fence: Fence) -> Script[bool]:
        owner, _, generation = yield from run_of(fence.session_id)
        return (owner, generation) == (self._owner, fence.generation)

    def _run(self) -> None:
        pause = self._lease_time / 3
        while not self._stopped.wait(pause):
            pause = self._lease_time / 3
            try:
                self.renew()
            except KedgeError as error:
                pause = min(1.0, pause)
                # If the lease is lost meanwhile, the owner learns it at its next write.
                _log.warning("cannot renew leases: %s", error)


def now() -> float:
    """The time of a clock that cannot be set, and that goes on while the machine sleeps."""
    return time.clock_gettime(STEADY)
