"""The benchmarks run and say what they promise to; how fast anything is, is not looked at."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TARGETS = {
    "store a part of 1 kB": 4,
    "store a part of 1 kB in a step": 4,
    "first page of sessions of the project": 1.5,
    "first page of sessions of a directory": 1.5,
    "first page of sessions below a path": 1.5,
    "first page of sessions that are roots": 1.5,
    "newest page of 50 messages": 1.5,
    "fork of 50 messages, 250 parts": 3,
}
ONLY_REPORTED = {
    "store a part of 1 kB, processor time",
    "store a part of 30 kB",
    "parts of 1 kB stored by 20 tasks",
    "stored event until 20 subscribers have it",
    "stored event per subscriber",
    "memory per idle subscriber, with its task",
    "parts of 400 B indexed",
    "search 400 parts: rare word",
    "start Python and import kedge",
    "open and close a new database",
}


def bench(*arguments: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as `make bench` does, but with all their folders under `scratch`."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env={"TMPDIR": str(scratch), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the run below keeps its databases."""
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, scratch: Path) -> tuple[dict[str, Any], str]:
    """What a quick run of everything wrote and printed."""
    output = tmp_path_factory.mktemp("results") / "results.json"
    done = bench("--quick", "--output", str(output), scratch=scratch)
    assert done.returncode == 0, done.stderr
    return json.loads(output.read_text()), done.stdout


def test_every_promised_figure_is_measured(results: tuple[dict[str, Any], str]) -> None:
    """The results hold each figure with its target, and nothing else has one of these names."""
    figures = {each["name"]: each for each in results[0]["figures"]}
    assert len(figures) == len(results[0]["figures"])
    assert {name: figures[name]["target"] for name in TARGETS} == TARGETS
    assert figures.keys() >= ONLY_REPORTED
    assert {figures[name]["target"] for name in ONLY_REPORTED} == {None}


def test_every_figure_is_whole(results: tuple[dict[str, Any], str]) -> None:
    """Each figure lies within its spread and says whether its target was met, if it has one."""
    for each in results[0]["figures"]:
        assert each["low"] <= each["value"] <= each["high"]
        assert each["rounds"] >= 2
        assert each["met"] == (None if each["target"] is None else each["value"] <= each["target"])


def test_the_results_name_the_machine(results: tuple[dict[str, Any], str]) -> None:
    """Whoever compares two results can see what they were measured on."""
    machine = results[0]["machine"]
    assert machine["quick"] is True
    assert {"python", "sqlite", "cpu", "cpus", "load", "filesystem", "seconds"} <= machine.keys()


def test_the_table_has_a_line_for_each_figure(results: tuple[dict[str, Any], str]) -> None:
    """What is printed is what is written."""
    head, *lines = results[1].splitlines()
    assert head.split()[:3] == ["name", "figure", "target"]
    names = [each["name"] for each in results[0]["figures"]]
    assert [line.startswith(name) for line, name in zip(lines, names, strict=True)] == [True] * len(
        names
    )


def test_nothing_is_left_behind(results: tuple[dict[str, Any], str], scratch: Path) -> None:
    """The databases of a run go away with it."""
    assert list(scratch.iterdir()) == []


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    """A benchmark that does not exist is an error that names those that do."""
    done = bench("speed", scratch=tmp_path)
    assert done.returncode == 2
    assert "there is no speed; choose from parts, sessions" in done.stderr
