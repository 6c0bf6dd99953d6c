"""Runs the real git for the fuzzer: to ask it about rules, and to be the user who works with it."""

import os
import subprocess
from collections.abc import Mapping, Sequence

_USER = {
    "GIT_AUTHOR_NAME": "fuzz",
    "GIT_AUTHOR_EMAIL": "fuzz@example.org",
    "GIT_COMMITTER_NAME": "fuzz",
    "GIT_COMMITTER_EMAIL": "fuzz@example.org",
    # So that the same work has the same ids, which are names of files when a git folder is moved.
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}
_TIMEOUT = 300.0


class GitFailed(Exception):
    """git said no."""


def ask_git(
    arguments: Sequence[bytes],
    *,
    folder: bytes,
    stdin: bytes = b"",
    good: Sequence[int] = (0,),
    environment: Mapping[str, str | bytes] | None = None,
) -> bytes:
    """What git prints when it is run in a folder; the caller's `GIT_*` variables do not count."""
    variables = {name: value for name, value in os.environb.items() if not name.startswith(b"GIT_")}
    given = {**_USER, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", **(environment or {})}
    variables.update({os.fsencode(name): os.fsencode(value) for name, value in given.items()})
    said = b" ".join(arguments).decode(errors="replace")
    try:
        done = subprocess.run(
            [b"git", *arguments],
            cwd=folder,
            env=variables,
            input=stdin,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {said}: did not end") from error
    if done.returncode not in good:
        raise GitFailed(f"git {said}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
