"""A clock for tests that stands still until it is moved."""


class ManualClock:
    """A clock that shows the time it was given; it can be moved back, as a real clock can."""

    def __init__(self, start: int) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, ms: int) -> None:
        self._now += ms
