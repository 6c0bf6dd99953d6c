"""Where the time comes from, so that tests can set it; not for measuring durations."""

import time
from typing import Protocol


class Clock(Protocol):
    """Something that knows the time."""

    def now(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    """The clock of the operating system; it may step back."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000
