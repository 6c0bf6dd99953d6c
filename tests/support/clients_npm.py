"""Packages of OpenCode's from npm, in folders that are kept between runs; nothing is started."""

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300
"""Seconds for npm, or for a program that says its version."""


class OpenCodeUnavailable(Exception):
    """OpenCode, or a client of it, cannot be had here; the message says why."""


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
        raise OpenCodeUnavailable(f"{folder} is not a folder of yours alone; remove it")
    return folder


def _fetch(folder: Path, package: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise OpenCodeUnavailable(f"there is no npm here to install {package} with")
    # OpenCode's install script only puts a link in place.
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
        raise OpenCodeUnavailable(f"npm did not answer for {PATIENCE} s") from None
    if done.returncode != 0:
        complaint = [line for line in done.stderr.splitlines() if "error" in line][:2]
        raise OpenCodeUnavailable(f"npm could not install {package}: {' '.join(complaint)}")
