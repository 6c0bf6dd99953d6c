"""Whether the server answers, and the description of its routes."""

import asyncio
import functools
from typing import Any

import msgspec

from kedge.domain import wire
from kedge.server import openapi
from kedge.server.answers import Answer, json, json_text
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


@routes.get("/doc", "kedge.doc", answer=dict[str, Any])
async def description(request: Request[NoQuery, NoBody]) -> Answer:
    """This description, in OpenAPI 3.1."""
    return json_text(await asyncio.to_thread(_described, request.backend.engine.version))


@functools.cache
def _described(version: str) -> str:
    # Those routes include this one.
    from kedge.server.routes import ALL

    return wire.encode(openapi.describe(ALL, version))
