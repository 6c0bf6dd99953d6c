"""Runs the command as people do: in a process of its own, with pipes or with a terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.support.timeouts import PATIENCE

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

    @contextmanager
    def keyboard(
        self, *arguments: str, width: int = 80, environ: Mapping[str, str] | None = None
    ) -> Iterator["Keyboard"]:
        """Run a command at a terminal, with a person at the keyboard."""
        variables = {**self.environ, **(environ or {})}
        with at_keyboard(command(arguments), self.project, variables, width) as keyboard:
            yield keyboard

    def talk(self, *arguments: str, answer: bytes, question: str = "[y/N]") -> Done:
        """Run a command at a terminal, and type an answer when it asks."""
        with self.keyboard(*arguments) as keyboard:
            keyboard.until(question)
            keyboard.type(answer)
            return keyboard.end()


@contextmanager
def at_keyboard(
    words: Sequence[str], folder: Path, environ: Mapping[str, str], width: int = 80
) -> Iterator["Keyboard"]:
    """Run a program at a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    try:
        with subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *words],
            cwd=folder,
            env={"TERM": "xterm-256color", **environ},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        ) as running:
            os.close(theirs)
            keyboard = Keyboard(running, ours)
            try:
                yield keyboard
            finally:
                keyboard.leave()
    finally:
        os.close(ours)


class Keyboard:
    """A person at the terminal of a running command."""

    def __init__(self, running: subprocess.Popen[bytes], ours: int) -> None:
        self._running = running
        self._ours = ours
        self._shown = b""

    @property
    def shown(self) -> str:
        """All that was shown so far, with escape sequences."""
        return self._shown.decode(errors="replace").replace("\r\n", "\n")

    @property
    def text(self) -> str:
        """The same without escape sequences."""
        return plain(self.shown)

    def until(self, words: str) -> None:
        """Look on until these words are there."""
        self.until_count(words, 1)

    def until_count(self, words: str, count: int) -> None:
        """Look on until these words are there so many times."""
        deadline = monotonic() + PATIENCE
        while self.text.count(words) < count:
            assert self._read(deadline), f"it ended without {words!r}:\n{self.text}"

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def end(self) -> Done:
        """Look on until the command ends."""
        deadline = monotonic() + PATIENCE
        while self._read(deadline):
            pass
        return Done(self._running.wait(PATIENCE), self.text, "")

    def leave(self) -> None:
        """Close the terminal."""
        if self._running.poll() is None:
            self._running.send_signal(signal.SIGKILL)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - monotonic()))
        assert ready, f"nothing more came:\n{self.text}"
        try:
            piece = os.read(self._ours, 65536)
        except OSError:
            # How Linux tells that the last program at the terminal has gone.
            return False
        self._shown += piece
        return bool(piece)


def plain(text: str) -> str:
    """A text without what styles it and moves the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def command(arguments: Sequence[str]) -> list[str]:
    """The command line of a command."""
    return [sys.executable, "-m", "kedge", *arguments]
