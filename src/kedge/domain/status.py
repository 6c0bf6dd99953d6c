"""Whether a session runs, as on the wire; the lease that decides it is the store's concern."""

from kedge.domain.values import Value


class Idle(Value, tag_field="type", tag="idle", frozen=True, kw_only=True):
    """Nothing is running."""


class Busy(Value, tag_field="type", tag="busy", frozen=True, kw_only=True):
    """A turn is running."""


class RetryAction(Value, frozen=True, kw_only=True):
    """What a person can do about the failure that is retried."""

    reason: str
    provider: str
    title: str
    message: str
    label: str
    link: str | None = None


class Retry(Value, tag_field="type", tag="retry", frozen=True, kw_only=True):
    """The model request failed and is made again at the time `next`."""

    attempt: int
    message: str
    action: RetryAction | None = None
    next: int


SessionStatus = Idle | Busy | Retry
