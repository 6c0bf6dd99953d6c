"""What an interrupt makes of each kind of part, without a database."""

from typing import Any

import pytest

from kedge.domain import wire
from kedge.domain.parts import Part, part_ended
from kedge.store.queries.interrupts import TOOL_ABORTED, interrupted
from kedge.testing.store.parts import KINDS

HOME = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}
NOW = 99


def as_part(kind: dict[str, Any]) -> Part:
    """The part that a JSON object stands for."""
    part: Part = wire.convert({**kind, **HOME}, Part)
    return part


RUNNING = [kind for kind in KINDS if not part_ended(as_part(kind))]


def test_some_kinds_run() -> None:
    """Reasoning and two states of a tool call are among the kinds; plain text is without a time."""
    assert sorted(str(kind["type"]) for kind in RUNNING) == ["reasoning", "tool", "tool"]


@pytest.mark.parametrize("kind", RUNNING, ids=lambda kind: str(kind["type"]))
def test_every_interrupted_part_has_ended(kind: dict[str, Any]) -> None:
    """Whatever ran no longer does."""
    assert part_ended(interrupted(as_part(kind), NOW))


@pytest.mark.parametrize(
    ("state", "start", "metadata"),
    [
        ({"status": "pending", "input": {"a": 1}, "raw": "{"}, NOW, {"interrupted": True}),
        (
            {
                "status": "running",
                "input": {"a": 1},
                "time": {"start": 5},
                "metadata": {"out": "x"},
            },
            5,
            {"out": "x", "interrupted": True},
        ),
    ],
)
def test_a_tool_call_becomes_an_error(
    state: dict[str, Any], start: int, metadata: dict[str, Any]
) -> None:
    """Its input and what it had told so far are kept."""
    call = as_part({"type": "tool", "callID": "c", "tool": "shell", "state": state})
    closed = wire.decode(wire.encode(interrupted(call, NOW)), dict[str, Any])
    assert closed["state"] == {
        "status": "error",
        "input": {"a": 1},
        "error": TOOL_ABORTED,
        "metadata": metadata,
        "time": {"start": start, "end": NOW},
    }


def test_text_ends_where_it_was() -> None:
    """Nothing that was streamed is lost."""
    text = as_part({"type": "text", "text": "so far", "time": {"start": 1}})
    closed = wire.decode(wire.encode(interrupted(text, NOW)), dict[str, Any])
    assert (closed["text"], closed["time"]) == ("so far", {"start": 1, "end": NOW})
