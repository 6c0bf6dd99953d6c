"""Keeps this process off every network but loopback; it does not reach into child processes."""

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class ForeignNetworkError(OSError):
    """A test tried to reach a host other than this one."""


@contextmanager
def foreign_network_forbidden() -> Iterator[list[str]]:
    """Refuse foreign connections and look-ups; yields the attempts, which code may hide."""
    attempts: list[str] = []

    def refuse(action: str, host: object) -> None:
        attempts.append(f"{action} {host!r}")
        raise ForeignNetworkError(f"tests may reach only loopback, not {action} {host!r}")

    with pytest.MonkeyPatch.context() as patch:
        for method in ("connect", "connect_ex", "sendto"):
            original = getattr(socket.socket, method)
            patch.setattr(socket.socket, method, _guarded_method(method, original, refuse))
        patch.setattr(socket, "getaddrinfo", _guarded_lookup(socket.getaddrinfo, refuse))
        yield attempts


def is_local(host: object) -> bool:
    """Whether a host name or address can only mean this machine."""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(str(host))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _guarded_method(
    action: str, original: Callable[..., Any], refuse: Callable[[str, object], None]
) -> Callable[..., Any]:
    def guarded(self: socket.socket, *arguments: Any) -> Any:  # noqa: ANN401 (the signature of the original)
        # The address is last in every form of these calls: sendto has optional flags before it.
        address = arguments[-1]
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            refuse(action, address[0])
        return original(self, *arguments)

    return guarded


def _guarded_lookup(
    original: Callable[..., Any], refuse: Callable[[str, object], None]
) -> Callable[..., Any]:
    def guarded(host: object, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 (as above)
        if not is_local(host):
            refuse("getaddrinfo", host)
        return original(host, *arguments, **options)

    return guarded
