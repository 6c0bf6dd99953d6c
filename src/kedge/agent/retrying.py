"""When to ask a model again that could not answer."""

from kedge.agent.settings import AgentSettings
from kedge.model.port import ModelFailure


def wait_before(attempt: int, failure: ModelFailure, settings: AgentSettings) -> float | None:
    """How many seconds to wait after the failure of an attempt, counted from 1; None to give up."""
    if not failure.retryable or attempt > settings.retries:
        return None
    if failure.retry_after is not None:
        asked = max(0.0, failure.retry_after)
        return asked if asked <= settings.retry_after_limit else None
    # Bounded before the power, which would overflow.
    doubled = settings.retry_delay * float(2 ** min(attempt - 1, 30))
    return min(doubled, settings.retry_delay_limit)
