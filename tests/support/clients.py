"""OpenCode's own clients and what they run in: the SDK, its program, node and tmux; all real.

Run as a program (`python -m tests.support.clients`) it names what this machine lacks.
"""

import shutil
import sys
from pathlib import Path

from tests.support import opencode
from tests.support.clients_npm import Unavailable, installed

SDK_VERSION = "1.19.3"
"""The newest when this was written; it runs the same code as the one of OpenCode's own version."""

COMPONENTS = {"node": "nodejs", "npm": "npm", "tmux": "tmux"}
"""Programs that the clients need, with the names of their Debian packages."""

HOW_TO_MEND = "as root on Debian `make components` installs it"


def require(program: str) -> Path:
    """Where a program is."""
    found = shutil.which(program)
    if found is None:
        raise Unavailable(f"OpenCode's clients need {program}, which is not here; {HOW_TO_MEND}")
    return Path(found)


def install_program() -> Path:
    """OpenCode's program, which is its terminal UI and `opencode run` too."""
    return opencode.install()


def install_sdk() -> Path:
    """A folder whose `node_modules` has the JavaScript SDK."""
    require("node")
    found = installed("opencode-sdk", "@opencode-ai/sdk", SDK_VERSION, _sdk)
    if found is None:
        raise Unavailable(f"npm has no @opencode-ai/sdk {SDK_VERSION}")
    return found


def _sdk(folder: Path) -> Path | None:
    package = folder / "node_modules" / "@opencode-ai" / "sdk" / "package.json"
    return folder if package.exists() else None


def main() -> int:
    """Print the Debian packages of what is missing and answer 1, if anything is."""
    missing = [package for program, package in COMPONENTS.items() if shutil.which(program) is None]
    if missing:
        sys.stdout.write(f"{' '.join(missing)}\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
