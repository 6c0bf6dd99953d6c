"""Recordings of OpenCode's server, as they lie in `recorded`.

A recording is a list of acts. An act is a list of steps, most of them requests with the answers
they got, and the events that were heard meanwhile, told as lines.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
Step = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Act:
    """What was done, and what was heard of it."""

    do: Sequence[Step]
    events: Sequence[str] = ()
    only_kinds: bool = False
    """Too much was heard to be recorded: the lines tell only the kinds of events."""
    counted: Sequence[str] = ()
    """Files that the session had changed before."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One trace."""

    name: str
    shows: str
    server: str
    """Which of the servers it was recorded on; the recordings of one server follow each other."""
    acts: Sequence[Act]
    later: str = ""
    """What it shows, if kedge cannot do that yet."""
    before: Sequence[Step] = ()
    """What was done before, and not recorded."""
    instead: Sequence[Step] = ()
    """What leaves the server as the recording would, where kedge cannot do that yet."""


def recordings() -> list[Recording]:
    """All of them, in their order."""
    return [_recording(path) for path in sorted(RECORDED.glob("*.json"))]


def _recording(path: Path) -> Recording:
    told = json.loads(path.read_text("utf-8"))
    again: list[Any] = []
    for each in told.pop("again", []):
        again.append(_written_out(each, again))
    acts = [Act(**act) for act in _written_out(told.pop("acts"), again)]
    return Recording(name=path.stem, acts=acts, **told)


def _written_out(value: Any, again: Sequence[Any]) -> Any:  # noqa: ANN401 - JSON
    """What is told several times stands once in the file."""
    if isinstance(value, dict):
        return {key: _written_out(inner, again) for key, inner in value.items()}
    if isinstance(value, list):
        return [_written_out(inner, again) for inner in value]
    if isinstance(value, str) and value.startswith("=") and value[1:].isdigit():
        return again[int(value[1:])]
    return value
