"""The real OpenCode, from npm, in a folder that is kept between runs; nothing of it is started."""

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

VERSION = "1.18.33"
"""The one that docs/opencode.md speaks of."""
_PATIENCE = 300


class OpenCodeUnavailable(Exception):
    """OpenCode cannot be had here; the message says why."""


def install(version: str = VERSION) -> Path:
    """Its program; installed unless that was done before."""
    folder = _cache(version)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _program(folder)
        if found is None:
            _fetch(folder, version)
            found = _program(folder)
    if found is None:
        raise OpenCodeUnavailable(f"npm has no OpenCode {version} that runs on this machine")
    return found


def _cache(version: str) -> Path:
    """A folder that nobody else can have put a program into."""
    folder = Path(tempfile.gettempdir(), f"kedge-opencode-{version}-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OpenCodeUnavailable(f"{folder} is not a folder of yours alone; remove it")
    return folder


def _program(folder: Path) -> Path | None:
    """The first that runs here: there is one for each kind of machine, plain ones first."""
    for program in sorted((folder / "node_modules").glob("opencode-*/bin/opencode")):
        try:
            done = subprocess.run(
                [program, "--version"],
                # It makes its folders at every start.
                env={"HOME": str(folder / "home"), "PATH": os.defpath},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return program
    return None


def _fetch(folder: Path, version: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise OpenCodeUnavailable("there is no npm here to install it with")
    # Its install script only puts a link in place.
    options = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix", folder)
    try:
        done = subprocess.run(
            [npm, "install", *options, f"opencode-ai@{version}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise OpenCodeUnavailable(f"npm did not answer for {_PATIENCE} s") from None
    if done.returncode != 0:
        complaint = [line for line in done.stderr.splitlines() if "error" in line][:2]
        raise OpenCodeUnavailable(f"npm could not install it: {' '.join(complaint)}")
