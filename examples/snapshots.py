"""Snapshots of a folder: what an agent did to it, seen and taken back, in a temporary folder.

It needs no engine and no session; how sessions keep snapshots is in the README.
"""

import os
import tempfile
from pathlib import Path

from kedge.snapshot import Absent, Present, Snapshots, State, Uncovered


def tour(project: Path, data: Path) -> None:
    """Take a snapshot, let somebody work, look at what they did, and take it back."""
    with Snapshots.open(project, data=data, project="example") as snapshots:
        before = snapshots.track()
        work(project)
        after = snapshots.track()
        print("What changed:")
        for change in snapshots.changes(before, after):
            states = f"{name(change.before)} -> {name(change.after)}"
            print(f"  {change.path.decode():14}{states}")
        print("In lines:")
        for diff in snapshots.diff_full(before, after):
            print(f"  {diff.file:14}+{diff.additions} -{diff.deletions}")
        print("Putting it back:")
        for result in snapshots.restore(before):
            print(f"  {result.path.decode():14}{result.outcome}  {result.reason}".rstrip())
        print(f"Is it as it was? {snapshots.track().id == before.id}")


def prepare(project: Path) -> None:
    """A small project, with a file that is nobody else's business."""
    os.umask(0o022)
    project.mkdir()
    (project / "greeting.txt").write_text("Hello\nworld\n")
    (project / "secret.key").write_text("12345\n")
    (project / "secret.key").chmod(0o600)
    (project / "build.log").write_text("started\n")


def work(project: Path) -> None:
    """What an agent might do; that it ignores a file must not make its undo touch that file."""
    (project / "greeting.txt").write_text("Hello\nmoon\n")
    (project / "secret.key").chmod(0o644)
    (project / ".gitignore").write_text("*.log\n")
    (project / "plan.txt").write_text("to the moon\n")


def name(state: State) -> str:
    """A state in a word or two."""
    match state:
        case Present(mode=mode):
            return f"a file, {mode & 0o777:o}"
        case Absent():
            return "nothing"
        case Uncovered(reason=reason):
            return f"not covered: {reason}"


def main() -> None:
    """Take the tour in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        prepare(project)
        tour(project, Path(folder, "data"))


if __name__ == "__main__":
    main()
