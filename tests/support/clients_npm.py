"""Packages from npm, in folders that are kept between runs; nothing is started."""

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE = 300
"""Seconds for npm, or for a program that says its version."""


class Unavailable(Exception):
    """A program or package cannot be had here; the message says why."""


def or_skip(look: Callable[[], Path]) -> Path:
    """What is looked for, or a skip with the reason; where nobody reads that, a failure."""
    try:
        return look()
    except Unavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def installed(
    name: str, package: str, version: str, find: Callable[[Path], Path | None]
) -> Path | None:
    """What `find` finds in the folder of that name; npm is asked only if that is nothing."""
    folder = _cache(f"kedge-{name}-{version}-{os.getuid()}")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = find(folder)
        if found is None:
            _fetch(folder, f"{package}@{version}")
            found = find(folder)
    return found


def _cache(name: str) -> Path:
    """A folder that nobody else can have put a program into."""
    folder = Path(tempfile.gettempdir(), name)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Unavailable(f"{folder} is not a folder of yours alone; remove it")
    return folder


def _fetch(folder: Path, package: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(f"there is no npm here to install {package} with")
    # OpenCode's install script only puts a link in place; no other package has one.
    options = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix", folder)
    try:
        done = subprocess.run(
            [npm, "install", *options, package],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm did not answer for {PATIENCE} s") from None
    if done.returncode != 0:
        complaint = [line for line in done.stderr.splitlines() if "error" in line][:2]
        raise Unavailable(f"npm could not install {package}: {' '.join(complaint)}")
