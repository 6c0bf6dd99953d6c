"""Routes for the agents of a directory, and their tools, commands and skills."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from kedge.agent import BUILTIN
from kedge.agent.families import suited
from kedge.agent.skills import skills_of
from kedge.config.display import redacted
from kedge.domain.agents import AgentInfo
from kedge.domain.commands import Command, Skill
from kedge.domain.errors import ModelNotFound
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, json
from kedge.server.router import Routes

routes = Routes()


class ToolQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The model whose tools are asked for: models edit files with different tools."""

    provider: str
    model: str


class ToolItem(msgspec.Struct, frozen=True):
    """A tool, as models see it."""

    id: str
    description: str
    parameters: Mapping[str, Any]


@routes.get("/agent", "app.agents", answer=list[AgentInfo])
async def list_agents(request: Request[NoQuery, NoBody]) -> Response:
    """The agents of the directory, the default one first."""
    return json(shown_agents((await request.surroundings()).agents.list()))


def shown_agents(agents: list[AgentInfo]) -> list[AgentInfo]:
    """Agents without options that may hold a secret of their model's client."""
    return [msgspec.structs.replace(each, options=redacted(each.options)) for each in agents]


@routes.get("/experimental/tool/ids", "tool.ids", answer=list[str])
async def list_tool_ids(request: Request[NoQuery, NoBody]) -> Response:
    """The names of the tools."""
    return json([tool.name for tool in BUILTIN])


@routes.get("/experimental/tool", "tool.list", query=ToolQuery, answer=list[ToolItem])
async def list_tools(request: Request[ToolQuery, NoBody]) -> Response:
    """The tools that a model is offered, with their arguments as JSON schema."""
    tools = {tool.name: tool for tool in BUILTIN}
    with suppress(ModelNotFound):
        # Nothing is known about a model that does not exist; it would be offered any tool.
        catalog = (await request.surroundings()).catalog
        tools = suited(tools, catalog.model(request.query.provider, request.query.model))
    specs = [tool.spec for tool in tools.values()]
    return json([ToolItem(each.name, each.description, each.parameters) for each in specs])


@routes.get("/command", "command.list", answer=list[Command])
async def list_commands(request: Request[NoQuery, NoBody]) -> Response:
    """The commands of the directory: kedge's own, those of the configuration, and skills."""
    return json((await request.surroundings()).commands.list())


@routes.get("/skill", "app.skills", answer=list[Skill])
async def list_skills(request: Request[NoQuery, NoBody]) -> Response:
    """The skills of the directory."""
    return json(skills_of((await request.surroundings()).config))
