"""docs/cli.md is complete: every command has a section, and every option stands in it."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.cli import exit_codes
from kedge.cli.commands import COMMANDS, CommandEntry
from kedge.cli.main import module_of, parser_of

ROOT = Path(__file__).parents[2]
COMMON = {"--help", "--directory", "--data", "--database", "--json", "--yes", "--dry-run"}
"""Options that the head of the page describes, for all commands."""


@pytest.fixture(scope="module")
def page() -> str:
    """The page on the command line."""
    return (ROOT / "docs" / "cli.md").read_text()


def section(page: str, name: str) -> str:
    """What the page says of a command."""
    found = re.search(rf"^### kedge {name}\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section on kedge {name}"
    return found[1]


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The long options of a command and of the commands below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices
            for below in action.choices.values():
                yield from options(below)
        yield from (each for each in action.option_strings if each.startswith("--"))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_is_described(command: CommandEntry, page: str) -> None:
    """What `--help` has, the page has too."""
    described = section(page, command.name)
    if command.name == "serve":
        described = (ROOT / "docs" / "server.md").read_text()
    wanted = set(options(parser_of(command, module_of(command)))) - COMMON
    missing = [each for each in wanted if not re.search(rf"`[^`]*{each}\b", described)]
    assert missing == []


def test_common_options_are_described(page: str) -> None:
    """They stand above the commands."""
    head = page.partition("\n## ")[0]
    assert [
        each for each in COMMON - {"--help"} if f"`{each}" not in head and each not in head
    ] == []


def test_every_exit_code_is_described(page: str) -> None:
    """Each stands in the table."""
    table = page.partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    codes = [value for name, value in vars(exit_codes).items() if name.isupper()]
    assert len(codes) > 5
    assert [
        code for code in codes if not re.search(rf"^\|.*\b{code}\b.* \|", table, re.MULTILINE)
    ] == []
