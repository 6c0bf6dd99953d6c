"""Whether the server answers, and the description of its routes."""

import msgspec

from kedge.server.answers import Answer, json
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.routing import Routes

routes = Routes()


class Health(msgspec.Struct, frozen=True):
    """The server answers."""

    healthy: bool
    version: str


@routes.get("/global/health", "global.health", answer=Health)
async def health(request: Request[NoQuery, NoBody]) -> Answer:
    """Whether the server answers, and its version."""
    return json(Health(True, request.backend.engine.version))
