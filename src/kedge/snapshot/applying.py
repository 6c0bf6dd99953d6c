"""Steps that somebody else has written down carried out over a worktree, in the order that lets
files and folders take each other's place; the caller holds the root's lock."""

from collections.abc import Callable, Sequence

from kedge.snapshot.files.opening import Root
from kedge.snapshot.files.steps import Step
from kedge.snapshot.files.writing import Writer
from kedge.snapshot.values import Absent, Result


def apply(
    root: Root,
    content: Callable[[str], bytes],
    steps: Sequence[Step],
    *,
    tag: str,
    folders: Sequence[bytes],
    on_result: Callable[[Result], None] | None,
) -> list[Result]:
    """Delete, remove those of the folders that are empty by then, write; a result for each step.

    Folders are removed in the order given: the deepest must come first. One that a file is to take
    the place of goes also with empty folders in it.
    """
    deletions = [step for step in steps if isinstance(step.want, Absent)]
    writes = [step for step in steps if not isinstance(step.want, Absent)]
    with Writer(root, content, tag=tag, on_result=on_result) as writer:
        results = writer.put(deletions)
        for folder in folders:
            writer.remove_if_empty(folder)
        for step in writes:
            if step.path in folders:
                writer.remove_if_hollow(step.path)
        return results + writer.put(writes)
