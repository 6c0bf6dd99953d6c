"""URLs and addresses of the web: which of them belong to this machine or to private networks."""

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import TypeAlias

import httpx2

from kedge.domain.permissions import EXACTLY

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_LONGEST = 8_000
_NO_URL = re.compile(r"[\x00-\x20\x7f\\]")
_AT = re.compile(r"[^/?#]*//[^/?#]*@")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""Hosts that may be numbers in any of the forms that the C library takes: 127.1, 0x7f000001."""
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_PORTS = {"http": 80, "https": 443}

_PRIVATE = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4"),
            # Public by its number: the service of Azure that tells virtual machines their secrets.
            "168.63.129.16/32",
        ),
    )
)
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
_PRIVATE_6 = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
)
"""Tunnels to IPv4 addresses, and what is for documents alone."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class BadUrl(Exception):
    """This is no URL of a page."""


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A URL in one form, so that rules mean the same page however it was written."""

    url: str
    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, base: "WebAddress | None" = None) -> "WebAddress":
        """A URL, or one that another page leads to; raises `BadUrl`."""
        text = text.strip()
        if not text or len(text) > _LONGEST or _NO_URL.search(text):
            raise BadUrl("It is empty, too long, or has blanks or other characters that no URL has")
        try:
            url = httpx2.URL(text) if base is None else httpx2.URL(base.url).join(text)
            host = url.raw_host.decode("ascii")
        except (httpx2.InvalidURL, ValueError) as error:
            raise BadUrl(f"It is no URL: {error}") from error
        if url.scheme not in _PORTS:
            raise BadUrl("Only URLs that begin with http:// or https:// can be fetched")
        if url.userinfo or _AT.match(text):
            raise BadUrl("It has a user name or password in it, which kedge does not send")
        host = _plain_host(host)
        port = _PORTS[url.scheme] if url.port is None else url.port
        if not 0 < port < 65536:
            raise BadUrl(f"There is no port {port}")
        plain = url.copy_with(host=host, fragment=None, raw_path=url.raw_path or b"/")
        return cls(str(plain), url.scheme, host, port)

    @property
    def origin(self) -> tuple[str, str, int]:
        """What pages of one server have in common."""
        return self.scheme, self.host, self.port


def _plain_host(host: str) -> str:
    """A host in one form; numbers become an address as it is usually written."""
    host = host.lower().removesuffix(".")
    if ":" in host or "%" in host:
        try:
            # Without the name of an interface, which Python would take.
            return str(ipaddress.IPv6Address(host.replace("%", "?")))
        except ValueError as error:
            raise BadUrl(f"{host} is no address") from error
    if _NUMERIC.fullmatch(host):
        try:
            return socket.inet_ntoa(socket.inet_aton(host))
        except OSError as error:
            raise BadUrl(f"{host} is no address") from error
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise BadUrl("It has no name of a server")
    return host


def address_of(text: str) -> Address | None:
    """The address that a host is, if it is no name."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Whether an address is one of the internet, and surely none of this machine, of a private
    network, or of a service that only machines of a cloud can reach."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _PRIVATE)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _NAT64:
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GLOBAL_6 and not any(address in network for network in _PRIVATE_6)


def names_host(pattern: str, target: WebAddress) -> bool:
    """Whether the pattern of a rule spells out the scheme and the whole host of a URL, so that it
    was written for this very server."""
    if pattern.startswith(EXACTLY):
        spelled = pattern.removeprefix(EXACTLY)
    else:
        spelled = re.split(r"[*?]", pattern, maxsplit=1)[0]
    host = f"[{target.host}]" if ":" in target.host else target.host
    origin = f"{target.scheme}://{host}"
    return spelled.startswith(origin) and spelled[len(origin) :][:1] in ("/", ":")
