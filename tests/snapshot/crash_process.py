"""A process that applies steps, or cleans up after them, and may be killed at a fail point."""

import sys
from pathlib import Path

from kedge.domain.file_states import FileStep
from kedge.snapshot import Absent, Present, Snapshots
from kedge.snapshot.objects.formats import blob_id

TAG = "crash"
OLD, NEW = b"old\n", b"new\n"
FOLDERS = (b"gone/deep", b"gone")


def file(content: bytes, mode: int = 0o100644) -> Present:
    """The state of a file with this content."""
    return Present(blob_id(content).hex(), mode)


BEFORE = {
    b"edited": file(OLD),
    b"x/a": file(OLD, 0o100600),
    b"x/b": file(OLD),
    b"gone/deep/file": file(OLD),
    b"swapped": file(OLD),
    b"link": file(OLD.strip(), 0o120777),
}
AFTER = {
    b"edited": file(NEW),
    b"x/a": file(NEW, 0o100600),
    b"x/b": file(OLD, 0o100755),
    b"made/deep/file": file(NEW, 0o100600),
    b"swapped/below": file(OLD),
    b"link": file(NEW.strip(), 0o120777),
}


def steps() -> list[FileStep]:
    """What leads from the one to the other."""
    return [
        FileStep(
            number=number,
            path=path,
            expect=BEFORE.get(path, Absent()),
            want=AFTER.get(path, Absent()),
        )
        for number, path in enumerate(sorted(BEFORE.keys() | AFTER.keys()))
    ]


def main(root: Path, data: Path, verb: str) -> None:
    """Do one thing in a worktree."""
    with (
        Snapshots.open(root, data=data, project="p") as snapshots,
        snapshots.ordered() as ordered,
    ):
        if verb == "apply":
            ordered.apply(steps(), tag=TAG, folders=FOLDERS)
        else:
            ordered.clean_up(steps(), tag=TAG)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
