"""Sessions and a person change one folder in any order, and revert: nobody loses work.

The whole of it: a real engine, real files, calls that run at the same time. What the model foresees
has to happen, and is judged as the planner's is; see `test_machine`.
"""

import asyncio
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from tests.engine.revert.whole_programs import Program, programs
from tests.engine.revert.whole_run import Run

LONG = bool(os.environ.get("KEDGE_TORTURE"))


@pytest.fixture(scope="module")
def figures() -> Iterator[Counter[str]]:
    """Counts what the runs came to."""
    counted: Counter[str] = Counter()
    yield counted
    if LONG:
        lines = [f"{name}: {count}" for name, count in sorted(counted.items())]
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


@settings(max_examples=1200 if LONG else 25)
@given(program=programs(30))
def test_nobody_loses_work(
    program: Program, figures: Counter[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each undoing does what it should and says so, and every byte from before can be had back."""
    folder = tmp_path_factory.mktemp("whole")
    try:
        asyncio.run(Run(folder, program, figures).run())
    finally:
        shutil.rmtree(folder)


@settings(max_examples=600 if LONG else 9)
@given(program=programs(30, choices=9))
def test_nobody_loses_work_where_calls_are_chosen(
    program: Program, figures: Counter[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same where chosen calls are undone and redone between all that; their receipts and marks
    are true, and an undo and redo with nothing in between lead to the same bytes."""
    folder = tmp_path_factory.mktemp("whole")
    try:
        asyncio.run(Run(folder, program, figures).run())
    finally:
        shutil.rmtree(folder)
