"""A provider's endpoint: address, key and protocol, from which its client is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Protocol: TypeAlias = Literal["chat", "responses", "anthropic", "google"]

# A provider that sends nothing for this long is considered gone.
SILENCE = 300.0
# Anything shorter is not secret, and removing it would damage ordinary words.
_SECRET_LENGTH = 6
_MOST_NOTICES = 3


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
    def lacks_key(self) -> bool:
        """Whether it has no key and needs one."""
        return self.needs_key and not self.key

    def problem(self) -> str | None:
        """Why no request can be sent to it; None if it has everything that one needs."""
        where = f"provider.{self.provider_id}"
        if self.protocol is None:
            return (
                f"kedge does not speak {self.npm}, which {where}.npm asks for; see docs/models.md"
            )
        if self.lacks_key:
            names = " or ".join(self.key_variables) or "a key"
            return (
                f"There is no key for {self.provider_id}. Set {names} in the environment, or"
                f" {where}.options.apiKey in the configuration.{self.untrusted_notices()}"
            )
        if self.url is None:
            # Without one, the libraries would send the key to OpenAI.
            return self._address_missing() if self.protocol == "chat" else None
        if not self.url.startswith(("http://", "https://")):
            return f"{where}.options.baseURL must begin with http:// or https://"
        return None

    def _address_missing(self) -> str:
        if self.untrusted:
            return f"There is no address of {self.provider_id}.{self.untrusted_notices()}"
        where = f"provider.{self.provider_id}.options.baseURL"
        return f"{where} is missing; say there where the provider is"

    def untrusted_notices(self) -> str:
        """What untrusted files say about it, as the end of a message; empty if they say nothing."""
        return "".join(f" {notice}." for notice in self.untrusted[:_MOST_NOTICES])

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
