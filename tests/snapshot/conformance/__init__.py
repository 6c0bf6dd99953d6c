"""The conformance suite of snapshots: what is promised of them, as checks that can fail.

It is for whoever changes how snapshots are taken or opens them in another way:

    def open_mine(root: Path, data: Path, settings: SnapshotSettings) -> Snapshots: ...

    check_snapshots(open_mine, tmp_path)

What a person or a program does to a worktree over time is looked for in `tests.snapshot_fuzz`.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.snapshot.conformance import changes, coverage, keeps, order, repositories, restore, rules
from tests.snapshot.conformance.scene import Opener, Scene, SnapshotCheck

__all__ = ["SNAPSHOT_CHECKS", "Opener", "Scene", "SnapshotCheck", "check_snapshots"]


def _checks(module: ModuleType) -> Iterator[SnapshotCheck]:
    """Every public function of a module is a check, so that none can be forgotten."""
    for name, found in vars(module).items():
        own = getattr(found, "__module__", None) == module.__name__
        if own and not name.startswith("_") and inspect.isfunction(found):
            yield found


_MODULES = (coverage, rules, repositories, changes, restore, keeps, order)

SNAPSHOT_CHECKS: tuple[SnapshotCheck, ...] = tuple(
    check for module in _MODULES for check in _checks(module)
)
"""All checks, to be run one by one: `@pytest.mark.parametrize("check", SNAPSHOT_CHECKS)`."""


def check_snapshots(opener: Opener, folder: Path) -> None:
    """Run every check in a folder of its own; raises an ExceptionGroup of all that failed.

    `opener` opens the snapshots under test, `folder` is an empty folder to work in. Every failure
    carries a note with the check's name.
    """
    failures: list[Exception] = []
    for number, check in enumerate(SNAPSHOT_CHECKS):
        own = folder / str(number)
        own.mkdir()
        try:
            check(Scene(own, opener))
        except Exception as error:  # noqa: BLE001 - all failures are reported together
            error.add_note(f"in the check {check_name(check)}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(
            f"{len(failures)} of {len(SNAPSHOT_CHECKS)} snapshot checks failed", failures
        )


def check_name(check: SnapshotCheck) -> str:
    """The name of a check, as a test runner shows it."""
    return str(getattr(check, "__name__", check))
