"""Runs git on a repository without any influence from the repository or the caller's environment.

Only for commands that read; hooks, pagers, fetches and prompts never run.
"""

import asyncio
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from kedge.domain.child_processes import MIB, ChildLimits
from kedge.snapshot.repository.discover import common_folder
from kedge.snapshot.repository.signatures import may_be_opened

Answer = TypeVar("Answer")

_LONGEST_ANSWER = 16 * 1024 * 1024
_LARGEST_CONFIG = 1024 * 1024
_REFS = (b"HEAD", b"packed-refs")
_CONFIGS = (b"config", b"config.worktree")
LIMITS = ChildLimits(memory=2048 * MIB, cpu=60)
"""Limits for git; it holds whole files in memory, but maps the index and the packs."""
_WHOSE_CONFIGURATION = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")

# Separate threads: a repository can make git hang, and only its own callers wait with it.
THREADS = 8
_ASKING = ThreadPoolExecutor(THREADS, thread_name_prefix="kedge-git")


class Stopped(Exception):
    """The caller has left; raised in the thread that still works for it."""


class _Inquiry:
    """Work that runs git, and that another thread may stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether the caller no longer waits for the result."""
        return self._is_stopped

    def begin(self, asked: subprocess.Popen[bytes]) -> None:
        """Register a git process that was started; the one before has ended."""
        with self._lock:
            self._asked = asked
            if self._is_stopped:
                asked.kill()

    def stop(self) -> None:
        """End the running git, and every later one immediately."""
        with self._lock:
            self._is_stopped = True
            if self._asked is not None:
                self._asked.kill()

    def run(self, work: Callable[[], Answer]) -> Answer:
        """Run the work in this thread."""
        _current.inquiry = self
        try:
            return work()
        finally:
            _current.inquiry = None


class _Current(threading.local):
    inquiry: _Inquiry | None = None


_current = _Current()


async def aside(work: Callable[[], Answer]) -> Answer:
    """Run work that asks git in a thread, beside the event loop.

    When the caller is cancelled, git is killed, and the work has ended before this returns.
    """
    inquiry = _Inquiry()
    job = _ASKING.submit(inquiry.run, work)
    working = asyncio.wrap_future(job)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        inquiry.stop()
        if not job.cancel():
            await _over(working)
        raise


async def _over(working: asyncio.Future[Answer]) -> None:
    """Wait until the work has ended in any way, however often the caller is cancelled."""
    while not working.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({working})
    if not working.cancelled():
        # Retrieved, so that asyncio does not warn that it never was.
        working.exception()


@dataclass(frozen=True, slots=True)
class Heard:
    """Git's output, even if git did not finish."""

    said: bytes
    status: int | None
    """Its exit status; None if it did not start, ran out of time, or wrote more than the limit."""
    is_late: bool = False
    """Whether the time ran out."""


def ask_git(
    git_folder: bytes, *arguments: str, environment: Mapping[str, str], patience: float
) -> bytes | None:
    """Git's output about a repository, or None if it fails or takes too long."""
    deadline = time.monotonic() + patience
    heard = hear_git(
        git_folder,
        *arguments,
        environment=environment,
        deadline=deadline,
        most=_LONGEST_ANSWER,
    )
    return heard.said if heard.status == 0 else None


def hear_git(
    git_folder: bytes,
    *arguments: str,
    environment: Mapping[str, str],
    deadline: float,
    most: int,
    stdin: int = subprocess.DEVNULL,
) -> Heard:
    """Git's output about a repository until the deadline, up to `most` bytes.

    `deadline` is a time of the monotonic clock; `stdin` a descriptor of a file that git reads.
    Raises `Stopped` in work that was run by `aside`, for a caller that has left.
    """
    if not _is_readable(git_folder):
        return Heard(b"", None)
    try:
        asked = subprocess.Popen(
            [b"git", b"--no-pager", b"--git-dir=" + git_folder, *map(os.fsencode, arguments)],
            # A folder that always exists, and is in no repository if git_folder names none.
            cwd="/",
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return Heard(b"", None)
    with asked:
        try:
            LIMITS.apply(asked.pid)
            if _current.inquiry is not None:
                _current.inquiry.begin(asked)
            heard = _hear(asked, deadline, most)
        finally:
            asked.kill()
    if _current.inquiry is not None and _current.inquiry.is_stopped:
        raise Stopped
    return heard


def _is_readable(git_folder: bytes) -> bool:
    """Whether git can start: a pipe at one of these paths would block it."""
    return all(
        may_be_opened(folder + b"/" + name, limit)
        for folder in {git_folder, common_folder(git_folder)}
        for names, limit in ((_REFS, None), (_CONFIGS, _LARGEST_CONFIG))
        for name in names
    )


def without_configuration() -> dict[str, str]:
    """An environment in which neither the caller's nor the user's settings apply."""
    return _bare_environment() | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


def with_configuration() -> dict[str, str]:
    """An environment in which only the user's and the machine's configuration apply.

    That includes the variables that name these files.
    """
    named = {name: os.environ[name] for name in _WHOSE_CONFIGURATION if name in os.environ}
    return _bare_environment() | named


def _bare_environment() -> dict[str, str]:
    # Variables that the caller set for git, and the repository's settings, must have no effect.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return kept | {
        # A repository that lacks objects must not make git execute its configuration.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


def _hear(asked: subprocess.Popen[bytes], deadline: float, most: int) -> Heard:
    assert asked.stdout is not None
    descriptor = asked.stdout.fileno()
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    said = bytearray()
    while len(said) <= most:
        if not waiting.poll(max(0, deadline - time.monotonic()) * 1000):
            return Heard(bytes(said), None, is_late=True)
        piece = os.read(descriptor, 65536)
        if not piece:
            return _ended(asked, bytes(said), deadline)
        said += piece
    return Heard(bytes(said[:most]), None)


def _ended(asked: subprocess.Popen[bytes], said: bytes, deadline: float) -> Heard:
    try:
        return Heard(said, asked.wait(max(0.1, deadline - time.monotonic())))
    except subprocess.TimeoutExpired:
        return Heard(said, None, is_late=True)
