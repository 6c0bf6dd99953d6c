"""Decides when to repeat a failed model request, and when to stop a model that repeats itself."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from kedge.agent.settings import AgentSettings
from kedge.domain import wire
from kedge.model.port import ModelFailure


class Retries:
    """The attempts of one step: how many, how they failed, and how long there was silence."""

    def __init__(self, settings: AgentSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        """Seconds from any starting point; sleep of the machine does not count as lost time."""
        self._since = clock()
        self._lost = 0.0
        """Seconds of silence and of waiting between attempts."""
        self._setbacks: Counter[str] = Counter()

    @property
    def attempt(self) -> int:
        """The number of the current attempt, from 1."""
        return self._setbacks.total() + 1

    def listen(self) -> None:
        """Start counting silence: the model was asked, or has just sent something."""
        self._since = self._clock()

    def stop(self) -> None:
        """End the silence with a failure; time of tools and users after that does not count."""
        self._lost += self._clock() - self._since

    def wait_after(self, failure: ModelFailure, *, is_followed: bool = False) -> float | None:
        """Count the failure of the current attempt: return the seconds to wait, or None to give up.

        With `is_followed` the next step comes instead of a repetition, so the limits do not apply.
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
    """Counts how often the same tool was called with the same input in a row."""

    def __init__(self) -> None:
        self._last: tuple[str, str] | None = None
        self._count = 0

    def count(self, name: str, input: Mapping[str, Any]) -> int:
        """Count a call that is about to be made; return how many times in a row it is made now."""
        call = (name, wire.encode(dict(sorted(input.items()))))
        self._count = self._count + 1 if call == self._last else 1
        self._last = call
        return self._count
