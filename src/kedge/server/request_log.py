"""A line in the log for each request: what was asked and what came of it, not what was said."""

import logging
from time import monotonic
from urllib.parse import parse_qsl

from kedge.config.naming import printable, shortened
from kedge.server.answers import Message, Receive, Send
from kedge.server.gate import App, Scope

_log = logging.getLogger("kedge.server.requests")
_SHOWN = frozenset({"directory", "limit", "messageID", "path", "scope"})
"""Parameters that hold neither a secret nor what people look for."""


class RequestLog:
    """An ASGI application that tells of each request to another."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Of a stream, both the beginning and the end are told."""
        began = monotonic()
        asked = _asked(scope)
        status, size = "-", 0

        async def counting(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = str(message["status"])
                if (b"content-type", b"text/event-stream") in message["headers"]:
                    _log.info("%s %s stream begins", asked, status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            # Without a status nothing was answered: the client left, or the server stops.
            _log.info("%s %s %.1f ms %d bytes", asked, status, 1000 * (monotonic() - began), size)


def _asked(scope: Scope) -> str:
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    shown = [f"{key}={value}" for key, value in query if key in _SHOWN]
    hidden = ["…"] if len(shown) < len(query) else []
    words = "&".join([*shown, *hidden])
    path = f"{scope['path']}?{words}" if words else scope["path"]
    return f"{scope['method']} {shortened(printable(path))}"
