"""Fetches pages of the web: bounded in time and size, and never from where only this machine can
go.

A name is looked up once, every address that it has is checked, and the connection goes to a checked
address, so that a second answer of the name server changes nothing. Each redirect is checked in the
same way. Proxies of the environment are not used: they look names up by themselves.
"""

import asyncio
import os
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import httpcore2
import httpx2

from kedge._version import __version__
from kedge.agent.web.address import BadUrl, WebAddress, address_of, is_public
from kedge.domain.text import printable

MOST_BYTES = 5 * 1024 * 1024
MOST_REDIRECTS = 10
_MOST_ADDRESSES = 4
"""How many addresses of a name are tried."""
_BROWSER = f"Mozilla/5.0 (compatible; kedge/{__version__})"
_OWN = f"kedge/{__version__}"
_REDIRECTS = (301, 302, 303, 307, 308)
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
TOO_LARGE = "Response too large (exceeds 5MB limit)"
TIMED_OUT = "Request timed out"

Lookup: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
Visit: TypeAlias = Callable[[WebAddress, WebAddress], Awaitable[None]]
Permit: TypeAlias = Callable[[WebAddress], Awaitable[bool]]


class FetchFailed(Exception):
    """The page could not be fetched; the text tells the model why."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """What a server answered."""

    target: WebAddress
    """Where it was found in the end."""
    content_type: str
    data: bytes


async def lookup(host: str, port: int) -> Sequence[str]:
    """The addresses of a name; raises `OSError` if it has none.

    In a thread of its own, which does not keep the process: name servers may take a minute, and
    the threads of asyncio are for files.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(addresses: Sequence[str], error: OSError | UnicodeError | None) -> None:
        if found.cancelled():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(OSError(str(error)))

    def look() -> None:
        addresses: Sequence[str] = ()
        failed: OSError | UnicodeError | None = None
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
        except (OSError, UnicodeError) as error:
            failed = error
        # The loop may be closed by now, and then the result is wanted no more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, addresses, failed)

    threading.Thread(target=look, name="kedge-lookup", daemon=True).start()
    return await found


@lru_cache(maxsize=1)
def _own_tls() -> ssl.SSLContext:
    """The certificates that requests to models are checked with too."""
    return httpx2.create_ssl_context()


@dataclass(slots=True)
class Fetcher:
    """Fetches one page."""

    visit: Visit
    """Called before a redirect is followed, with where it comes from and leads to; raises if that
    is not permitted."""
    permit: Permit
    """Whether this server may be asked although its address is not one of the internet."""
    seconds: float
    """How long connecting and reading may take together."""
    lookup: Lookup = lookup
    tls: Callable[[], ssl.SSLContext] = _own_tls
    _left: float = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.seconds

    async def fetch(self, target: WebAddress, accept: str) -> WebPage:
        """Follow redirects to a page, and read it; raises `FetchFailed`."""
        headers = {"Accept": accept, "Accept-Language": "en;q=0.9, *;q=0.5"}
        headers |= {"Accept-Encoding": "gzip, deflate", "User-Agent": _BROWSER}
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._asked(target, headers)
            if answer.is_challenge and headers["User-Agent"] != _OWN:
                # Some want to know who asks, and let programs through that say so.
                headers["User-Agent"] = _OWN
                answer = await self._asked(target, headers)
            if answer.status in _REDIRECTS and answer.location is not None:
                target = await self._led(target, answer.location)
                continue
            if not 200 <= answer.status < 300:
                raise FetchFailed(f"Request failed with status code: {answer.status}")
            return WebPage(target, answer.content_type, answer.data)
        raise FetchFailed(f"The page redirects more than {MOST_REDIRECTS} times")

    async def _led(self, target: WebAddress, location: str) -> WebAddress:
        try:
            led = WebAddress.parse(location, target)
        except BadUrl as error:
            shown = printable(location[:200])
            raise FetchFailed(f"The page redirects to {shown}. {error}") from error
        await self.visit(target, led)
        return led

    async def _asked(self, target: WebAddress, headers: Mapping[str, str]) -> "_Answer":
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(self._left):
                addresses = await self._addresses(target)
                return await _request(target, addresses, headers, self.tls)
        except TimeoutError as error:
            raise FetchFailed(TIMED_OUT) from error
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise FetchFailed(_unreached(target, error)) from error
        except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            raise FetchFailed(f"The connection to {target.host} was lost: {_why(error)}") from error
        except (httpcore2.ProtocolError, zlib.error) as error:
            why = _why(error)
            raise FetchFailed(f"{target.host} answered with what is no HTTP: {why}") from error
        finally:
            self._left = max(0.0, self._left - (loop.time() - begun))

    async def _addresses(self, target: WebAddress) -> Sequence[str]:
        """The addresses to connect to, each of them checked."""
        found: Sequence[str] = (target.host,)
        if address_of(target.host) is None:
            try:
                found = await self.lookup(target.host, target.port)
            except OSError as error:
                raise FetchFailed(f"There is no server {target.host}: {error}") from error
        if not found:
            raise FetchFailed(f"There is no server {target.host}")
        inner = [each for each in found if not _is_public(each)]
        if inner and not await self.permit(target):
            raise FetchFailed(_refusal(target, inner[0]))
        return found[:_MOST_ADDRESSES]


def _is_public(text: str) -> bool:
    address = address_of(text)
    return address is not None and is_public(address)


def _refusal(target: WebAddress, address: str) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    shown = "" if address == target.host else f" ({address})"
    return (
        f"{target.host}{shown} is an address of this machine or of a private network, which is"
        " fetched only if a permission rule names it. Do not try it in another way. If the person"
        f' wants it, they can add {{"webfetch": {{"{target.scheme}://{host}:*": "allow",'
        f' "{target.scheme}://{host}/*": "allow"}}}} to `permission` of their configuration'
    )


def _unreached(target: WebAddress, error: Exception) -> str:
    proxies = [name for name in _PROXIES if os.environ.get(name) or os.environ.get(name.lower())]
    hint = f". webfetch connects directly, without {proxies[0]}" if proxies else ""
    return f"{target.host} cannot be reached: {_why(error)}{hint}"


def _why(error: Exception) -> str:
    return printable(str(error)[:300]) or type(error).__name__


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer, which may lead elsewhere."""

    status: int
    headers: Mapping[str, str]
    data: bytes = b""

    @property
    def location(self) -> str | None:
        """Where it leads."""
        return self.headers.get("location")

    @property
    def content_type(self) -> str:
        """What its body is."""
        return self.headers.get("content-type", "")

    @property
    def is_challenge(self) -> bool:
        """Whether Cloudflare wants a browser to prove that it is one."""
        return self.status == 403 and self.headers.get("cf-mitigated") == "challenge"


class _Pinned(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were checked, whatever the host of the URL means by now."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        *rest: Any,  # noqa: ANN401 - as the library has it
        **more: Any,  # noqa: ANN401 - as the library has it
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers."""
        failed: Exception = httpcore2.ConnectError(f"no address of {host} answers")
        for address in self._addresses:
            try:
                return await self._network.connect_tcp(address, port, *rest, **more)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed


async def _request(
    target: WebAddress,
    addresses: Sequence[str],
    headers: Mapping[str, str],
    tls: Callable[[], ssl.SSLContext],
) -> _Answer:
    # The context is made only where it is needed: it reads all certificates.
    context = tls() if target.scheme == "https" else None
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=context, network_backend=_Pinned(addresses), max_connections=1
    )
    async with pool, pool.stream("GET", target.url, headers=list(headers.items())) as response:
        told = {
            name.decode("latin-1").lower(): value.decode("latin-1").strip()
            for name, value in response.headers
        }
        if not 200 <= response.status < 300:
            return _Answer(response.status, told)
        length = told.get("content-length", "")
        if length.isdecimal() and int(length) > MOST_BYTES:
            raise FetchFailed(TOO_LARGE)
        data = await _read(response.aiter_stream(), told.get("content-encoding", ""))
        return _Answer(response.status, told, data)


async def _read(pieces: AsyncIterator[bytes], encoding: str) -> bytes:
    """The body, which is unpacked as it comes and never grows beyond the limit."""
    decoder = _decoder(encoding)
    body = bytearray()
    received = 0
    async for piece in pieces:
        received += len(piece)
        body += piece if decoder is None else decoder.more(piece, MOST_BYTES + 1 - len(body))
        if received > MOST_BYTES or len(body) > MOST_BYTES:
            raise FetchFailed(TOO_LARGE)
    if decoder is not None and not decoder.is_whole:
        raise FetchFailed("The server broke off in the middle of the page")
    return bytes(body)


def _decoder(encoding: str) -> "_Unpacking | None":
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Unpacking()
        case other:
            shown = printable(other[:50])
            raise FetchFailed(f"The server packs the page as {shown}, which it was not asked to do")


class _Unpacking:
    """Unpacks gzip and both kinds of deflate."""

    def __init__(self) -> None:
        self._raw: zlib._Decompress | None = None
        self._begun = b""

    def more(self, piece: bytes, room: int) -> bytes:
        """Unpack a piece; gives `room` bytes at most, and then the rest is lost."""
        if self._raw is None:
            self._begun += piece
            if len(self._begun) < 2:
                return b""
            piece, self._raw = self._begun, zlib.decompressobj(_window(self._begun))
        return self._raw.decompress(piece, room) if not self._raw.eof else b""

    @property
    def is_whole(self) -> bool:
        """Whether its end has come."""
        return self._raw is None or self._raw.eof


def _window(begun: bytes) -> int:
    """What zlib wants to know of the format: some servers send deflate without its header."""
    is_gzip = begun[:2] == b"\x1f\x8b"
    is_zlib = begun[0] & 15 == 8 and int.from_bytes(begun[:2]) % 31 == 0
    return zlib.MAX_WBITS | 32 if is_gzip or is_zlib else -zlib.MAX_WBITS
