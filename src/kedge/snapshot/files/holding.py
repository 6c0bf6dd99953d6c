"""A worktree's root held alone: locked against every other kedge until the last user is done.

Who holds it only to look has a shared lock on a mark beside it too: that is over soon, so that it
is worth waiting for. Who changes files, or is no kedge at all, has none.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kedge.domain.errors import InvariantBroken, SnapshotError
from kedge.snapshot.files.opening import Root, lock_now, unlock
from kedge.snapshot.objects.durable import PRIVATE_FILE

_MARK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_PROC = Path("/proc")


class Hold:
    """A locked root. Who works in it when it is released still has it until that is done."""

    def __init__(self, root: Root, mark: Path) -> None:
        """Take over a root that was opened for this alone and is locked."""
        self._root = root
        self._mark = _marked(mark)
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

    @contextmanager
    def changing(self) -> Iterator[Root]:
        """As `used`, to change files: from here on nobody need wait for the end of a look."""
        with self.used() as root:
            self._unmark()
            yield root

    def _unmark(self) -> None:
        with self._changing:
            mark, self._mark = self._mark, None
        if mark is not None:
            os.close(mark)

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
        self._unmark()
        unlock(self._root.fd)
        self._root.close()

    def check(self) -> None:
        """Raise if another folder has come in the place of the one that is locked."""
        with self.used() as root:
            if not root.is_same():
                raise SnapshotError("the folder was replaced while it was being worked in")


def hold(root: Root, mark: Path) -> Hold | None:
    """Lock the folder that a root's path leads to now; None if another kedge has it locked."""
    # A lock belongs to an open file description: with a shared one, two threads would both hold it.
    own = root.opened_again()
    try:
        # A folder that was replaced since is not the one that others would lock.
        if lock_now(own.fd):
            if own.is_same():
                return Hold(own, mark)
            unlock(own.fd)
    except BaseException:
        own.close()
        raise
    own.close()
    return None


def is_only_looked_at(root: Root, mark: Path) -> bool:
    """Whether whoever has the root locked will be done soon, as far as that can be seen."""
    try:
        fd = os.open(mark, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return not any(is_stopped for _, _, is_stopped in _holders(root))
    finally:
        os.close(fd)
    return False


def holder_of(root: Root) -> str:
    """Which process has the root locked, in words; empty if the system does not tell."""
    return ", ".join(
        f"process {pid} ({program})" + (", which is stopped" if is_stopped else "")
        for pid, program, is_stopped in _holders(root)
    )


def _marked(path: Path) -> int | None:
    """Say that the root is only looked at; None if that cannot be said, which costs patience."""
    with suppress(OSError):
        fd = os.open(path, _MARK, PRIVATE_FILE)
        try:
            # Only those who look whether somebody has it ever have it alone, for a moment.
            fcntl.flock(fd, fcntl.LOCK_SH)
        except OSError:
            os.close(fd)
        else:
            return fd
    return None


def _holders(root: Root) -> Iterator[tuple[int, str, bool]]:
    """Who has the root's folder locked: process, name of its program, whether it is stopped.

    Processes of other containers cannot be seen.
    """
    try:
        status = os.stat(root.path)
        lines = (_PROC / "locks").read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for words in map(str.split, lines):
        # 1: FLOCK ADVISORY WRITE 4711 08:01:131073 0 EOF
        if len(words) > 5 and words[1] == "FLOCK" and words[5] == device:
            with suppress(OSError):
                found = (_PROC / words[4] / "stat").read_text("utf-8", "replace")
                program, _, rest = found.partition("(")[2].rpartition(")")
                yield int(words[4]), program, rest.split()[0] in ("T", "t")
