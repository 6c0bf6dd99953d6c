"""Keeps the leases of an engine from expiring, in a thread: the event loop may be busy for long."""

import logging
import threading
from functools import partial

from kedge.domain.errors import KedgeError
from kedge.store.port import Store
from kedge.store.verbs.leases import renew_leases

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews everything one owner holds, three times in the life of a lease."""

    def __init__(self, store: Store, owner: str, lease_time: float) -> None:
        self._store = store
        self._owner = owner
        self._lease_time = lease_time
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to renew, if that has not begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kedge-leases", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop renewing."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        renew = partial(renew_leases, self._owner, ttl=round(self._lease_time * 1000))
        pause = self._lease_time / 3
        while not self._stopped.wait(pause):
            pause = self._lease_time / 3
            try:
                self._store.run_blocking(renew)
            except KedgeError as error:
                pause = min(1.0, pause)
                # If the lease is lost meanwhile, the owner learns it at its next write.
                _log.warning("cannot renew leases: %s", error)
