"""The real OpenCode, from npm, in a folder that is kept between runs; nothing of it is started."""

import os
import subprocess
from pathlib import Path

from tests.support.clients_npm import PATIENCE, Unavailable, installed

__all__ = ["VERSION", "Unavailable", "install"]

VERSION = "1.18.33"
"""The one that docs/opencode.md speaks of."""


def install(version: str = VERSION) -> Path:
    """Its program; installed unless that was done before."""
    found = installed("opencode", "opencode-ai", version, _program)
    if found is None:
        raise Unavailable(f"npm has no OpenCode {version} that runs on this machine")
    return found


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
                timeout=PATIENCE,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return program
    return None
