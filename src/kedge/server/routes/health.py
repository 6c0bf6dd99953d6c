"""Whether the server answers, and the description of its routes."""

import asyncio
import functools
from typing import Any

import msgspec

from kedge.domain import wire
from kedge.domain.errors import StoreError
from kedge.server import openapi
from kedge.server.answers import Answer, json, json_text
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.routing import Routes

routes = Routes()
_PATIENCE = 5.0
"""Seconds in which the database has to answer."""


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the server can do its work."""

    healthy: bool
    version: str
    message: str | None = None
    """What is wrong, if something is."""


# Without a `pid`, by which clients tell a server of OpenCode's next protocol.
@routes.get("/api/health", "v2.health.get", answer=Health)
@routes.get("/global/health", "global.health", answer=Health)
async def health(request: Request[NoQuery, NoBody]) -> Answer:
    """Whether the server answers and has its database, and its version; 503 if it has not."""
    engine = request.backend.engine
    try:
        engine.store.check()
        async with asyncio.timeout(_PATIENCE):
            await engine.events.head()
    except StoreError as error:
        return json(Health(False, engine.version, str(error)), 503)
    except TimeoutError:
        return json(Health(False, engine.version, "the database does not answer"), 503)
    return json(Health(True, engine.version))


@routes.get("/doc", "kedge.doc", answer=dict[str, Any])
async def description(request: Request[NoQuery, NoBody]) -> Answer:
    """This description, in OpenAPI 3.1."""
    return json_text(await asyncio.to_thread(_described, request.backend.engine.version))


@functools.cache
def _described(version: str) -> str:
    # Those routes include this one.
    from kedge.server.routes import ALL

    return wire.encode(openapi.describe(ALL, version))
