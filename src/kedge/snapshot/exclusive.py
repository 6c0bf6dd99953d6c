"""Exclusive access to a worktree: one kedge at a time takes snapshots or writes files in it.

A holder that only reads also has a shared lock on a mark beside it: reading is over soon, so that
waiting for it is worthwhile. A holder that changes files, or is not kedge at all, has no such lock.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from kedge.domain.errors import InvariantBroken, RootBusy, SnapshotError
from kedge.domain.file_states import Absent, AsideCopy, FileStep, Outcome, Present
from kedge.snapshot.files import steps as names
from kedge.snapshot.files.reader import Disk, look_at
from kedge.snapshot.files.root import Root, lock_now, naps, unlock
from kedge.snapshot.files.steps import MayWrite, always
from kedge.snapshot.files.writer import Writer, clean_up
from kedge.snapshot.inspect import look
from kedge.snapshot.objects.durable import PRIVATE_FILE
from kedge.snapshot.protection import Guard
from kedge.snapshot.resources import Opened
from kedge.snapshot.take import Taker
from kedge.snapshot.values import Result, Snapshot

_NO_COPY = "it is the only copy left: what it held could not be written elsewhere"
_IN_PLACE = {Outcome.RESTORED, Outcome.RECREATED, Outcome.DELETED, Outcome.UNCHANGED}


def apply(
    root: Root,
    content: Callable[[str], bytes],
    steps: Sequence[FileStep],
    *,
    tag: str,
    folders: Sequence[bytes],
    resumed: bool,
    on_result: Callable[[Result], None] | None,
    may_write: MayWrite = always,
) -> list[Result]:
    """Write, then delete, then remove those of the folders that are empty by then; a result for
    each step.

    What is in the way of a write is deleted before it, and that write comes after the others. A
    step that needs a copy is carried out only if a copy exists or is going to; if there is none in
    the end, the step is undone. Folders are removed in the given order, which must be deepest
    first. A folder that a file replaces is removed together with empty folders in it. If the steps
    are `resumed` after a crash, what another program has put in the place of something that is gone
    counts as put there since. `may_write` is called before each change; if it raises, the rest is
    left undone.
    """
    with Writer(root, content, tag=tag, on_result=on_result, may_write=may_write) as writer:
        return _Application(root, writer, steps, folders, resumed=resumed).results()


class _Application:
    """One run of steps over a worktree."""

    def __init__(
        self,
        root: Root,
        writer: Writer,
        steps: Sequence[FileStep],
        folders: Sequence[bytes],
        *,
        resumed: bool,
    ) -> None:
        self._root = root
        self._resumed = resumed
        self._writer = writer
        self._folders = folders
        writes = [step for step in steps if not isinstance(step.want, Absent)]
        deletions = [step for step in steps if isinstance(step.want, Absent)]
        written = {step.path for step in writes}
        above = {folder for step in writes for folder in _folders_above(step.path)}
        self._in_the_way = [step for step in deletions if _blocks(step.path, written, above)]
        self._late = [step for step in deletions if not _blocks(step.path, written, above)]
        deleted = {step.path for step in self._in_the_way}
        around = {folder for path in deleted for folder in _folders_above(path)}
        around.update(folders)
        self._blocked = [step for step in writes if _blocks(step.path, deleted, around)]
        self._free = [step for step in writes if not _blocks(step.path, deleted, around)]

    def results(self) -> list[Result]:
        """Carry out all steps."""
        coming = {step.path for step in self._blocked}
        results = self._put(self._free, coming | {step.path for step in self._free})
        results += self._put(self._in_the_way, coming)
        if self._in_the_way or self._blocked or self._folders:
            self._make_room()
        results += self._put(self._blocked, coming)
        results += self._put(self._late, set())
        for folder in self._folders:
            self._writer.remove_if_empty(folder)
        return self._without_unsafe(results)

    def _put(self, steps: Sequence[FileStep], coming: Set[bytes]) -> list[Result]:
        """Carry out steps, except those that need a content that neither exists nor is coming."""
        results: list[Result] = []
        # First the steps without needs, so that the others find their copies.
        for needy in (False, True):
            allowed = []
            for step in steps:
                if bool(step.needs) != needy:
                    continue
                if self._is_safe(step) or any(copy.path in coming for copy in step.needs):
                    allowed.append(step)
                else:
                    results.append(self._writer.refuse(step, _NO_COPY))
            results += self._writer.put(allowed)
        return results

    def _make_room(self) -> None:
        """Remove folders where files are to be."""
        written = {step.path for step in (*self._free, *self._blocked)}
        for folder in self._folders:
            if folder in written or not written.isdisjoint(_folders_above(folder)):
                self._writer.remove_if_empty(folder)
        for path in written.intersection(self._folders):
            self._writer.remove_if_hollow(path)

    def _without_unsafe(self, results: list[Result]) -> list[Result]:
        """Put back what was removed before its copy was written, if the copy could not be."""
        outcomes = {result.path: result.outcome for result in results}
        changed = {
            step.path: self._put_back(step)
            for step in (*self._in_the_way, *self._free, *self._blocked)
            if step.needs
            and self._may_be_done(step, outcomes[step.path])
            and not self._is_safe(step)
        }
        return [changed.get(result.path, result) for result in results]

    def _may_be_done(self, step: FileStep, outcome: Outcome) -> bool:
        """Whether a step was carried out, now or before the crash."""
        if outcome in _IN_PLACE:
            return True
        return self._resumed and outcome is Outcome.CONFLICT and not self._holds(step)

    def _holds(self, step: FileStep) -> bool:
        """Whether the content that a step should remove is still where it was."""
        assert isinstance(step.expect, Present)
        return _is_there(self._root, AsideCopy(step.path, step.expect.blob, step.expect.is_link))

    def _put_back(self, step: FileStep) -> Result:
        back = FileStep(number=step.number, path=step.path, expect=step.want, want=step.expect)
        (result,) = self._writer.put([back])
        if result.outcome in _IN_PLACE:
            return Result(step.path, Outcome.CONFLICT, _NO_COPY)
        return Result(step.path, Outcome.CONFLICT, f"{_NO_COPY}; {self._put_beside(step)}")

    def _put_beside(self, step: FileStep) -> str:
        """Keep content that cannot go back where its owner sees it; its place is taken by now."""
        folders = [*_folders_above(step.path)[::-1], b""]
        for folder in folders:
            name = names.kept_name(step.path.rpartition(b"/")[2], self._writer.tag, step.number)
            path = folder + b"/" + name if folder else name
            beside = FileStep(number=step.number, path=path, expect=Absent(), want=step.expect)
            (result,) = self._writer.put([beside])
            if result.outcome in _IN_PLACE:
                return f"it is kept as {path.decode('utf-8', 'backslashreplace')}"
        return "it could not be put back"

    def _is_safe(self, step: FileStep) -> bool:
        """Whether one of the copies that a step needs exists, if it needs any."""
        return not step.needs or any(_is_there(self._root, copy) for copy in step.needs)


def _is_there(root: Root, copy: AsideCopy) -> bool:
    folder, _, name = copy.path.rpartition(b"/")
    try:
        with root.folder(folder) as dir_fd:
            found = look_at(dir_fd, name)
    except OSError:
        return False
    return isinstance(found, Present) and (found.blob, found.is_link) == copy[1:]


def _blocks(path: bytes, others: Set[bytes], above_others: Set[bytes]) -> bool:
    """Whether a path of one set must be a folder where the other set has a file."""
    return path in above_others or not others.isdisjoint(_folders_above(path))


def _folders_above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


_MARK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_PROC = Path("/proc")


class Hold:
    """A locked root. Work in progress when it is released keeps the lock until it is done."""

    def __init__(self, root: Root, mark: Path) -> None:
        """Take over a root that was opened for this alone and is locked."""
        self._root = root
        self._mark = _marked(mark)
        self._changing = threading.Lock()
        self._users = 1
        self._is_released = False

    @contextmanager
    def used(self) -> Iterator[Root]:
        """The locked root, for work that must end before another process gets the lock."""
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
        """As `used`, for changing files: removes the mark that says that this holder only reads."""
        with self.used() as root:
            self._unmark()
            yield root

    def _unmark(self) -> None:
        with self._changing:
            mark, self._mark = self._mark, None
        if mark is not None:
            os.close(mark)

    def release(self) -> None:
        """Release the lock; called once, by the holder."""
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
        """Raise if another folder has taken the place of the locked one."""
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
    """Whether the holder of the root's lock only reads, as far as that is visible."""
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
    """A description of the process that has the root locked; empty if it is not visible."""
    return ", ".join(
        f"process {pid} ({program})" + (", which is stopped" if is_stopped else "")
        for pid, program, is_stopped in _holders(root)
    )


def _marked(path: Path) -> int | None:
    """Mark the root as being only read; None if that fails, which makes others wait less."""
    with suppress(OSError):
        fd = os.open(path, _MARK, PRIVATE_FILE)
        try:
            # Only processes that test the mark ever lock it exclusively, and only for a moment.
            fcntl.flock(fd, fcntl.LOCK_SH)
        except OSError:
            os.close(fd)
        else:
            return fd
    return None


def _holders(root: Root) -> Iterator[tuple[int, str, bool]]:
    """The holders of the lock on the root's folder: process, name of its program, whether it is
    stopped.

    Processes of other containers are not visible.
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


PATIENCE = 30.0
"""Seconds to wait for another kedge that only reads the same worktree."""

SOON = 2.0
"""Seconds to wait for another process that changes its files, or is stopped."""


SURE = 0.5
"""Seconds after which a process that seems to change files is assumed to."""


class Order:
    """Acquires exclusive access to a worktree."""

    def __init__(self, opened: Opened, guard: Guard, taker: Taker, limit: int) -> None:
        self._opened = opened
        self._guard = guard
        self._taker = taker
        self._limit = limit

    def attempt(self) -> Hold | None:
        """The worktree, if it is free; also cleans up after a restore whose process died."""
        with self._guard.use():
            held = hold(self._opened.root, self._opened.looking)
            if held is not None:
                self._put_in_order(held)
            return held

    def wait(self) -> Hold:
        """The worktree, as soon as it is free; `RootBusy` if that takes too long."""
        patience = self.patience(time.monotonic())
        pauses = naps()
        while (held := self.attempt()) is None:
            patience.check()
            time.sleep(next(pauses))
        return held

    def patience(self, began: float) -> "Patience":
        """How long to wait for the worktree, from this time of the monotonic clock on."""
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
        """The operations in the worktree, for its holder."""
        return Ordered(self._opened, self._guard, self._taker, held, self._limit)


class Patience:
    """Decides how long to wait for a worktree that another process has."""

    def __init__(self, opened: Opened, began: float) -> None:
        self._opened = opened
        self._began = began
        self._blocked_since = began
        self._blocker: str | None = None

    def check(self) -> None:
        """Raise `RootBusy` if the worktree is not worth waiting for any longer: if one process was
        changing its files, or was stopped, all the time. In between two holders that only read, and
        while one starts or ends, no mark is set."""
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
        # Not `used`: without its caller the snapshot gets no number, so it need not hold the
        # worktree.
        with self._guard.turn() as deadline:
            snapshot = self._taker.take(deadline, session)
        self._held.check()
        return snapshot

    def look(self, paths: Iterable[bytes], *, session: str | None = None) -> dict[bytes, Disk]:
        """As `Snapshots.look`."""
        with self._guard.use(), self._held.used() as root:
            return look(root, self._store, paths, session=session, limit=self._limit)

    def holding(self, blobs: Collection[str]) -> list[tuple[bytes, Present]]:
        """Covered paths that held these blobs when a snapshot was last taken. Slow, as it goes
        through every known file; for rare cases."""
        with self._guard.patient_turn():
            found = self._worktree.holding({bytes.fromhex(blob) for blob in blobs})
        return [(path, Present(file.blob.hex(), file.mode)) for path, file in found]

    def apply(
        self,
        steps: Sequence[FileStep],
        *,
        tag: str,
        folders: Sequence[bytes] = (),
        resumed: bool = False,
        on_result: Callable[[Result], None] | None = None,
        may_write: MayWrite = always,
    ) -> list[Result]:
        """Carry out steps: writes, then deletions, then removal of folders that are empty by then.

        What is in the way of a write is removed first. A step with `needs` is carried out only if
        its content exists at one of these paths by then.

        A path with the wanted state is done (`UNCHANGED`), one with the expected state is written,
        any other is left alone: so the same steps may be applied again after a crash, once
        `clean_up` has cleaned up after it. All changes are durable on return; `on_result` is called
        for each path before that. `tag` is part of the names of temporary files. `may_write` is
        called before each change: if it raises, the rest is left as after a crash.
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
        self, steps: Sequence[FileStep], *, tag: str, may_write: MayWrite = always
    ) -> list[Result]:
        """Clean up after steps that a crash interrupted; returns results for paths with
        problems."""
        with self._guard.use(), self._held.changing() as root:
            return clean_up(root, steps, tag=tag, may_write=may_write)

    def _read(self, blob: str) -> bytes:
        return self._store.read(bytes.fromhex(blob))[1]
