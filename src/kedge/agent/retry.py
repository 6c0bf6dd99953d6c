"""When to ask a model again that failed, and when to stop one that repeats itself."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from kedge.agent.settings import AgentSettings
from kedge.domain import wire
from kedge.model.port import ModelFailure


class Retries:
    """The attempts of one step: how many, what they died of, and how long nothing came."""

    def __init__(self, settings: AgentSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        """Seconds from any point on, so that a machine that slept has lost no time."""
        self._since = clock()
        self._lost = 0.0
        """Seconds in which nothing came, or nothing was asked."""
        self._setbacks: Counter[str] = Counter()

    @property
    def attempt(self) -> int:
        """The number of the current attempt, from 1."""
        return self._setbacks.total() + 1

    def listen(self) -> None:
        """Silence begins: the model was asked, or has said something."""
        self._since = self._clock()

    def stop(self) -> None:
        """The silence has ended with a failure; what tools and people take now does not count."""
        self._lost += self._clock() - self._since

    def wait_after(self, failure: ModelFailure, *, is_followed: bool = False) -> float | None:
        """Count the failure of the current attempt: seconds to wait, or None to give up.

        One that `is_followed` by the next step is not made again, however many there were.
        """
        attempt = self.attempt
        self._setbacks[failure.setback] += 1
        if not failure.retryable:
            return None
        wait = self._wait(attempt, failure)
        if wait is None or (not is_followed and self._is_enough(failure, wait)):
            return None
        self._lost += wait
        return wait

    def _is_enough(self, failure: ModelFailure, wait: float) -> bool:
        settings = self._settings
        allowed = {
            "broken": settings.broken_retries,
            "silent": settings.silent_retries,
        }.get(failure.setback, settings.retries)
        return (
            self._setbacks[failure.setback] > allowed
            or self._setbacks.total() > settings.retries
            or self._lost + wait > settings.retry_time
        )

    def _wait(self, attempt: int, failure: ModelFailure) -> float | None:
        settings = self._settings
        if failure.retry_after is not None:
            asked = max(0.0, failure.retry_after)
            return asked if asked <= settings.retry_after_limit else None
        # Bounded before the power, which would overflow.
        doubled = settings.retry_delay * float(2 ** min(attempt - 1, 30))
        return min(doubled, settings.retry_delay_limit)


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
