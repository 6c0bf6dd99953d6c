"""Fail points: none is forgotten, they act when they should, and do nothing otherwise."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kedge._failpoints import POINTS, RUN_POINTS, SUMMARY_POINTS, TOOL_POINTS, armed, reach
from kedge.domain.errors import InvalidInput

SOURCE = Path(__file__).parents[1] / "src" / "kedge"


def reached_in(folder: Path) -> set[str]:
    """The names that the code of a folder reaches."""
    names: set[str] = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            # Collecting has a `reach` too, which takes no name.
            match node:
                case ast.Call(func=ast.Name(id="reach"), args=[ast.Constant(value=str(name))]):
                    names.add(name)
    return names


def test_every_point_is_known_and_reached() -> None:
    """The list names what the code reaches, each once, and at least twelve."""
    assert reached_in(SOURCE) == {*POINTS, *TOOL_POINTS, *RUN_POINTS, *SUMMARY_POINTS}
    assert len(set(POINTS)) == len(POINTS) >= 12


def test_a_point_acts_at_its_time() -> None:
    """Only the one that is armed, only in the block, only the so-many-th time."""
    reached: list[str] = []
    with armed(POINTS[0], lambda: reached.append("now"), at=2):
        reach(POINTS[1])
        reach(POINTS[0])
        assert reached == []
        reach(POINTS[0])
        reach(POINTS[0])
    reach(POINTS[0])
    assert reached == ["now"]


def test_unknown_points_are_refused() -> None:
    """A test of a place that is not there would pass for nothing."""
    with pytest.raises(InvalidInput), armed("nowhere", lambda: None):
        pass


def test_the_environment_kills() -> None:
    """The process ends at the so-many-th time without another word."""
    code = (
        "from kedge._failpoints import POINTS, reach\n"
        "for turn in range(3):\n    print(turn, flush=True)\n    reach(POINTS[0])\n"
    )
    environment = {**os.environ, "KEDGE_FAILPOINT": f"{POINTS[0]}:2"}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == [b"0", b"1"]
