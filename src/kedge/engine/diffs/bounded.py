"""A memory of what was computed last, bounded; what it holds is true for ever or not put there."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """Values by key, the ones used last; every method may be called by any thread."""

    def __init__(self, room: int) -> None:
        self._left = room
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value, if it is still there."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Remember a value instead of the one before, and forget others until there is room."""
        with self._lock:
            _, freed = self._values.pop(key, (None, 0))
            self._left += freed
            self._values[key] = value, size
            self._left -= size
            while self._left < 0:
                _, (_, freed) = self._values.popitem(last=False)
                self._left += freed
