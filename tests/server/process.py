"""A server in a process of its own, for what would hurt the process of the tests."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.server.world import Client
from tests.support.servers import scratch
from tests.support.timeouts import PATIENCE

_ROOT = Path(__file__).parents[2]
_LISTENING = re.compile(r"kedge listening on (http://127\.0\.0\.1:\d+)\n")


@dataclass(frozen=True, slots=True)
class Process:
    """A server that listens."""

    url: str
    pid: int

    def memory(self) -> int:
        """Bytes that it holds now."""
        told = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(self.pid)], check=True, capture_output=True, text=True
        )
        return int(told.stdout) * 1024


def limited(command: list[str], descriptors: int) -> list[str]:
    """A command that may have only so many descriptors."""
    return ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]


@contextmanager
def served_apart(root: Path, *, descriptors: int | None = None) -> Iterator[Process]:
    """Serve a folder with a file, with an empty home, and perhaps with few descriptors; at the end
    it goes, and nothing broke."""
    directory = root / "project"
    directory.mkdir()
    (directory / "a.txt").write_text("hello\n")
    complaints = root / "complaints"
    command = [sys.executable, "-m", "kedge", "serve", "--port", "0"]
    if descriptors is not None:
        command = limited(command, descriptors)
    with (
        complaints.open("w") as stderr,
        subprocess.Popen(
            [*command, "--data", str(root / "data"), str(directory)],
            env=scratch(root / "home"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            said = _LISTENING.fullmatch(process.stdout.readline())
            assert said is not None, complaints.read_text()
            yield Process(said[1], process.pid)
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    said_at_last = complaints.read_text()
    # Clients may write into the log, so it need not be empty.
    assert "Traceback" not in said_at_last, said_at_last


@contextmanager
def killable(
    folder: Path, environ: Mapping[str, str], port: int = 0, *, work: str = "work"
) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    """A server on a folder that is there, to be killed at any time."""
    command = [sys.executable, "-m", "kedge", "serve", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--data", str(folder / "data"), str(folder / work)],
        env={**environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            yield process, Client(url, {})
        finally:
            process.kill()
