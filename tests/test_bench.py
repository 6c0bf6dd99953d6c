"""The benchmarks run and measure what they promise; their speed is not judged here.

`make test` runs one small benchmark and the errors. `make torture` runs all of them.
"""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from tests.support import environment

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
    "snapshot, 1 changed: of 240 files / of 60 files": 3,
    "undo of one call, session of 40 calls / 20 calls": 1.5,
    "redo of one call, session of 40 calls / 20 calls": 1.5,
    "later prompt, 80 messages / 20, model in the process": 1.5,
    "step, 80 messages / 20, model in the process": 1.5,
    "blame of 500 lines, 10 changes / git blame": 10,
}
LEAST = {
    "snapshot, none changed of 240 files": 1_000,
    "snapshot, 1 changed of 240 files": 150,
    "snapshot, 10 changed of 240 files": 8,
    "snapshot by scan, none changed of 240 files": 1,
    "snapshot by scan, 1 changed of 240 files": 1,
    "snapshot by scan, 10 changed of 240 files": 1,
    "first snapshot of 240 files": 1,
    "session's diff, 1 changed of 120 files": 1,
    "session's diff, 10 changed of 120 files": 1,
    "session's diff again, 10 changed of 120 files": 1,
    "session's revert, 1 changed of 60 files": 1,
    "session's revert, 5 changed of 60 files": 1,
    "session's revert, 100 changed of 120 files": 1,
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
    "snapshot, 1 changed of 60 files",
    "snapshot, 1 new of 240 files",
    "patch, 1 changed of 240 files",
    "first snapshot of 240 files without git",
    "first command in 240 files, packed",
    "first command in 240 files, loose",
    "start and snapshot, none changed of 240 files",
    "memory of a process that watches 240 files",
    "diff, 10 changed of 240 files",
    "revert 100 changed of 240 files",
    "restore, 100 changed of 240 files",
    "disk, 5 snapshots of 120 files, collected, in blocks",
    "declared call in 240 files / unprotected",
    "call of unknown effect in 240 files / unprotected",
    "call of unknown effect in 240 files / snapshot",
    "declared call: in 240 files / in 60 files",
    "call of unknown effect: in 240 files / in 60 files",
    "session's unrevert, 100 changed of 120 files",
    "blame again of 500 lines, 10 changes / git blame",
    "blame after one more change of 500 lines, 10 changes / git blame",
    "last byte of 1 token until idle",
    "last byte of 200 tokens until idle",
    "processor time for each of 200 tokens",
    "first prompt, 80 messages / 20, model in the process",
    "longest stall, first prompt, 80 messages / 20, model in the process",
    "step, 80 messages / 20, model by HTTP",
    "server, start until it answers",
    "server, start until it lists 30 sessions",
    "server, memory before the run",
    "server, GET session",
    "server, list of 30 sessions",
    "server, page of 100 of 120 messages",
    "server, POST session",
    "server, GET session: asked at most",
    "server, prompt until its first event",
    "server, prompt of 20 words until idle",
    "server, 100 events/s to 10 subscribers: late",
    "server, 100 events/s to 10 subscribers: delivered",
    "server, 100 events/s to 10 subscribers: processor time for each",
    "server, memory after the run",
}


def bench(*arguments: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as `make bench` does, but with all their folders under `scratch`."""
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        # The default path has git, and nothing of whoever runs the tests.
        env={"TMPDIR": str(scratch), "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder() -> Path:
    """What a quick run of everything left; the processes of a test run share one."""
    folder = environment.run_folder() / "bench"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "printed").exists():
            (folder / "scratch").mkdir(exist_ok=True)
            output = str(folder / "results.json")
            done = bench("--quick", "--output", output, scratch=folder / "scratch")
            assert done.returncode == 0, done.stderr
            (folder / "printed").write_text(done.stdout)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> tuple[dict[str, Any], str]:
    """What it wrote and printed."""
    return json.loads((folder / "results.json").read_text()), (folder / "printed").read_text()


def test_one_benchmark(tmp_path: Path) -> None:
    """A benchmark runs, prints a line, writes its figure and the machine, and leaves nothing."""
    output, scratch = tmp_path / "results.json", tmp_path / "scratch"
    scratch.mkdir()
    done = bench("--quick", "--output", str(output), "forks", scratch=scratch)
    assert done.returncode == 0, done.stderr
    [figure] = json.loads(output.read_text())["figures"]
    assert (figure["name"], figure["target"]) == ("fork of 50 messages, 250 parts", 3)
    assert figure["name"] in done.stdout
    assert json.loads(output.read_text())["machine"]["quick"] is True
    assert list(scratch.iterdir()) == []


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_every_promised_figure_is_measured(results: tuple[dict[str, Any], str]) -> None:
    """The results hold each figure with its target, and nothing else has one of these names."""
    figures = {each["name"]: each for each in results[0]["figures"]}
    assert len(figures) == len(results[0]["figures"])
    assert {name: figures[name]["target"] for name in TARGETS} == TARGETS
    assert {name: figures[name]["least"] for name in LEAST} == LEAST
    assert figures.keys() >= ONLY_REPORTED
    assert {figures[name]["met"] for name in ONLY_REPORTED} == {None}


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_every_figure_is_whole(results: tuple[dict[str, Any], str]) -> None:
    """Each figure lies within its spread and says whether its target was met, if it has one."""
    for each in results[0]["figures"]:
        assert each["low"] <= each["value"] <= each["high"]
        # How much space something takes is not a matter of chance.
        assert each["rounds"] >= (1 if each["name"].startswith("disk") else 2)
        assert each["met"] == _met(each["value"], each["least"], each["target"])


def _met(value: float, least: float | None, most: float | None) -> bool | None:
    bounds = (least is None or least <= value, most is None or value <= most)
    return None if least is None and most is None else all(bounds)


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_the_results_name_the_machine(results: tuple[dict[str, Any], str]) -> None:
    """The results say which machine they were measured on."""
    machine = results[0]["machine"]
    assert machine["quick"] is True
    named = {"python", "sqlite", "git", "cpu", "cpus", "load", "filesystem", "seconds"}
    assert named <= machine.keys()


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_the_table_has_a_line_for_each_figure(results: tuple[dict[str, Any], str]) -> None:
    """What is printed is what is written."""
    head, *lines = results[1].splitlines()
    assert head.split()[:3] == ["name", "figure", "target"]
    names = [each["name"] for each in results[0]["figures"]]
    assert [line.startswith(name) for line, name in zip(lines, names, strict=True)] == [True] * len(
        names
    )


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_nothing_is_left_behind(folder: Path) -> None:
    """The databases of a run go away with it."""
    assert list((folder / "scratch").iterdir()) == []


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_another_version_can_be_compared_with(tmp_path: Path) -> None:
    """Every comparison gives ratios, of this checkout and itself here."""
    output = tmp_path / "results.json"
    done = bench("--quick", "--before", ".", "--output", str(output), scratch=tmp_path)
    assert done.returncode == 0, done.stderr
    names = {each["name"] for each in json.loads(output.read_text())["figures"]}
    assert "first command in 240 files, loose, after / before" in names
    assert "first command in 240 files, loose, until all is kept, after / before" in names
    assert "session's revert, 100 changed of 120 files, after / before" in names
    assert "server, start with 2 cut turns, until it answers, after / before" in names
    assert "server, start with 2 cut turns, until all are recovered, after / before" in names
    assert "1 prompts that write one file each, after / before" in names
    assert "2 pages of 100 messages, after / before" in names


def test_a_comparison_needs_another_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is no checkout of kedge and a benchmark without a comparison are refused."""
    assert refusal(capsys, "--before", str(tmp_path)).endswith("is no checkout of kedge\n")
    said = refusal(capsys, "--before", str(ROOT), "parts")
    assert "there is no parts; choose from snapshots_first, reverts" in said


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The error for an unknown benchmark names those that exist."""
    said = refusal(capsys, "speed")
    assert "there is no speed; choose from parts, sessions" in said


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the benchmarks print instead of running."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err
