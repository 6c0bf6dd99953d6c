"""`python -m kedge` is the command `kedge`."""

import os
import sys

TYPE_CHECKING = False
"""As that of `typing`, which takes longer than all else here."""

if TYPE_CHECKING:
    from typing import NoReturn


def run() -> "NoReturn":
    """The console script."""
    _open_missing_streams()
    # Not earlier: what is imported may open files.
    from kedge.cli.main import run as run_command

    run_command()


def _open_missing_streams() -> None:
    """Have input and output also where a daemon was started without: what is opened later must not
    take their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


if __name__ == "__main__":
    run()
