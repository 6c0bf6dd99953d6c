"""A worktree's root held alone: locked against every other kedge until the last user is done."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kedge.domain.errors import InvariantBroken, SnapshotError
from kedge.snapshot.files.opening import Root, lock_now, unlock


class Hold:
    """A locked root. Who works in it when it is released still has it until that is done."""

    def __init__(self, root: Root) -> None:
        """Take over a root that was opened for this alone and is locked."""
        self._root = root
        self._changing = threading.Lock()
        self._users = 1
        self._is_released = False

    @contextmanager
    def used(self) -> Iterator[Root]:
        """The locked root, for work that must end before anybody else gets the lock."""
        with self._changing:
            if self._is_released:
                raise InvariantBroken("a worktree was used after it was let go")
            self._users += 1
        try:
            yield self._root
        finally:
            self._leave()

    def release(self) -> None:
        """Let go; called once, by whoever has taken it."""
        with self._changing:
            self._is_released = True
        self._leave()

    def _leave(self) -> None:
        with self._changing:
            self._users -= 1
            if self._users:
                return
        unlock(self._root.fd)
        self._root.close()

    def check(self) -> None:
        """Raise if another folder has come in the place of the one that is locked."""
        with self.used() as root:
            if not root.is_same():
                raise SnapshotError("the folder was replaced while it was being worked in")


def hold(root: Root) -> Hold | None:
    """Lock the folder that a root's path leads to now; None if another kedge has it locked."""
    # A lock belongs to an open file description: with a shared one, two threads would both hold it.
    own = root.opened_again()
    try:
        # A folder that was replaced since is not the one that others would lock.
        if lock_now(own.fd):
            if own.is_same():
                return Hold(own)
            unlock(own.fd)
    except BaseException:
        own.close()
        raise
    own.close()
    return None
