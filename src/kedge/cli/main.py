"""The command `kedge`: parses the command line, runs the sub-command and reports errors."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from kedge._version import __version__
from kedge.cli import config, serve, trust
from kedge.cli.secrets import hide_secrets
from kedge.config.display import printable
from kedge.domain.errors import InternalError, KedgeError

COMMANDS = (serve, trust, config)
"""Modules with `add(commands)`, which sets `run` to the function of the command."""

_ABOUT = "The durable, rewindable session engine for coding agents."
_EXAMPLES = """\
examples:
  kedge serve               serve this folder to OpenCode's clients and others
  kedge config              show the configuration of this folder, and its files
  kedge trust               review what this project's configuration wants, and accept it
  kedge trust --revoke      stop trusting this project
  kedge trust --list        list the trusted files

docs/configuration.md in kedge's repository describes all settings.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that cannot be encoded must not make it fail.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options, unknown = parser().parse_known_args(arguments)
    if unknown:
        # With the usage of the sub-command, because the mistake is there.
        options.command.error(f"unrecognized arguments: {printable(' '.join(unknown))}")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except KedgeError as error:
        print(f"kedge: {printable(str(error))}", file=sys.stderr)
        if isinstance(error, InternalError):
            raise
        return 1
    except KeyboardInterrupt:
        print("kedge: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output has closed it; do not flush anything at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = argparse.ArgumentParser(
        prog="kedge",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"kedge {__version__}")
    commands = made.add_subparsers(metavar="COMMAND", title="commands", required=True)
    for command in COMMANDS:
        command.add(commands)
    for each in commands.choices.values():
        each.set_defaults(command=each)
    return made


def run() -> NoReturn:
    """Run the command of this process and exit."""
    # `__main__` has done this already, but scripts installed by older versions bypass it.
    hide_secrets()
    code = main()
    with suppress(OSError):
        sys.stdout.flush()
    logging.shutdown()
    # Without shutting down the interpreter: threads of granian's that still need it would abort
    # the process, and a clean stop of the server would look like a crash.
    os._exit(code)
