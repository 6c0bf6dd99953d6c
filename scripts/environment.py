"""Makes .venv: the packages of a lock, and kedge as a path into this checkout. Needs no package.

Usage: python scripts/environment.py [--tools]

uv installs; where there is none, pip fetches it first, because both together take a third of the
time that pip takes alone. Where uv cannot be had, or does not manage, pip installs.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
RUN_LOCK = ROOT / "requirements.lock"
TOOLS_LOCK = ROOT / "requirements-dev.lock"
# Of a virtual environment, the Python that it was made from: it may be .venv that is in use.
BASE: str = getattr(sys, "_base_executable", sys.executable)
UNFINISHED = VENV / ".unfinished"
"""Is there while packages are installed: what a killed installer left is not to be trusted."""

# Where an administrator said where packages are, or how they are reached: uv does not read that.
_PIP_KNOWS_BETTER = re.compile(
    r"^[^=]*\.(index-url|no-index|proxy|client-cert|trusted-host)=", re.MULTILINE
)
# Where pip was told which certificates to trust; what is said last counts there.
_PIP_TRUSTS = re.compile(r"^(global|install|:env:)\.cert=(.*)", re.MULTILINE)
# By way of a shell, because `#!` takes neither spaces nor long paths.
_SCRIPT = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys

from kedge.__main__ import run

sys.exit(run())
"""
_TAIL = 15


class Failed(Exception):
    """A program did not do what it was started for."""


class Progress:
    """What is being done: a line that lives on a terminal, one for each phase elsewhere."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._phase, self._detail = "beginning", ""
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._over = Event()
        self._drawing = Thread(target=self._draw, daemon=True)

    def __enter__(self) -> "Progress":
        if self._is_live:
            self._drawing.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_live:
            self._over.set()
            self._drawing.join()

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun

    def phase(self, text: str) -> None:
        """What begins now."""
        self._phase, self._detail = text, ""
        if not self._is_live:
            self.say(f"{text} ...")

    def detail(self, text: str) -> None:
        """How far it is; only a terminal shows that."""
        self._detail = text

    def say(self, text: str) -> None:
        """A line that stays."""
        clear = "\r\x1b[K" if self._is_live else ""
        print(f"{clear}kedge: {text}", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        is_over = False
        while not is_over:
            detail = f": {self._detail}" if self._detail else ""
            line = f"kedge: {self._phase}, {self.seconds:.0f} s{detail}"
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]}\x1b[K", end="", file=sys.stderr, flush=True)
            is_over = self._over.wait(0.1)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class Installer:
    """Runs uv or pip, and follows what they say."""

    def __init__(self, progress: Progress, alone: int) -> None:
        self._progress = progress
        self._alone = alone

    def packages(self, lock: Path) -> None:
        """Install everything in a lock, whose hashes are checked."""
        own = shutil.which("uv")
        uv = own or (str(UV) if UV.exists() else self._fetch_uv())
        if uv is not None:
            try:
                self._with_uv(uv, lock, os.environ if own else self._environ_of_uv())
            except Failed as error:
                last = str(error).splitlines()[-1:]
                self._progress.say(f"uv did not manage, so pip goes on; it said: {' '.join(last)}")
            else:
                return
        self._with_pip(lock)

    def _with_uv(self, uv: str, lock: Path, environ: Mapping[str, str]) -> None:
        command = [uv, "pip", "install", "--no-progress", "--python", str(PYTHON)]
        self._progress.phase(f"fetching the packages of {lock.name}")
        fetching: list[str] = []

        def heard(line: str) -> None:
            word, _, rest = line.strip().partition(" ")
            if word == "Resolved":
                self._progress.phase(f"fetching {' '.join(rest.split()[:2])}")
            elif word == "Downloading":
                fetching.append(rest.split()[0])
            elif word == "Downloaded" and rest in fetching:
                fetching.remove(rest)
            elif word == "Prepared":
                self._progress.phase("unpacking them")
            if word in ("Downloading", "Downloaded"):
                self._progress.detail(", ".join(fetching))

        self._run([*command, "--require-hashes", "--requirement", str(lock)], heard, environ)

    def _environ_of_uv(self) -> dict[str, str]:
        """An environment in which uv trusts what pip trusts: behind a proxy that looks into
        connections, it would reach nothing."""
        found = dict(_PIP_TRUSTS.findall(self._pip_settings))
        said = next((found[name] for name in (":env:", "install", "global") if name in found), None)
        trusted = {} if said is None else {"SSL_CERT_FILE": str(literal_eval(said))}
        return {**trusted, **os.environ}

    def _with_pip(self, lock: Path) -> None:
        self._progress.phase(f"fetching the packages of {lock.name} with pip")
        most = len(re.findall(r"^[\w.-]+==", lock.read_text(), re.MULTILINE))
        found = 0

        def heard(line: str) -> None:
            nonlocal found
            if line.startswith(("Collecting ", "Processing ")):
                found += 1
                self._progress.detail(f"{found} of at most {most}")
            elif line.startswith("Installing collected"):
                self._progress.phase("unpacking them")

        self._pip_install(["--require-hashes", "--requirement", str(lock)], heard)

    def _fetch_uv(self) -> str | None:
        """uv, from pip into .venv; None where pip should rather do it all."""
        if _PIP_KNOWS_BETTER.search(self._pip_settings):
            return None
        self._progress.phase("fetching uv, which is faster than pip")
        pinned = VENV / "uv.lock"
        pinned.write_text(_pin("uv", TOOLS_LOCK))
        try:
            # From its source it would take a Rust compiler, and longer than pip does it all.
            self._pip_install(
                ["--only-binary", ":all:", "--require-hashes", "--requirement", str(pinned)]
            )
        except Failed as error:
            last = str(error).splitlines()[-1:]
            self._progress.say(f"there is no uv to be had, so pip goes on: {' '.join(last)}")
            return None
        return str(UV)

    def _pip_install(
        self, wanted: Sequence[str], heard: Callable[[str], None] | None = None
    ) -> None:
        # Python compiles what it needs when it needs it: that is a fifth.
        options = ["--no-compile", "--progress-bar", "off"]
        self._run([*self._pip, "install", *options, *wanted], heard)

    @cached_property
    def _pip(self) -> list[str]:
        """The command that is pip for .venv: the pip of the Python that it was made from, which
        saves installing another."""
        base = [BASE, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        own = [str(PYTHON), *base[1:]]
        for command in ([*base, "--python", str(PYTHON)], own):
            asked = subprocess.run([*command, "--version"], capture_output=True, check=False)
            if asked.returncode == 0:
                return command
        try:
            self._run([str(PYTHON), "-m", "ensurepip"])
        except Failed as error:
            raise Failed(
                f"{error}\n{BASE} has neither pip nor ensurepip. On Debian: apt install python3-pip"
            ) from error
        return own

    @cached_property
    def _pip_settings(self) -> str:
        return self._run([*self._pip, "config", "list"])

    def _run(
        self,
        command: Sequence[str],
        heard: Callable[[str], None] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> str:
        """Run a program to its end and give what it said; it does not outlive this one."""
        lines: list[str] = []
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
            # So that nobody else begins before it has ended, whatever becomes of this process.
            pass_fds=(self._alone,),
        )
        try:
            assert child.stdout is not None
            with child.stdout:
                for line in child.stdout:
                    lines.append(line)
                    if heard is not None:
                        heard(line)
            code = child.wait()
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        said = "".join(lines)
        if code != 0:
            raise Failed("".join(lines[-_TAIL:]).strip() or f"{command[0]} ended with {code}")
        return said


def _pin(name: str, lock: Path) -> str:
    """What a lock says of one package."""
    [found] = re.findall(rf"^{name}==.*\\\n(?: .*\n?)+", lock.read_text(), re.MULTILINE)
    return str(found)


def prepare() -> None:
    """An environment of this Python, without any package if there was none that is whole."""
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if UNFINISHED.exists() or _version_of(PYTHON) != wanted:
        # One of another Python would silently run the tests on the wrong one.
        if VENV.exists():
            shutil.rmtree(VENV)
        VENV.mkdir()
        UNFINISHED.touch()
        venv.create(VENV, symlinks=True)
    UNFINISHED.touch()


def _version_of(python: Path) -> str | None:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        said = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


def link() -> None:
    """Put kedge itself there: a path, and a command."""
    [packages] = VENV.glob("lib/python3*/site-packages")
    (packages / "_kedge.pth").write_text(f"{ROOT / 'src'}\n")
    command = VENV / "bin" / "kedge"
    command.write_text(_SCRIPT.format(python=PYTHON))
    command.chmod(0o755)


@contextmanager
def alone(progress: Progress) -> Iterator[int]:
    """Only one process installs into a checkout."""
    # Any file of it would do; network file systems want one that could be written.
    file = os.open(ROOT / "pyproject.toml", os.O_RDWR)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.phase("waiting for another make, which is installing")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def main(arguments: Sequence[str]) -> int:
    """Make .venv; tells what to exit with."""
    lock = TOOLS_LOCK if "--tools" in arguments else RUN_LOCK
    # The first also where a script that runs this in the background has it ignored.
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    progress = Progress()
    try:
        with progress, alone(progress) as holding:
            progress.phase(f"preparing .venv for Python {sys.version.split()[0]}")
            prepare()
            Installer(progress, holding).packages(lock)
            link()
            UNFINISHED.unlink()
    except Failed as error:
        progress.say(f"the packages of {lock.name} could not be installed:\n{error}")
        return 1
    except KeyboardInterrupt:
        progress.say("stopped; the next make begins with a new .venv")
        return 130
    progress.say(f".venv is there, after {progress.seconds:.0f} s")
    return 0


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
