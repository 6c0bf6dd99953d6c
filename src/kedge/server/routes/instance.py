"""Routes about the server itself: health, API description, configuration, folders, log."""

import asyncio
import functools
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from kedge.config.display import HIDDEN, printable, redacted, shortened
from kedge.config.files import config_home_of, home_of
from kedge.config.load import load_own_config
from kedge.config.values import Config
from kedge.domain import wire
from kedge.domain.errors import StoreError
from kedge.server import openapi
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import TRUE, Response, json, json_text
from kedge.server.router import Routes

routes = Routes()
_client_log = logging.getLogger("kedge.client")

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
_LONGEST_LINE = 2000
_SECRET = re.compile(
    r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"
    r"|(?<![a-z_-])([a-z_-]*(?:api.?key|token|secret|passw(?:or)?d|authorization))"
    r"(\"?\s*[:=]\s*\"?)(?:(?:bearer|basic)\s+)?[^\s\"',;&]+"
    r"|\b(sk|pk|ghp|gho|xox[a-z])[-_][\w-]{8,}"
)
_NO_MCP = "kedge does not run MCP servers yet"


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """The server's folders."""

    home: str
    state: str
    config: str
    worktree: str
    directory: str


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a client writes into the server's log."""

    service: str
    level: Literal["debug", "info", "warn", "error"]
    message: str
    extra: dict[str, Any] | None = None


class McpStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The status of an MCP server."""

    status: Literal["disabled", "failed"]
    error: str | None = None


class ServerCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Optional capabilities of the server."""

    backgroundSubagents: bool


class Console(msgspec.Struct, frozen=True, kw_only=True):
    """The organisation that pays for models at OpenCode; kedge has none."""

    consoleManagedProviders: list[str]
    switchableOrgCount: int


@routes.get("/path", "path.get", answer=Paths)
async def get_paths(request: Request[NoQuery, NoBody]) -> Response:
    """The directory, its worktree, and the folders of configuration and data."""
    place = await request.known_place()
    environ = request.backend.agent.environ
    return json(
        Paths(
            home=home_of(environ),
            state=str(request.backend.engine.data),
            config=f"{config_home_of(environ)}/opencode",
            worktree=place.worktree,
            directory=place.directory,
        )
    )


@routes.post("/log", "app.log", body=LogLine, answer=bool)
async def write_log(request: Request[NoQuery, LogLine]) -> Response:
    """Write a line into the server's log."""
    said = request.body
    _client_log.log(_LEVELS[said.level], "%s", log_text(said))
    return TRUE


def log_text(said: LogLine) -> str:
    """One line that is safe to show in a terminal, without text that looks like a secret."""
    more = f" {wire.encode(redacted(said.extra))}" if said.extra else ""
    text = f"{said.service}: {said.message}{more}"[: 2 * _LONGEST_LINE]
    return printable(_SECRET.sub(_without_secret, text))[:_LONGEST_LINE]


def _without_secret(found: re.Match[str]) -> str:
    scheme, key, between, start = found.groups()
    if key is not None:
        return f"{key}{between}{HIDDEN}"
    return f"{scheme} {HIDDEN}" if scheme else f"{start}-{HIDDEN}"


@routes.get("/mcp", "mcp.status", answer=dict[str, McpStatus])
async def list_mcp(request: Request[NoQuery, NoBody]) -> Response:
    """The MCP servers that are configured; none of them runs."""
    servers = (await request.surroundings()).config.raw.get("mcp")
    found: Mapping[str, Any] = servers if isinstance(servers, dict) else {}
    return json({shortened(name): _mcp_status(server) for name, server in found.items()})


def _mcp_status(server: object) -> McpStatus:
    if isinstance(server, dict) and server.get("enabled") is False:
        return McpStatus(status="disabled")
    return McpStatus(status="failed", error=_NO_MCP)


@routes.get("/lsp", "lsp.status", answer=list[dict[str, Any]])
async def list_lsp(request: Request[NoQuery, NoBody]) -> Response:
    """The running language servers: kedge runs none."""
    return json([])


@routes.get("/formatter", "formatter.status", answer=list[dict[str, Any]])
async def list_formatters(request: Request[NoQuery, NoBody]) -> Response:
    """The running formatters: kedge runs none."""
    return json([])


@routes.get(
    "/experimental/capabilities", "experimental.capabilities.get", answer=ServerCapabilities
)
async def get_capabilities(request: Request[NoQuery, NoBody]) -> Response:
    """Optional capabilities of the server."""
    agent = request.backend.agent
    return json(ServerCapabilities(backgroundSubagents=agent.subagents.has_background))


@routes.get("/experimental/console", "experimental.console.get", answer=Console)
async def get_console(request: Request[NoQuery, NoBody]) -> Response:
    """The organisation at OpenCode that models belong to: none."""
    return json(Console(consoleManagedProviders=[], switchableOrgCount=0))


@routes.get("/experimental/resource", "experimental.resource.list", answer=dict[str, Any])
async def list_resources(request: Request[NoQuery, NoBody]) -> Response:
    """The resources of MCP servers: none, as none runs."""
    return json({})


@routes.get("/experimental/workspace", "experimental.workspace.list", answer=list[dict[str, Any]])
async def list_workspaces(request: Request[NoQuery, NoBody]) -> Response:
    """Workspaces on other machines: kedge has none."""
    return json([])


@routes.get(
    "/experimental/workspace/status",
    "experimental.workspace.status",
    answer=list[dict[str, Any]],
)
async def list_workspace_statuses(request: Request[NoQuery, NoBody]) -> Response:
    """The connections to workspaces on other machines: there are none."""
    return json([])


_SCHEMA = {"$schema": "https://opencode.ai/config.json"}
"""The schema with which editors check such a file."""


@routes.get("/config", "config.get", answer=dict[str, Any])
async def get_config(request: Request[NoQuery, NoBody]) -> Response:
    """The configuration of the directory, as far as its files can be read; `notices` lists what is
    ignored, and why."""
    config = (await request.surroundings()).config
    name = request.backend.agent.environ.get("USER") or "unknown"
    always = {"command": {}, "plugin": [], "username": name, "mode": {}, "agent": {}}
    return json({**_SCHEMA, **always, **_shown(config)})


@routes.get("/global/config", "global.config.get", answer=dict[str, Any])
async def get_own_config(request: Request[NoQuery, NoBody]) -> Response:
    """The configuration from the user's own files, which applies to every directory."""
    config = await asyncio.to_thread(load_own_config, request.backend.agent.environ)
    return json({**_SCHEMA, **_shown(config)})


def _shown(config: Config) -> Mapping[str, Any]:
    notices = {"notices": list(config.notices)} if config.notices else {}
    return {**redacted(config.raw), **notices}


_PATIENCE = 5.0
"""Seconds within which the database must answer."""


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the server is able to work."""

    healthy: bool
    version: str
    message: str | None = None
    """The problem, if there is one."""


# Without a `pid`: by that clients recognize a server of OpenCode's next protocol.
@routes.get("/api/health", "v2.health.get", answer=Health)
@routes.get("/global/health", "global.health", answer=Health)
async def health(request: Request[NoQuery, NoBody]) -> Response:
    """Whether the server and its database answer, and its version; 503 if the database does not."""
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
async def description(request: Request[NoQuery, NoBody]) -> Response:
    """This description, in OpenAPI 3.1."""
    return json_text(await asyncio.to_thread(_described, request.backend.engine.version))


@functools.cache
def _described(version: str) -> str:
    # ALL includes this route.
    from kedge.server.routes import ALL

    return wire.encode(openapi.describe(ALL, version))
