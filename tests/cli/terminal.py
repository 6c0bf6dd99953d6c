"""Runs the command as people do: in a process of its own, with pipes or with a terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TAKE_TERMINAL = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the terminal that controls the process, so that keys interrupt it."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


class Terminal:
    """A home, a folder to be in, and a data folder."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.data = folder / "data"
        for each in (self.home, self.project):
            each.mkdir()

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables of a command, without what would configure it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("XDG_") and not name.endswith("_API_KEY")
        }
        return kept | {"HOME": str(self.home), "KEDGE_DATA_DIR": str(self.data)}

    def run(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Done:
        """Run a command with nobody at the keyboard."""
        done = subprocess.run(
            command(arguments),
            cwd=self.project,
            env={**self.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def talk(self, *arguments: str, answer: bytes) -> Done:
        """Run a command at a terminal, and type an answer when it asks."""
        ours, theirs = pty.openpty()
        try:
            running = subprocess.Popen(
                [sys.executable, "-c", _TAKE_TERMINAL, *command(arguments)],
                cwd=self.project,
                env=self.environ,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            os.close(theirs)
            with running:
                assert running.stdout is not None
                said = b""
                while b"[y/N]" not in said and (piece := os.read(running.stdout.fileno(), 4096)):
                    said += piece
                os.write(ours, answer)
                said += running.stdout.read()
        finally:
            os.close(ours)
        return Done(running.returncode, said.decode(), "")


def command(arguments: Sequence[str]) -> list[str]:
    """The command line of a command."""
    return [sys.executable, "-m", "kedge", *arguments]
