"""Parses the options of a command, and the options that many commands share."""

import argparse
import sys
from typing import NoReturn

from kedge.cli.exit_codes import USAGE
from kedge.cli.screen import one_line


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are safe to show: arguments may hold any characters."""

    def __init__(self, **options: object) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        # A prefix of an option would be another option once there is a new one.
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and how the command is used."""
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {one_line(message)}; --help says more", file=sys.stderr)
        sys.exit(USAGE)


_DIGITS = 9
"""Longer numbers mean all there is, and must not overflow."""


def count(text: str) -> int:
    """A number from 1 on, for options such as --limit."""
    if not text.isascii() or not text.isdecimal() or not text.strip("0"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text) if len(text) < _DIGITS else 10**_DIGITS


def add_json(command: argparse._ActionsContainer) -> None:
    """Add the option for output that programs read."""
    command.add_argument("--json", action="store_true", help="print JSON")
