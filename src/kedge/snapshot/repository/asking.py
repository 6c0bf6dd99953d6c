"""Asks git about a repository without letting the repository, or the caller's shell, have a say.

Only commands that read are asked for here; hooks, pagers, fetches and prompts never run.
"""

import asyncio
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")

_LONGEST_ANSWER = 16 * 1024 * 1024
_WHOSE_CONFIGURATION = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")

# Of their own: a repository can make git wait, and only those who ask about it wait with it.
_ASKING = ThreadPoolExecutor(8, thread_name_prefix="kedge-git")


async def aside(work: Callable[[], Answer]) -> Answer:
    """What work answers that asks git, done beside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_ASKING, work)


def ask_git(
    git_folder: bytes, *arguments: str, environment: Mapping[str, str], patience: float
) -> bytes | None:
    """What git says of a repository, or None if it cannot tell, or not in time."""
    try:
        asked = subprocess.Popen(
            [b"git", b"--no-pager", b"--git-dir=" + git_folder, *map(os.fsencode, arguments)],
            # A folder that stays, and that names no repository when git_folder is none.
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None
    with asked:
        try:
            answer = _hear(asked, time.monotonic() + patience)
        finally:
            asked.kill()
    return answer if asked.returncode == 0 else None


def without_configuration() -> dict[str, str]:
    """An environment in which neither the caller's settings nor the user's count."""
    return _bare_environment() | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


def with_configuration() -> dict[str, str]:
    """An environment in which the user's and the machine's configuration count, and no more.

    The variables that say which files these are belong to them.
    """
    named = {name: os.environ[name] for name in _WHOSE_CONFIGURATION if name in os.environ}
    return _bare_environment() | named


def _bare_environment() -> dict[str, str]:
    # What the caller set for git, and what the repository configures, must not matter.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return kept | {
        # A repository that lacks objects must not make git run what its configuration says.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


def _hear(asked: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    assert asked.stdout is not None
    descriptor = asked.stdout.fileno()
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    answer = bytearray()
    while len(answer) <= _LONGEST_ANSWER:
        if not waiting.poll(max(0, deadline - time.monotonic()) * 1000):
            return None
        piece = os.read(descriptor, 65536)
        if not piece:
            return _ended(asked, bytes(answer), deadline)
        answer += piece
    return None


def _ended(asked: subprocess.Popen[bytes], answer: bytes, deadline: float) -> bytes | None:
    try:
        asked.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    return answer
