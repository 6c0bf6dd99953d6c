"""When a part has ended."""

import pytest

from kedge.domain.parts import Part, part_ended
from kedge.domain.wire import convert

_TIME = {"start": 1, "end": 2}
_STATES = [
    ({"status": "pending", "input": {}, "raw": ""}, False),
    ({"status": "running", "input": {}, "time": {"start": 1}}, False),
    (
        {
            "status": "completed",
            "input": {},
            "output": "",
            "title": "",
            "metadata": {},
            "time": _TIME,
        },
        True,
    ),
    ({"status": "error", "input": {}, "error": "", "time": _TIME}, True),
]


def _part(type: str, **fields: object) -> Part:
    ids = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}
    part: Part = convert({"type": type, **ids, **fields}, Part)
    return part


def test_text_without_time_has_ended() -> None:
    """What a person wrote is complete from the start."""
    assert part_ended(_part("text", text="a"))


@pytest.mark.parametrize("type", ["text", "reasoning"])
def test_streamed_text_ends_with_its_time(type: str) -> None:
    """What a model writes has ended once its end is known."""
    assert not part_ended(_part(type, text="a", time={"start": 1}))
    assert part_ended(_part(type, text="a", time=_TIME))


@pytest.mark.parametrize(("state", "ended"), _STATES)
def test_tool_ends_with_its_state(state: dict[str, object], ended: bool) -> None:
    """A tool call has ended when it is completed or an error."""
    assert part_ended(_part("tool", callID="c", tool="bash", state=state)) is ended


@pytest.mark.parametrize(
    "part",
    [
        _part("step-start"),
        _part("snapshot", snapshot="4b825dc"),
        _part("patch", hash="4b825dc", files=[]),
        _part("compaction", auto=True),
        _part("file", mime="text/plain", url="file:///a"),
        _part("agent", name="build"),
        _part("subtask", prompt="p", description="d", agent="build"),
        _part("retry", attempt=1, error={"name": "E", "data": {}}, time={"created": 1}),
    ],
)
def test_other_parts_have_ended(part: Part) -> None:
    """Parts of other kinds have no progress."""
    assert part_ended(part)
