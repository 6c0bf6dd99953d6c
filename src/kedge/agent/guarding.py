"""Notices when a model goes in circles."""

from collections.abc import Mapping
from typing import Any

from kedge.domain import wire


class Repeats:
    """How often the same tool was called with the same input in a row."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._count = 0

    def count(self, name: str, input: Mapping[str, Any]) -> int:
        """A call is about to be made; gives how many times in a row it is made now."""
        call = (name, wire.encode(dict(sorted(input.items()))))
        self._count = self._count + 1 if call == self._last else 1
        self._last = call
        return self._count
