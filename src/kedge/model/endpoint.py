"""A provider's endpoint: address, key and protocol, from which its client is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Protocol: TypeAlias = Literal["chat", "responses", "anthropic", "google"]

# A provider that sends nothing for this long is considered gone.
SILENCE = 300.0
# Anything shorter is not secret, and removing it would damage ordinary words.
_SECRET_LENGTH = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One provider's address, key and properties."""

    provider_id: str
    protocol: Protocol | None
    """None if kedge does not support the provider's protocol."""
    npm: str
    url: str | None
    key: str | None = field(repr=False)
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    silence: float | None = SILENCE
    """Seconds without a byte until the connection counts as lost; None waits for ever."""
    untrusted: tuple[str, ...] = ()
    """What untrusted files say about it, and how to make that count."""

    @property
    def is_complete(self) -> bool:
        """Whether it has everything that a request needs."""
        has_address = self.url is not None or self.protocol != "chat"
        return self.protocol is not None and has_address and bool(self.key or not self.needs_key)

    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in any message."""
        values = (self.key or "", *(value for _, value in self.headers))
        return tuple(value for value in values if len(value) >= _SECRET_LENGTH)


def silence_of(options: Mapping[str, Any]) -> float | None:
    """The configured `timeout`, which is in milliseconds, or false for none."""
    timeout = options.get("timeout")
    if timeout is False:
        return None
    if isinstance(timeout, int | float) and timeout is not True and timeout > 0:
        return timeout / 1000
    return SILENCE
