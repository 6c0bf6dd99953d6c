"""A terminal that nobody sits at: programs draw on it, tests type and look at the screen."""

import contextlib
import itertools
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.support.clients import require
from tests.support.timeouts import PATIENCE

_LOOK = 0.1
_COLUMNS, _ROWS = 140, 50
_ENDED = "Pane is dead"


class Terminal:
    """A window of a tmux that no other test knows of."""

    def __init__(self, folder: Path) -> None:
        self._program = str(require("tmux"))
        self._sockets = (folder / f"socket{number}" for number in itertools.count())
        self._tmux: list[str] | None = None

    def run(self, *command: str, folder: Path, environ: Mapping[str, str]) -> None:
        """Start a program on an empty screen; what ran before it ends."""
        self.close()
        variables = [f"{name}={value}" for name, value in environ.items()]
        alone = shlex.join(["env", "-i", "TERM=xterm-256color", *variables, *command])
        size = ("-x", str(_COLUMNS), "-y", str(_ROWS))
        # No configuration file: what a person set up for themselves changes nothing here.
        self._tmux = [self._program, "-f", os.devnull, "-S", str(next(self._sockets))]
        # A window that stays shows what a program said before it ended.
        stays = ("start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";")
        self._do(*stays, "new-session", "-d", *size, "-c", str(folder), alone)

    def close(self) -> None:
        """End what runs, and the terminal with it."""
        if self._tmux is None:
            return
        program, tmux = self._do("display-message", "-p", "#{pane_pid} #{pid}").split()
        self._tmux = None
        # OpenCode stays when its terminal goes, and tmux does not always notice that it is gone.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(program), signal.SIGKILL)
        os.kill(int(tmux), signal.SIGKILL)

    def type(self, text: str) -> None:
        """Type a text, as a person does: line breaks in it do not send it."""
        for number, line in enumerate(text.split("\n")):
            if number:
                self.press("C-j")
            self._do("send-keys", "-l", line)

    def press(self, *keys: str) -> None:
        """Press keys by their names."""
        self._do("send-keys", *keys)

    @property
    def screen(self) -> str:
        """What is to be seen now."""
        return self._do("capture-pane", "-p")

    def until(self, *texts: str, without: tuple[str, ...] = ()) -> str:
        """Wait for a screen that shows some texts, and others not; gives it."""

        def shows(screen: str) -> bool:
            return all(text in screen for text in texts) and not any(
                text in screen for text in without
            )

        wanted = f"{texts}" + (f" without {without}" if without else "")
        return self.until_screen(shows, wanted)

    def until_screen(self, holds: Callable[[str], bool], wanted: str) -> str:
        """Wait for a screen of which something holds; gives it."""
        end = time.monotonic() + PATIENCE
        while not holds(screen := self.screen):
            if time.monotonic() > end or _ENDED in screen:
                raise AssertionError(f"the screen never showed {wanted}:\n{screen}")
            time.sleep(_LOOK)
        return screen

    def _do(self, *arguments: str) -> str:
        assert self._tmux is not None, "nothing runs"
        done = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, encoding="utf-8", check=False
        )
        if done.returncode != 0:
            raise AssertionError(f"tmux {arguments[0]}: {done.stderr}")
        return done.stdout


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Terminal]:
    """A terminal for the time of the block; the folder's path has to be short, for sockets."""
    terminal = Terminal(folder)
    try:
        yield terminal
    finally:
        terminal.close()
