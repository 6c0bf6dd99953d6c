"""Who may come in: the checks that stand before every route, and the headers that CORS wants.

Without a password the server trusts whoever is on this machine, but not what a web page on this
machine's browser sends: such a request has a foreign `Origin`, or, if the page's own name was made
to point here, a foreign `Host`.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from kedge.server.answers import Answer, Message, Receive, Send, send_answer
from kedge.server.errors import Refused, error_answer
from kedge.server.settings import ServerSettings, is_loopback

Scope: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_ORIGINS = re.compile(
    r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
    r"|https://([a-z0-9-]+\.)+opencode\.ai"
    r"|tauri://localhost|https?://tauri\.localhost"
    r"|oc://renderer[^\s]*",
    re.IGNORECASE,
)
"""Where OpenCode's own clients come from."""
_VARY = (b"vary", b"Origin")
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_UNAUTHORIZED = Answer(b"", 401, b"", ((b"www-authenticate", b'Basic realm="Secure Area"'),))


class Gate:
    """An ASGI application that lets requests through to another."""

    def __init__(self, app: App, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        wanted = f"{settings.username}:{settings.password}"
        self._credentials = wanted.encode() if settings.password else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = self._allows(origin)
        extra = [_VARY, _NO_SNIFFING]
        if origin and allowed:
            extra.append((b"access-control-allow-origin", origin.encode("latin-1")))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        answer = self._refusal(scope, headers, origin, allowed)
        if answer is None:
            scope["kedge.headers"] = headers
            await self._app(scope, receive, send_with_headers)
        else:
            await send_answer(answer, b"", send_with_headers)

    def _refusal(
        self, scope: Scope, headers: Mapping[bytes, bytes], origin: str, allowed: bool
    ) -> Answer | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if self._credentials is None and not self._is_own_host(hosts):
            return error_answer(
                Refused("the Host header names another machine; use http://127.0.0.1 or localhost")
            )
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            return _preflight(headers)
        if self._credentials is None:
            if origin and not allowed:
                return error_answer(
                    Refused("this origin is not allowed; allow it with `kedge serve --cors ORIGIN`")
                )
        elif not self._is_authorized(scope, headers):
            return _UNAUTHORIZED
        return None

    def _allows(self, origin: str) -> bool:
        if not origin:
            return False
        cors = self._settings.cors
        return _ORIGINS.fullmatch(origin) is not None or origin in cors or "*" in cors

    def _is_own_host(self, hosts: list[bytes]) -> bool:
        if len(hosts) != 1:
            return False
        host = hosts[0].decode("latin-1").lower()
        name = (
            host[: host.index("]") + 1]
            if host.startswith("[") and "]" in host
            else host.split(":")[0]
        )
        return is_loopback(name)

    def _is_authorized(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        assert self._credentials is not None
        given = _basic(headers.get(b"authorization", b"")) or _token(scope["query_string"])
        return given is not None and hmac.compare_digest(given, self._credentials)


def _basic(header: bytes) -> bytes | None:
    scheme, _, value = header.partition(b" ")
    return _decoded(value.strip()) if scheme.lower() == b"basic" else None


def _token(query: bytes) -> bytes | None:
    if b"auth_token" not in query:
        return None
    found = parse_qs(query.decode("latin-1")).get("auth_token", [])
    # A space is a plus that a client forgot to encode.
    return _decoded(found[0].replace(" ", "+").encode()) if len(found) == 1 else None


def _decoded(value: bytes) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return None


def _preflight(headers: Mapping[bytes, bytes]) -> Answer:
    return Answer(
        b"",
        204,
        b"",
        (
            (b"access-control-allow-methods", b"GET, HEAD, PUT, PATCH, POST, DELETE"),
            (b"access-control-allow-headers", headers.get(b"access-control-request-headers", b"")),
            (b"access-control-max-age", b"86400"),
        ),
    )
