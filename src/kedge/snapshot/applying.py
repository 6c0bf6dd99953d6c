"""Steps that somebody else has written down carried out over a worktree, in the order that lets
files and folders take each other's place; the caller holds the root's lock."""

from collections.abc import Callable, Iterable, Sequence

from kedge.snapshot.files.looking import look
from kedge.snapshot.files.opening import Root
from kedge.snapshot.files.steps import Copy, Step
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
    on_result: Callable[[Result], None] | None,
) -> list[Result]:
    """Write, then delete, then remove those of the folders that are empty by then; a result for
    each step.

    Only what stands where a file or folder is to be written is deleted before that. A step that
    needs a copy is carried out only if there is one, and taken back if there is none after all.
    Folders are removed in the order given: the deepest must come first. One that a file is to take
    the place of goes also with empty folders in it.
    """
    writes = [step for step in steps if not isinstance(step.want, Absent)]
    written = {step.path for step in writes}
    above = {folder for step in writes for folder in _folders_above(step.path)}
    deletions = [step for step in steps if isinstance(step.want, Absent)]
    early = [step for step in deletions if _is_in_the_way(step.path, written, above)]
    late = [step for step in deletions if not _is_in_the_way(step.path, written, above)]
    with Writer(root, content, tag=tag, on_result=on_result) as writer:
        results = writer.put(early)
        if early or not written.isdisjoint(folders):
            _clear(writer, folders, written)
        results += writer.put(writes)
        results += _delete(writer, root, late)
        for folder in folders:
            writer.remove_if_empty(folder)
        return _take_back(writer, root, [*early, *writes], results)


def _clear(writer: Writer, folders: Sequence[bytes], written: set[bytes]) -> None:
    """Make room for files where folders are."""
    for folder in folders:
        if any(folder == path or folder.startswith(path + b"/") for path in written):
            writer.remove_if_empty(folder)
    for path in written.intersection(folders):
        writer.remove_if_hollow(path)


def _delete(writer: Writer, root: Root, steps: Iterable[Step]) -> list[Result]:
    """Delete what is somewhere else by now, if it has to be."""
    allowed, results = [], []
    for step in steps:
        if _is_safe(root, step):
            allowed.append(step)
        else:
            results.append(writer.refuse(step, _NO_COPY))
    return results + writer.put(allowed)


def _take_back(
    writer: Writer, root: Root, steps: Iterable[Step], results: list[Result]
) -> list[Result]:
    """Put back what had to go before its copy was written, if the copy could not be."""
    outcomes = {result.path: result.outcome for result in results}
    unsafe = {
        step.path: Step(number=step.number, path=step.path, expect=step.want, want=step.expect)
        for step in steps
        if outcomes[step.path] in _IN_PLACE and not _is_safe(root, step)
    }
    writer.put(list(unsafe.values()))
    return [
        Result(result.path, Outcome.CONFLICT, _NO_COPY) if result.path in unsafe else result
        for result in results
    ]


def _is_safe(root: Root, step: Step) -> bool:
    """Whether one of the copies that a step needs is there, if it needs any."""
    return not step.needs or any(_is_there(root, copy) for copy in step.needs)


def _is_there(root: Root, copy: Copy) -> bool:
    folder, _, name = copy.path.rpartition(b"/")
    try:
        with root.folder(folder) as dir_fd:
            found = look(dir_fd, name)
    except OSError:
        return False
    return isinstance(found, Present) and (found.blob, found.is_link) == copy[1:]


def _is_in_the_way(path: bytes, written: set[bytes], above: set[bytes]) -> bool:
    """Whether a file has to be gone before something can be written."""
    return path in above or not written.isdisjoint(_folders_above(path))


def _folders_above(path: bytes) -> list[bytes]:
    names = path.split(b"/")
    return [b"/".join(names[:depth]) for depth in range(1, len(names))]
