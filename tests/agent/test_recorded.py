"""What a client sees of kedge's agent, compared with what was recorded of OpenCode."""

import re
from pathlib import Path

import pytest

from tests.agent.trace_chances import without_chance
from tests.agent.trace_differences import DIFFERENCES, expected
from tests.agent.trace_player import Recording, play, recordings

_DOCUMENT = Path(__file__).parents[2] / "docs" / "opencode.md"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("recording", "protocol"),
    [
        pytest.param(recording, protocol, id=f"{recording.name}:{protocol}")
        for recording in recordings()
        for protocol in recording.protocols
    ],
)
async def test_as_recorded(recording: Recording, protocol: str, tmp_path: Path) -> None:
    """The events of a prompt are those of OpenCode, in their order and form, apart from the
    differences on purpose, whatever the model's protocol."""
    seen = await play(recording, tmp_path, protocol)
    assert without_chance(seen) == expected(recording.events)


def test_differences_are_documented() -> None:
    """Each difference on purpose has its row in the documentation, and each row its difference."""
    section = _DOCUMENT.read_text("utf-8").partition("## Events of a prompt")[2].partition("\n## ")
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", section[0], re.MULTILINE)
    assert sorted(rows) == sorted(each.name for each in DIFFERENCES)


def test_every_difference_is_used() -> None:
    """A difference that changes no recording is not one."""
    for difference in DIFFERENCES:
        lines = [list(each.events) for each in recordings()]
        assert any(difference.rewrite(each) != each for each in lines), difference.name
