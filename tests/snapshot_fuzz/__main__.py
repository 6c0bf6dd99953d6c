"""The fuzzer for people: `python -m tests.snapshot_fuzz --help`."""

import argparse
import faulthandler
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.snapshot_fuzz import Fuzz, Mismatch, open_limited

_PATIENCE = 120
"""Seconds after which a round counts as hanging."""

_STANDARD_ERROR = 2

_HELP = """\
Changes a worktree from a second process in every way that is known to fool snapshots, takes
snapshots beside it, and compares each with an independent full read whenever the other pauses."""

_EXAMPLES = """\
examples:
  python -m tests.snapshot_fuzz --root-folder /tmp/one                    100 rounds, inotify
  python -m tests.snapshot_fuzz --root-folder /tmp/two --rounds 1000 --way scan
  python -m tests.snapshot_fuzz --root-folder /tmp/three --kind plain     a folder without git

The seed decides what is done; when snapshots fall between is up to the machine. A mismatch is
printed with everything needed to see it again, also into mismatch.txt in the root folder; there the
worktree stays as it was, and operations.log has what was done in all rounds.
Exit codes: 0 all equal, 1 a mismatch, 2 wrong arguments, 130 stopped.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzzer; gives the exit code."""
    options = _parser().parse_args(arguments)
    folder: Path = options.root_folder.absolute()
    if folder.exists() and any(folder.iterdir()):
        _say(f"{folder} is not empty; give a new folder, or empty it")
        return 2
    _isolate(folder / "home")
    fuzz = Fuzz(
        folder=folder, seed=options.seed, way=options.way, kind=options.kind, opener=open_limited
    )
    try:
        _run(fuzz, options.rounds)
    except Mismatch as mismatch:
        _say(f"MISMATCH in round {fuzz.counts.rounds} of seed {fuzz.seed}")
        sys.stdout.write(f"{mismatch}\n")
        (folder / "mismatch.txt").write_text(f"{mismatch}\n")
        return 1
    except KeyboardInterrupt:
        _say(f"stopped; no mismatch so far: {fuzz.counts.line()}")
        return 130
    _say(f"no mismatch: {fuzz.counts.line()}")
    return 0


def _run(fuzz: Fuzz, rounds: int) -> None:
    began = said = time.monotonic()
    with fuzz.running():
        while fuzz.counts.rounds < rounds:
            with _ending_what_hangs():
                fuzz.round()
            if time.monotonic() - said > 2:
                said = time.monotonic()
                _say(f"{said - began:.0f} s: {fuzz.counts.line()}")


@contextmanager
def _ending_what_hangs() -> Iterator[None]:
    """A hang is a finding too: where every thread was is printed, then the process ends."""
    # Not `sys.stderr`: whoever captures that may have put something without a descriptor there.
    faulthandler.dump_traceback_later(_PATIENCE, exit=True, file=_STANDARD_ERROR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _isolate(home: Path) -> None:
    """The rules of the person who runs it must not decide what is found."""
    home.mkdir(parents=True)
    os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = str(home)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.snapshot_fuzz",
        description=_HELP,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--root-folder", type=Path, required=True, help="a new or empty folder to work in"
    )
    parser.add_argument("--seed", type=int, default=1, help="decides what is done (default 1)")
    parser.add_argument("--rounds", type=int, default=100, help="how often (default 100)")
    parser.add_argument(
        "--way", choices=("inotify", "scan"), default="inotify", help="how changes are noticed"
    )
    parser.add_argument(
        "--kind", choices=("git", "plain"), default="git", help="a repository, or just a folder"
    )
    return parser


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
