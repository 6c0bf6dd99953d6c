"""Restores a worktree to a snapshot: the steps that this takes, and their order."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from kedge.domain.errors import ObjectMissing
from kedge.domain.file_states import Absent, FileStep, Outcome, Present, State, Uncovered
from kedge.snapshot.files.writer import Writer
from kedge.snapshot.history import View
from kedge.snapshot.values import Change, Patch, Result


def steps_back(
    changes: Sequence[Change], has: Callable[[str], bool]
) -> tuple[list[FileStep], list[Result]]:
    """The steps that undo changes: `after` is expected on disk, `before` is wanted there.

    A path that is not covered on both sides cannot be undone, nor one whose content the store no
    longer `has`: the results of these are returned at once.
    """
    steps: list[FileStep] = []
    results: list[Result] = []
    for number, change in enumerate(changes):
        if not change.is_covered:
            results.append(_skipped(change))
        elif isinstance(change.before, Present) and not has(change.before.blob):
            lost = str(ObjectMissing(change.before.blob))
            results.append(Result(change.path, Outcome.SKIPPED, lost))
        else:
            step = FileStep(
                number=number, path=change.path, expect=change.after, want=change.before
            )
            steps.append(step)
    return steps, results


def put_back(writer: Writer, steps: Sequence[FileStep]) -> list[Result]:
    """Carry out steps in an order in which none is in another's way."""
    # A file must be gone before a folder takes its place, and the reverse.
    deletions = [step for step in steps if isinstance(step.want, Absent)]
    results = writer.put(deletions)
    for folder in _emptied(deletions):
        writer.remove_if_empty(folder)
    return results + _write(writer, [step for step in steps if not isinstance(step.want, Absent)])


def _write(writer: Writer, steps: Sequence[FileStep]) -> list[Result]:
    results = {result.path: result for result in writer.put(steps)}
    # A folder without any file contains no work, and a snapshot does not record it.
    cleared = [
        step
        for step in steps
        if results[step.path].outcome is Outcome.CONFLICT and writer.remove_if_hollow(step.path)
    ]
    results.update((result.path, result) for result in writer.put(cleared))
    return list(results.values())


def undoing(
    patches: Iterable[Patch],
    root: bytes,
    then: Callable[[str], View],
    now: Callable[[bytes], State],
) -> tuple[list[Change], list[Result]]:
    """The steps that restore the files of patches, where the first patch that names a file decides;
    and the results of files that need no change or cannot be restored."""
    changes: list[Change] = []
    results: list[Result] = []
    seen: set[bytes] = set()
    for patch in patches:
        for file in map(os.fsencode, patch.files):
            path = file.removeprefix(root + b"/")
            if path in seen:
                continue
            seen.add(path)
            if path == file:
                results.append(Result(file, Outcome.SKIPPED, "it is not in this worktree"))
                continue
            change = Change(path, then(patch.hash).state(path), now(path))
            if change.before == change.after and change.is_covered:
                results.append(Result(path, Outcome.UNCHANGED))
            else:
                changes.append(change)
    return changes, results


def _skipped(change: Change) -> Result:
    side = change.before if isinstance(change.before, Uncovered) else change.after
    assert isinstance(side, Uncovered)
    when = "in the snapshot" if side is change.before else "now"
    return Result(change.path, Outcome.SKIPPED, f"it is not covered {when} ({side.reason})")


def _emptied(deletions: list[FileStep]) -> Iterator[bytes]:
    """Folders that may be empty by then, deepest first."""
    folders = set()
    for step in deletions:
        folder = step.path.rpartition(b"/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
    return iter(sorted(folders, key=lambda path: (-path.count(b"/"), path)))
