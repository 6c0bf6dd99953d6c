"""Commands on a data folder on a read-only file system, such as a mounted backup."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kedge
from tests.cli.projects import prompts
from tests.cli.terminal import Done, Terminal, command

_MOUNT = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


def read_only(terminal: Terminal, *arguments: str) -> Done:
    """Run a command that sees the data folder on a read-only file system."""
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh"]
    done = subprocess.run(
        [*words, str(terminal.data), *command(arguments)],
        cwd=terminal.project,
        env=terminal.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def used(terminal: Terminal) -> Terminal:
    """A terminal whose data folder can be mounted read-only."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    terminal.data.mkdir(mode=0o700)
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", _MOUNT, "sh", terminal.data, "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    return terminal


async def test_a_read_only_folder(used: Terminal, tmp_path: Path) -> None:
    """It is said what cannot be written; beside a process that can, everything can be looked at."""
    await prompts(used, "write a.txt one")
    done = read_only(used, "sessions")
    assert (done.code, done.out) == (1, "")
    assert "kedge.db cannot be written; make it and its folder writable" in done.err
    async with kedge.open(used.project, data_dir=used.data):
        assert read_only(used, "sessions").out.split("\t")[1] == "Two files"
        assert read_only(used, "cat", "a.txt").out == "one\n"
        assert read_only(used, "blame", "a.txt").out.endswith("\t1\tone\n")
        assert read_only(used, "log", "--all").out.endswith("\tadded\ta.txt\n")
        assert "cannot be written" in read_only(used, "undo", "--yes").err
        done = read_only(used, "doctor", "--json")
        found = {each["code"] for each in json.loads(done.out)["findings"]}
        assert (done.code, found) == (3, {"folder-unwritable"})
        done = read_only(used, "backup", "create", str(tmp_path / "b.tar"))
        assert (done.code, done.err) == (0, "")
