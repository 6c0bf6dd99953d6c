"""Hides the secrets of `kedge serve` and `kedge run` from the processes that they start.

To do so, the process replaces itself by exec: same process id, files and arguments, but no secrets
in its environment and command line. A pipe hands these over. This happens before any large import.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

_HANDED = "KEDGE_SECRETS_FD"
"""Names the descriptor from which secrets are read."""
_PASSWORD = re.compile(r"(?<=://)([^:/@?]*):[^/?]*@|(?<=[?&]password=)[^&]*", re.IGNORECASE)
"""Matches a password in a database URL."""
_PR_SET_DUMPABLE = 4


@cache
def hide_secrets() -> None:
    """Run exec if others could see a secret of this process, and protect its memory from them.

    Only the first call has an effect: afterwards the secrets are set again, but only in memory.
    """
    close_memory()
    if _HANDED in os.environ:
        _take(os.environ.pop(_HANDED))
        return
    secrets = {name: value for name, value in os.environ.items() if _is_secret(name, value)}
    words = [without_password(word) for word in sys.orig_argv[1:]]
    # A program that embeds Python cannot exec itself this way; its memory is protected anyway.
    if (secrets or words != sys.orig_argv[1:]) and sys.executable:
        _begin_again(secrets, words)


def _is_secret(name: str, value: str) -> bool:
    from kedge.domain.child_processes import DATABASE_URL, SERVER_PASSWORDS

    return name in SERVER_PASSWORDS or (name == DATABASE_URL and value != without_password(value))


def without_password(word: str) -> str:
    """A word of a command line as others may see it: a database URL loses its password."""
    if not re.match(r"(--[a-z]+=)?postgres(ql)?://", word):
        return word
    return _PASSWORD.sub(lambda found: "***" if found[1] is None else f"{found[1]}:***@", word)


def close_memory() -> None:
    """Hide memory, environment and open files of this process from others of the same user."""
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the memory of this process cannot be closed")


def shown_above(secret: str) -> str | None:
    """The parent process, if there is one whose environment still shows a secret: a wrapper that
    started the server and waits for its end."""
    wanted = os.fsencode(secret)
    pid = os.getppid()
    while pid and sys.platform == "linux":
        # It has exited, or belongs to another user.
        with suppress(OSError):
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            if any(each.partition(b"=")[2] == wanted for each in environ.split(b"\0")):
                return f"{pid} ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        except OSError:
            return None
        pid = int(stat.rpartition(")")[2].split()[1])
    return None


def _begin_again(secrets: dict[str, str], words: Sequence[str]) -> NoReturn:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    handed = json.dumps([secrets, sys.argv[1:]]).encode()
    try:
        written = os.write(writer, handed)
    except BlockingIOError:
        written = 0
    if written < len(handed):
        sys.exit("kedge: the password, or the command line, is too long")
    os.close(writer)
    os.set_inheritable(reader, True)
    environ = {name: value for name, value in os.environ.items() if name not in secrets}
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    os.execve(sys.executable, [sys.executable, *words], {**environ, _HANDED: str(reader)})


def _take(descriptor: str) -> None:
    """Read what the process handed over to itself, and set it as if it had never been gone."""
    try:
        with os.fdopen(int(descriptor), "rb") as pipe:
            secrets, arguments = json.load(pipe)
    except (ValueError, OSError):
        sys.exit(f"kedge: {_HANDED} is set, and there is nothing to read; unset it")
    # Set now, they are only in memory.
    os.environ.update(secrets)
    sys.argv[1:] = arguments
