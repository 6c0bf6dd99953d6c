"""Access control in front of every route, and the CORS headers.

Without a password the server trusts every program on this machine, but not a web page open in this
machine's browser: such a request has a foreign `Origin` or, if the page's own name was made to
resolve to this machine, a foreign `Host`.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from kedge.server.errors import BadRequest, Refused, error_answer
from kedge.server.responses import Message, Receive, Response, Send, json, send_answer
from kedge.server.settings import ServerSettings, is_loopback

Scope: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_ORIGINS = re.compile(
    r"https://([a-z0-9-]+\.)+opencode\.ai|tauri://localhost|oc://renderer[^\s]*",
    re.IGNORECASE,
)
"""The origins of OpenCode's own clients. No port of this machine is among them: what listens there
may run untrusted code, and to a browser `tauri.localhost` is such an address."""
_HOST = re.compile(r"([^\[\]:@/\\\s]+|\[[0-9a-f:.]+\])(?::[0-9]*)?", re.IGNORECASE)
"""A name or address, with an optional port."""
_ONCE = (
    *(b"host", b"origin", b"authorization", b"content-length", b"content-type"),
    *(b"transfer-encoding", b"sec-fetch-site"),
)
"""Headers that must not be repeated: two different values would be ambiguous."""
_OTHER_SITES = (b"cross-site", b"same-site")
_ASKED_HEADERS = b"access-control-request-headers"
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")
_CHALLENGE = ("www-authenticate", 'Basic realm="Secure Area"')
_UNAUTHORIZED = Response(b"", 401, b"", ((_CHALLENGE[0].encode(), _CHALLENGE[1].encode()),))
_UNAUTHORIZED_API = json(
    {"_tag": "UnauthorizedError", "message": "Authentication required"}, 401, [_CHALLENGE]
)
"""The same for routes of OpenCode's v2 API."""


class Gate:
    """ASGI middleware that checks each request before it passes it on."""

    def __init__(self, app: App, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings
        wanted = f"{settings.username}:{settings.password}"
        self._credentials = _digest(wanted.encode()) if settings.password else None
        self._origins = {origin.rstrip("/").lower() for origin in settings.cors}
        self._hosts = {urlsplit(origin).hostname for origin in self._origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        allowed = self._allows(origin)
        extra = [_vary(headers), _NO_SNIFFING]
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
    ) -> Response | None:
        # Nearly all requests have no repeated header, and that is quick to check.
        repeated = _repeated(scope["headers"]) if len(headers) < len(scope["headers"]) else None
        if repeated:
            return error_answer(BadRequest(f"the header {repeated} is repeated", "Headers"))
        if self._credentials is None and not self._is_own(headers.get(b"host", b"")):
            return error_answer(
                Refused("the Host header names another machine; use http://127.0.0.1 or localhost")
            )
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            return _preflight(headers)
        if not allowed and self._is_foreign(headers, origin):
            return error_answer(
                Refused("this origin is not allowed; allow it with `kedge serve --cors ORIGIN`")
            )
        if self._credentials is not None and not self._is_authorized(scope, headers):
            return _UNAUTHORIZED_API if scope["path"].startswith("/api/") else _UNAUTHORIZED
        return None

    def _allows(self, origin: str) -> bool:
        if not origin:
            return False
        return (
            _ORIGINS.fullmatch(origin) is not None
            or origin.lower() in self._origins
            or "*" in self._origins
        )

    def _is_foreign(self, headers: Mapping[bytes, bytes], origin: str) -> bool:
        """Whether a page of another site sent this. A password is no proof: browsers add a password
        that they know to requests that other pages send."""
        site = headers.get(b"sec-fetch-site", b"").lower()
        if site in _OTHER_SITES:
            # Images, frames and links say this too, and they have no origin.
            return True
        host = headers.get(b"host", b"").decode("latin-1")
        if not origin or (host and origin.lower().partition("://")[2] == host.lower()):
            return False
        # A proxy may have changed the host, but only a server with a password stands behind one.
        return self._credentials is None or site != b"same-origin"

    def _is_own(self, header: bytes) -> bool:
        """Whether a request was addressed to this machine or to an allowed name."""
        found = _HOST.fullmatch(header.decode("latin-1"))
        if found is None:
            return False
        name = found[1].lower()
        return is_loopback(name) or name.strip("[]") in self._hosts

    def _is_authorized(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        assert self._credentials is not None
        given = _basic(headers.get(b"authorization", b"")) or _token(scope["query_string"])
        return given is not None and hmac.compare_digest(_digest(given), self._credentials)


def _vary(headers: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    depends_on = (
        b"Access-Control-Request-Headers, Origin" if _ASKED_HEADERS in headers else b"Origin"
    )
    return (b"vary", depends_on)


def _digest(credentials: bytes) -> bytes:
    """A digest of fixed length, so that the comparison takes the same time for any input."""
    return hashlib.sha256(credentials).digest()


def _repeated(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    names = [name for name, _ in headers]
    return next((name.decode() for name in _ONCE if names.count(name) > 1), None)


def _basic(header: bytes) -> bytes | None:
    scheme, _, value = header.partition(b" ")
    return _decoded(value.strip()) if scheme.lower() == b"basic" else None


def _token(query: bytes) -> bytes | None:
    if b"auth_token" not in query:
        return None
    found = parse_qs(query.decode("latin-1")).get("auth_token", [])
    # A space is a plus sign that the client forgot to encode.
    return _decoded(found[0].replace(" ", "+").encode()) if len(found) == 1 else None


def _decoded(value: bytes) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return None


def _preflight(headers: Mapping[bytes, bytes]) -> Response:
    return Response(
        b"",
        204,
        b"",
        (
            (b"access-control-allow-methods", b"GET, HEAD, PUT, PATCH, POST, DELETE"),
            (b"access-control-allow-headers", headers.get(_ASKED_HEADERS, b"")),
            (b"access-control-max-age", b"86400"),
        ),
    )
