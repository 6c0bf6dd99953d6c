"""What clients get from kedge's server, compared with what was recorded of OpenCode's."""

import re
from pathlib import Path

import pytest

from kedge.engine import parts
from tests.agent.trace_chances import without_chance
from tests.agent.trace_differences import DIFFERENCES as OF_AGENT
from tests.agent.trace_differences import expected
from tests.engine.engine_factory import NEVER
from tests.server.replay_differences import DIFFERENCES
from tests.server.replay_reader import is_turn, reading
from tests.server.replay_recordings import Recording, recordings
from tests.server.replay_stage import SERVERS, stage
from tests.server.replay_streams import FOLLOWING

_RECORDINGS = recordings()
_DOCUMENT = Path(__file__).parents[2] / "docs" / "opencode.md"
_EVERYTHING = (*FOLLOWING, *DIFFERENCES)


def section() -> str:
    """What the documentation says of this."""
    page = _DOCUMENT.read_text("utf-8")
    return page.partition("## Over HTTP")[2].partition("\n## ")[0]


def is_the_same(recording: Recording) -> bool:
    """Whether kedge does exactly what was recorded."""
    turns = [act.events for act in recording.acts if is_turn(act)]
    return not any(each.changes(recording) for each in _EVERYTHING) and all(
        expected(lines) == without_chance(lines) for lines in turns
    )


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("server", SERVERS)
async def test_as_recorded(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests get the same status, headers, body and events, in the same order, apart
    from the differences on purpose."""
    # How far a text has come is stored now and then, which depends on how loaded the machine is.
    monkeypatch.setattr(parts, "_PROGRESS", NEVER)
    async with stage(tmp_path, server, reading(_EVERYTHING)) as player:
        found = {
            each.name: await player.play(each) for each in _RECORDINGS if each.server == server
        }
    assert {name: complaints for name, complaints in found.items() if complaints} == {}


def test_every_recording_is_played() -> None:
    """Each recording belongs to one of the servers."""
    assert {each.server for each in _RECORDINGS} == set(SERVERS)


def test_differences_are_documented() -> None:
    """Each difference on purpose has its row in the documentation, and each row its difference."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", section(), re.MULTILINE)
    assert sorted(rows) == sorted(each.name for each in DIFFERENCES)


def test_traces_are_documented() -> None:
    """Each row names the recordings that show its difference."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|.*?\(([\d, ]+)\)", section(), re.MULTILINE)
    said = {name: [int(number) for number in numbers.split(",")] for name, numbers in rows}
    for each in DIFFERENCES:
        # What comes later shows nothing else.
        played = [one for one in _RECORDINGS if not one.later or each is DIFFERENCES[0]]
        shown = [int(one.name[:2]) for one in played if each.changes(one)]
        assert said[each.name] == shown, each.name


def test_what_follows_from_the_agent_is_documented_there() -> None:
    """A difference that answers show and the events of a prompt too is one and the same."""
    assert {each.name for each in FOLLOWING} <= {each.name for each in OF_AGENT}


def test_every_difference_is_used() -> None:
    """A difference that changes no recording is not one."""
    for difference in _EVERYTHING:
        assert any(difference.changes(each) for each in _RECORDINGS), difference.name


def test_figures_are_documented() -> None:
    """The documentation says how many recordings there are, and how many of them are the same."""
    later = [each for each in _RECORDINGS if each.later]
    same = [each for each in _RECORDINGS if not each.later and is_the_same(each)]
    said = [int(number) for number in re.findall(r"\*\*(\d+)\*\*", section())]
    alike = len(_RECORDINGS) - len(later) - len(same)
    assert said == [len(_RECORDINGS), len(same), alike, len(later)]
