"""Routes for event streams (server-sent events), and for disposing instances."""

from typing import Any

import msgspec

from kedge.domain.cursors import EventCursor
from kedge.domain.errors import InvalidCursor
from kedge.domain.events import EventFrame
from kedge.server.errors import BadRequest
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import TRUE, Response, Stream
from kedge.server.router import Routes

routes = Routes()
_SSE = "text/event-stream"
_NOWHERE = EventCursor("", 0)


class After(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream starts."""

    after: str | None = None
    """A cursor: the `id` of a frame. `Last-Event-ID`, which clients send by themselves when they
    reconnect, takes precedence."""


class GlobalEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event with its directory and project."""

    payload: EventFrame[dict[str, Any]]
    directory: str | None = None
    project: str | None = None


@routes.get(
    "/event", "event.subscribe", query=After, answer=EventFrame[dict[str, Any]], media_type=_SSE
)
async def directory_events(request: Request[After, NoBody]) -> Stream:
    """The events of one directory."""
    return request.backend.streams.stream(request.directory, _cursor(request))


@routes.get("/global/event", "global.event", query=After, answer=GlobalEvent, media_type=_SSE)
async def global_events(request: Request[After, NoBody]) -> Stream:
    """The events of all directories."""
    return request.backend.streams.stream(None, _cursor(request))


@routes.post("/instance/dispose", "instance.dispose", answer=bool)
async def dispose_instance(request: Request[NoQuery, NoBody]) -> Response:
    """Tell the clients of a directory to reload everything; running turns are not touched."""
    await request.backend.streams.dispose(request.directory)
    return TRUE


@routes.post("/global/dispose", "global.dispose", answer=bool)
async def dispose_everything(request: Request[NoQuery, NoBody]) -> Response:
    """Tell all clients to reload everything; running turns are not touched."""
    await request.backend.streams.dispose_all()
    return TRUE


def _cursor(request: Request[After, NoBody]) -> EventCursor | None:
    header = request.headers.get(b"last-event-id", b"").decode("latin-1")
    if header:
        try:
            return EventCursor.parse(header)
        except InvalidCursor:
            # The client sends this header by itself, and an error would be final for it; so it is
            # told to load everything again, as with the cursor of another database.
            return _NOWHERE
    if not request.query.after:
        return None
    try:
        return EventCursor.parse(request.query.after)
    except InvalidCursor as error:
        raise BadRequest(f'{error}\n  at ["after"]', "Query") from None
