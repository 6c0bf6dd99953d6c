"""The source of the current time, so that tests can set it; not for measuring durations."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    """The clock of the operating system; it may go backwards."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000
