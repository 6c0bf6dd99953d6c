"""The command `kedge`: finds the command that was asked for, runs it and reports errors.

Only what that command needs is imported: `kedge --help` must not wait for a database.
"""

import os
import sys
from collections.abc import Sequence

from kedge._version import __version__
from kedge.cli.commands import BY_NAME, COMMANDS, OVERVIEW, CommandEntry
from kedge.cli.exit_codes import CLOSED_PIPE, FAILED, INTERRUPTED, USAGE

TYPE_CHECKING = False
"""As that of `typing`, which takes longer than `kedge --help` needs."""

if TYPE_CHECKING:
    import argparse
    from types import ModuleType
    from typing import NoReturn, TextIO

_WITH_SECRETS = {"serve", "run"}
"""The commands that start programs which must not see the secrets of this process."""
_ABOUT = "kedge: the durable, rewindable session engine for coding agents."
_MORE = """\
`kedge COMMAND --help` says more, and docs/cli.md in kedge's repository most.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that cannot be encoded must not make it fail.
        stream.reconfigure(errors=_errors_of(stream))  # type: ignore[union-attr]
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("kedge: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed it; do not flush anything at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except Exception as error:
        code = _report(error)
        if not code:
            raise
    return code


def _errors_of(stream: "TextIO") -> str:
    """The handler for characters that a stream cannot encode."""
    if stream.encoding.lower().replace("-", "") == "utf8":
        return "backslashreplace"
    import codecs

    from kedge.cli.screen import encodable

    codecs.register_error("kedge", encodable)
    return "kedge"


def _run(words: list[str]) -> int:
    words = _command_first(words)
    first = words[0] if words else ""
    if first in ("--help", "-h", "help") and (len(words) == 1 or first != "help"):
        print(usage(), end="")
        return 0
    if first == "--version":
        print(f"kedge {__version__}")
        return 0
    if first == "help":
        words = [words[1], "--help"]
    if not words or words[0].startswith("-"):
        command, rest = OVERVIEW, words
    elif words[0] in BY_NAME:
        command, rest = BY_NAME[words[0]], words[1:]
    else:
        return _unknown(words[0])
    module = module_of(command)
    options = parser_of(command, module).parse_args(rest)
    code: int = module.run(options)
    return code


_BEFORE = ("-C", "--directory", "--data", "--database")
"""Options that may stand before the command, too, as people write them for git."""


def _command_first(words: list[str]) -> list[str]:
    """The words with the command before its options."""
    place = 0
    while place < len(words) and words[place].partition("=")[0] in _BEFORE:
        place += 1 if "=" in words[place] else 2
    if not place or place >= len(words) or words[place] not in BY_NAME:
        return words
    rest = words[place:]
    # Behind all else, where the commands of a command take them, too.
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *words[:place], *rest[end:]]


def module_of(command: CommandEntry) -> "ModuleType":
    """The module of a command."""
    from importlib import import_module

    return import_module(f"kedge.cli.{command.module}")


def parser_of(command: CommandEntry, module: "ModuleType") -> "argparse.ArgumentParser":
    """The parser for the options of a command."""
    from kedge.cli.parser import Parser

    made = Parser(prog=f"kedge {command.name}".strip(), description=module.ABOUT)
    module.add(made)
    return made


def usage() -> str:
    """What `kedge --help` prints."""
    width = max(len(name) for name in BY_NAME) + 2
    lines = [_ABOUT, "", "usage: kedge [COMMAND] [OPTIONS]"]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        lines += ["", f"{group}:"]
        lines += [
            f"  {command.name:{width}}{command.help}"
            for command in COMMANDS
            if command.group == group
        ]
    return "\n".join([*lines, "", _MORE])


def _unknown(word: str) -> int:
    from difflib import get_close_matches

    from kedge.cli.screen import one_line

    near = get_close_matches(word, BY_NAME, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    print(
        f"kedge: there is no command {one_line(word)}; {hint}`kedge --help` lists them",
        file=sys.stderr,
    )
    return USAGE


def _report(error: Exception) -> int:
    """Tell what went wrong, unless it is a bug: then 0, and the traceback says where it is."""
    from kedge.cli.failure import CommandFailure
    from kedge.cli.screen import one_line
    from kedge.domain.errors import InternalError, KedgeError, SessionBusy

    if isinstance(error, SessionBusy):
        error = CommandFailure(f"{error}; wait until it is done, or stop it with `kedge abort`")
    if not isinstance(error, CommandFailure | KedgeError | OSError):
        return 0
    print(f"kedge: {one_line(_told(error))}", file=sys.stderr)
    if isinstance(error, InternalError):
        return 0
    return error.code if isinstance(error, CommandFailure) else FAILED


def _told(error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "this folder does not exist any more; go to another one, or name one with -C"
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        file = f"{os.fsdecode(name)}: " if isinstance(name, str | bytes) else ""
        return f"{file}{error.strerror}"
    return str(error)


def run() -> "NoReturn":
    """Run the command of this process and exit."""
    if not _WITH_SECRETS.isdisjoint(sys.argv[1:]):
        # Before any large import: it may begin anew, by exec.
        from kedge.cli.secrets import hide_secrets

        hide_secrets()
    code = main()
    try:
        sys.stdout.flush()
    except OSError:
        # Its reader has gone, or the disk is full: nothing can be said there any more.
        code = code or FAILED
    if logging := sys.modules.get("logging"):
        logging.shutdown()
    # Without shutting down the interpreter: threads of granian's that still need it would abort
    # the process, and a clean stop of the server would look like a crash.
    os._exit(code)
