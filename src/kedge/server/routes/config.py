"""The configuration, as clients may see it: without secrets."""

import asyncio
from collections.abc import Mapping
from typing import Any

from kedge.config.loading import load_own_config
from kedge.config.redacting import redacted
from kedge.config.values import Config
from kedge.server.answers import Answer, json
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.routing import Routes

routes = Routes()

_SCHEMA = {"$schema": "https://opencode.ai/config.json"}
"""What editors check such a file with."""


@routes.get("/config", "config.get", answer=dict[str, Any])
async def get_config(request: Request[NoQuery, NoBody]) -> Answer:
    """What holds in the directory, as far as its files can be read; `notices` says what is ignored,
    and why."""
    config = (await request.surroundings()).config
    name = request.backend.agent.environ.get("USER") or "unknown"
    always = {"command": {}, "plugin": [], "username": name, "mode": {}, "agent": {}}
    return json({**_SCHEMA, **always, **_shown(config)})


@routes.get("/global/config", "global.config.get", answer=dict[str, Any])
async def get_own_config(request: Request[NoQuery, NoBody]) -> Answer:
    """What the user's own files say, which holds in every directory."""
    config = await asyncio.to_thread(load_own_config, request.backend.agent.environ)
    return json({**_SCHEMA, **_shown(config)})


def _shown(config: Config) -> Mapping[str, Any]:
    notices = {"notices": list(config.notices)} if config.notices else {}
    return {**redacted(config.raw), **notices}
