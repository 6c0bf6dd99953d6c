"""The page on the offline model says all there is, and its scripts can be read."""

from pathlib import Path

import pytest

from kedge.model.offline.commands import FAULTS
from kedge.model.offline.parser import MARKS, PREFIXES, PRIORITIES, REASONS, VERBS, parse
from tests.support import markdown

PAGE = Path(__file__).parents[3] / "docs" / "offline.md"


def test_every_command_stands_there() -> None:
    """Each command as it is written, each prefix, fault, reason, mark and priority."""
    code = markdown.code(PAGE).replace("\\|", "|")
    lines = set(code.splitlines())
    assert {verb.usage for verb in VERBS.values()} <= lines
    assert {*FAULTS, *REASONS} <= lines
    assert {f"[{mark}]" for mark in MARKS} <= lines
    assert {f"!{priority}" for priority in PRIORITIES} <= lines
    for prefix in PREFIXES:
        assert any(line.split()[:1] == [prefix] for line in lines)


@pytest.mark.parametrize(
    "block", markdown.blocks(PAGE, "text"), ids=lambda block: block.content.split("\n")[0]
)
def test_every_script_can_be_read(block: markdown.Block) -> None:
    """What a reader copies works."""
    script = parse(block.content)
    assert script is not None
    assert script.problems == ()
