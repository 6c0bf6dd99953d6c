"""Keeps the secrets of `kedge serve` from the processes that it starts.

So the process begins once more: with the same number, files and arguments, but without secrets.
They come through a pipe. This is done before anything large is imported.
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

from kedge.domain.child_processes import DATABASE_URL, SERVER_PASSWORDS

_HANDED = "KEDGE_SECRETS_FD"
"""Names the descriptor that secrets are read from."""
_PASSWORD = re.compile(r"(?<=://)([^:/@?]*):[^/?]*@|(?<=[?&]password=)[^&]*", re.IGNORECASE)
"""Where a password stands in the address of a database."""
_PR_SET_DUMPABLE = 4


@cache
def hide_secrets() -> None:
    """Begin once more if others could see a secret of this server; and close its memory to them.

    Only the first call does anything: later the secrets are there again, in memory.
    """
    if "serve" not in sys.argv[1:]:
        return
    close_memory()
    if _HANDED in os.environ:
        _take(os.environ.pop(_HANDED))
        return
    secrets = {name: value for name, value in os.environ.items() if _is_secret(name, value)}
    words = [without_password(word) for word in sys.orig_argv[1:]]
    # Programs that have Python built in cannot be begun so; their memory is closed all the same.
    if (secrets or words != sys.orig_argv[1:]) and sys.executable:
        _begin_again(secrets, words)


def _is_secret(name: str, value: str) -> bool:
    return name in SERVER_PASSWORDS or (name == DATABASE_URL and value != without_password(value))


def without_password(word: str) -> str:
    """A word of a command line as everybody may see it: the address of a database has no password
    in it."""
    if not re.match(r"(--[a-z]+=)?postgres(ql)?://", word):
        return word
    return _PASSWORD.sub(lambda found: "***" if found[1] is None else f"{found[1]}:***@", word)


def close_memory() -> None:
    """Keep memory, environment and open files of this process from others of the same user."""
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the memory of this process cannot be closed")


def shown_above(secret: str) -> str | None:
    """The process above this one, if there is one, whose environment still shows a secret: a
    wrapper that started the server and waits for its end."""
    wanted = os.fsencode(secret)
    pid = os.getppid()
    while pid and sys.platform == "linux":
        # It has ended, or belongs to another user.
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
    """Take what the process had before it began once more, as if it still had it."""
    try:
        with os.fdopen(int(descriptor), "rb") as pipe:
            secrets, arguments = json.load(pipe)
    except (ValueError, OSError):
        sys.exit(f"kedge: {_HANDED} is set, and there is nothing to read; unset it")
    # Set now, they are in memory alone.
    os.environ.update(secrets)
    sys.argv[1:] = arguments
