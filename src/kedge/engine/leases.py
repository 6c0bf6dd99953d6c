"""Renews the leases of an engine in a thread, because the event loop may be busy for long.

A process that was paused for longer than a lease lasts may have lost its sessions without knowing
it. The database refuses what it writes there; files refuse nothing, so whoever writes files for a
session asks here before each of them.
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
    """Renews everything one owner holds, three times in the life of a lease."""

    def __init__(self, store: Store, owner: str, lease_time: float) -> None:
        self._store = store
        self._owner = owner
        self._lease_time = lease_time
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._renewing = threading.Lock()
        self._until = 0.0
        """No lease of this owner expires before this time of the steady clock."""
        self._lapses = 0
        """How often a renewal came so late that others may have taken what this owner held."""

    def start(self) -> None:
        """Begin to renew, if that has not begun; called before the first lease is taken."""
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
        """What raises `LeaseLost` if the lease it is given was lost since it was made; to be called
        in a thread, before each file that is written under the lease.

        It is made before the lease is taken, or before a transaction that the lease is needed for.
        """
        known = self._lapses

        def check(fence: Fence) -> None:
            nonlocal known
            # In this order: a late renewal counts itself before it says until when it is good.
            if now() < self._until and known == self._lapses:
                return
            # Late, but perhaps nobody took it: a laptop that slept goes on.
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
            # By its end: it may have been paused before the database heard of it.
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
    """The time of a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(STEADY)
