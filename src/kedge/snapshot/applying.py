"""Steps that somebody else has written down carried out over a worktree, in the order that lets
files and folders take each other's place; the caller holds the root's lock."""

from collections.abc import Callable, Sequence, Set

from kedge.snapshot.files import names
from kedge.snapshot.files.looking import look
from kedge.snapshot.files.opening import Root
from kedge.snapshot.files.steps import Copy, MayWrite, Step, always
from kedge.snapshot.files.writing import Writer
from kedge.snapshot.values import Absent, Outcome, Present, Result

_NO_COPY = "it is the only copy left: what it held could not be written elsewhere"
_IN_PLACE = {Outcome.RESTORED, Outcome.RECREATED, Outcome.DELETED, Outcome.UNCHANGED}


def apply(
    root: Root,
    content: Callable[[str], bytes],
    steps: Sequence[Step],
    *,
    tag: str,
    folders: Sequence[bytes],
    resumed: bool,
    on_result: Callable[[Result], None] | None,
    may_write: MayWrite = always,
) -> list[Result]:
    """Write, then delete, then remove those of the folders that are empty by then; a result for
    each step.

    What stands in the way of a write is deleted before it, and that write comes after the others. A
    step that needs a copy is carried out only if there is one, or is going to be; if there is none
    in the end, it is taken back. Folders are removed in the order given: the deepest must come
    first. One that a file is to take the place of goes also with empty folders in it. If the steps
    are `resumed` after a crash, what somebody has put in the place of something that is gone counts
    as put there since. `may_write` is called before each change; if it raises, the rest is left.
    """
    with Writer(root, content, tag=tag, on_result=on_result, may_write=may_write) as writer:
        return _Application(root, writer, steps, folders, resumed=resumed).results()


class _Application:
    """One run over a worktree."""

    def __init__(
        self,
        root: Root,
        writer: Writer,
        steps: Sequence[Step],
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
        """Carry out everything."""
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

    def _put(self, steps: Sequence[Step], coming: Set[bytes]) -> list[Result]:
        """Carry out steps, but for those that need what is neither there nor coming."""
        results: list[Result] = []
        # First those that nothing depends on, so that the others find their copies.
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
        """Put back what had to go before its copy was written, if the copy could not be."""
        outcomes = {result.path: result.outcome for result in results}
        changed = {
            step.path: self._put_back(step)
            for step in (*self._in_the_way, *self._free, *self._blocked)
            if step.needs
            and self._may_be_done(step, outcomes[step.path])
            and not self._is_safe(step)
        }
        return [changed.get(result.path, result) for result in results]

    def _may_be_done(self, step: Step, outcome: Outcome) -> bool:
        """Whether a step was carried out, now or before the crash."""
        if outcome in _IN_PLACE:
            return True
        return self._resumed and outcome is Outcome.CONFLICT and not self._holds(step)

    def _holds(self, step: Step) -> bool:
        """Whether what a step was to take away is still where it was."""
        assert isinstance(step.expect, Present)
        return _is_there(self._root, Copy(step.path, step.expect.blob, step.expect.is_link))

    def _put_back(self, step: Step) -> Result:
        back = Step(number=step.number, path=step.path, expect=step.want, want=step.expect)
        (result,) = self._writer.put([back])
        if result.outcome in _IN_PLACE:
            return Result(step.path, Outcome.CONFLICT, _NO_COPY)
        return Result(step.path, Outcome.CONFLICT, f"{_NO_COPY}; {self._put_beside(step)}")

    def _put_beside(self, step: Step) -> str:
        """Keep what cannot go back where its owner sees it; something else is in its place now."""
        folders = [*_folders_above(step.path)[::-1], b""]
        for folder in folders:
            name = names.kept_name(step.path.rpartition(b"/")[2], self._writer.tag, step.number)
            path = folder + b"/" + name if folder else name
            beside = Step(number=step.number, path=path, expect=Absent(), want=step.expect)
            (result,) = self._writer.put([beside])
            if result.outcome in _IN_PLACE:
                return f"it is kept as {path.decode('utf-8', 'backslashreplace')}"
        return "it could not be put back"

    def _is_safe(self, step: Step) -> bool:
        """Whether one of the copies that a step needs is there, if it needs any."""
        return not step.needs or any(_is_there(self._root, copy) for copy in step.needs)


def _is_there(root: Root, copy: Copy) -> bool:
    folder, _, name = copy.path.rpartition(b"/")
    try:
        with root.folder(folder) as dir_fd:
            found = look(dir_fd, name)
    except OSError:
        return False
    return isinstance(found, Present) and (found.blob, found.is_link) == copy[1:]


def _blocks(path: bytes, others: Set[bytes], above_others: Set[bytes]) -> bool:
    """Whether one of two kinds of paths has to be a folder where the other has a file."""
    return path in above_others or not others.isdisjoint(_folders_above(path))


def _folders_above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]
