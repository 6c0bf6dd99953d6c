"""What `--json` prints: kedge's values with the names that they have on the wire."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from kedge.cli.screen import Screen


def show_json(screen: Screen, value: object) -> None:
    """Write a value as one JSON document."""
    # Without characters beyond ASCII: a terminal must not act on them, and any JSON reader knows
    # the escapes.
    screen.line(json.dumps(as_json(value), indent=2))


def as_json(value: object) -> Any:  # noqa: ANN401 - any JSON
    """A value made of plain JSON types."""
    from kedge.domain import wire
    from kedge.domain.values import Value

    if isinstance(value, Value):
        return json.loads(wire.encode(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [as_json(each) for each in value]
    return value
