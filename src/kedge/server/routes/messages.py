"""Routes for messages and their parts: read them page by page, change and remove them."""

from urllib.parse import urlencode

import msgspec

from kedge.domain.errors import MessageNotFound, SessionNotFound
from kedge.domain.messages import MessageWithParts
from kedge.domain.parts import Part
from kedge.engine.json_views import message_text, message_texts
from kedge.engine.validation import MAX_LIMIT
from kedge.server.errors import BadRequest
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import TRUE, Response, json, json_bytes, json_text
from kedge.server.router import Routes, always

routes = Routes()

_EXPOSED = ("access-control-expose-headers", "Link, X-Next-Cursor")


class MessagesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages: the newest ones, or those before a cursor."""

    limit: int = 0
    """0 for all."""
    before: str | None = None
    """The `x-next-cursor` of the page with newer messages."""


@routes.get(
    "/session/{sessionID}/message",
    "session.messages",
    query=MessagesQuery,
    answer=list[MessageWithParts],
)
async def list_messages(request: Request[MessagesQuery, NoBody]) -> Response:
    """The messages of a session with their parts, oldest first."""
    query = request.query
    if query.limit < 0:
        raise BadRequest(
            f'Expected a value greater than or equal to 0, got {query.limit}\n  at ["limit"]',
            "Query",
        )
    if query.before is not None and not query.limit:
        raise BadRequest('before needs a limit\n  at ["before"]', "Query")
    # A client that asks for all also gets a cursor if they do not fit into one answer.
    limit = min(query.limit, MAX_LIMIT) or MAX_LIMIT
    page = await message_texts(
        request.backend.engine, await request.session_id(), before=query.before, limit=limit
    )
    headers = _older(request, limit, page.older) if page.older else []
    return json_bytes(page.body, headers=headers)


@routes.get("/session/{sessionID}/message/{messageID}", "session.message", answer=MessageWithParts)
async def get_message(request: Request[NoQuery, NoBody]) -> Response:
    """One message with its parts."""
    id = request.id("msg", "messageID")
    try:
        session_id = await request.session_id()
        return json_text(await message_text(request.backend.engine, session_id, id))
    except SessionNotFound:
        raise MessageNotFound(id) from None


@routes.delete("/session/{sessionID}/message/{messageID}", "session.deleteMessage", answer=bool)
async def delete_message(request: Request[NoQuery, NoBody]) -> Response:
    """Remove a message and its parts; files stay as they are."""
    id = request.id("msg", "messageID")
    await (await request.session()).remove_message(id)
    return TRUE


@routes.delete("/session/{sessionID}/message/{messageID}/part/{partID}", "part.delete", answer=bool)
async def delete_part(request: Request[NoQuery, NoBody]) -> Response:
    """Remove a part of a message."""
    message_id, id = request.id("msg", "messageID"), request.id("prt", "partID")
    await (await request.session()).remove_part(message_id, id)
    return TRUE


@routes.patch(
    "/session/{sessionID}/message/{messageID}/part/{partID}",
    "part.update",
    body=Part,
    body_may_be_large=True,
    answer=Part,
    grants=always,
)
async def update_part(request: Request[NoQuery, Part]) -> Response:
    """Store a part, new or changed."""
    part = request.body
    message_id, id = request.id("msg", "messageID"), request.id("prt", "partID")
    session = await request.session()
    if (part.sessionID, part.messageID, part.id) != (session.id, message_id, id):
        raise BadRequest("the ids of the part are not those of the path", "Payload")
    await session.put_part(part)
    return json(part)


def _older(
    request: Request[MessagesQuery, NoBody], limit: int, cursor: str
) -> list[tuple[str, str]]:
    host = request.headers.get(b"host", b"").decode("latin-1")
    path = request.url.partition("?")[0]
    query = urlencode({**request.asked, "limit": limit, "before": cursor})
    return [
        ("link", f'<http://{host}{path}?{query}>; rel="next"'),
        ("x-next-cursor", cursor),
        _EXPOSED,
    ]
