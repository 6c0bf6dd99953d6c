"""What newer clients ask under `/api` when they start, and when they name a file in a prompt."""

import asyncio
from typing import Any, Literal

import msgspec

from kedge.domain.providers import ProviderInfo
from kedge.model.known import KNOWN
from kedge.server.answers import Answer, json
from kedge.server.finding import Kind, find_files
from kedge.server.newer import (
    Located,
    Location,
    NewerAgent,
    NewerModel,
    NewerProvider,
    located,
    location_of,
    newer_agent,
    newer_model,
    newer_provider,
)
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.routes.agents import shown_agents
from kedge.server.routes.models import shown_providers
from kedge.server.routing import Routes

routes = Routes()

_FOUND = 50
_MOST_FOUND = 1000


class FindQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to find."""

    query: str
    type: Kind | None = None
    limit: int = _FOUND


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder, as seen from the directory."""

    path: str
    type: Kind


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Variables that a provider's key may stand in."""

    type: Literal["env"]
    names: list[str]


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that a provider's key stands in."""

    type: Literal["env"]
    name: str


class Integration(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that can be connected, or is."""

    id: str
    name: str
    methods: list[Key]
    connections: list[Connection]


@routes.get("/api/location", "v2.location.get", answer=Location)
async def get_location(request: Request[NoQuery, NoBody]) -> Answer:
    """The directory and its project."""
    return json(location_of(await request.known_place()))


@routes.get("/api/agent", "v2.agent.list", answer=Located[NewerAgent])
async def list_newer_agents(request: Request[NoQuery, NoBody]) -> Answer:
    """The agents of the directory, the default one first."""
    agents = shown_agents((await request.surroundings()).agents.list())
    return json(located(await request.known_place(), [newer_agent(each) for each in agents]))


@routes.get("/api/provider", "v2.provider.list", answer=Located[NewerProvider])
async def list_newer_providers(request: Request[NoQuery, NoBody]) -> Answer:
    """The providers that can be asked."""
    found = await _providers(request)
    return json(located(await request.known_place(), [newer_provider(each) for each in found]))


@routes.get("/api/model", "v2.model.list", answer=Located[NewerModel])
async def list_newer_models(request: Request[NoQuery, NoBody]) -> Answer:
    """The models that can be asked."""
    found = await _providers(request)
    models = [newer_model(model) for each in found for model in each.models.values()]
    return json(located(await request.known_place(), models))


@routes.get("/api/integration", "v2.integration.list", answer=Located[Integration])
async def list_integrations(request: Request[NoQuery, NoBody]) -> Answer:
    """The providers that need a key, and where it may stand."""
    environ = request.backend.agent.environ
    found = [
        Integration(
            id=known.id,
            name=known.name,
            methods=[Key(type="env", names=list(known.env))],
            connections=[
                Connection(type="env", name=each) for each in known.env if each in environ
            ],
        )
        for known in KNOWN.values()
        if known.needs_key
    ]
    return json(located(await request.known_place(), found))


@routes.get("/api/reference", "v2.reference.list", answer=Located[dict[str, Any]])
async def list_references(request: Request[NoQuery, NoBody]) -> Answer:
    """Other folders that the configuration refers to: kedge knows none."""
    return json(located(await request.known_place(), []))


@routes.get("/api/command", "v2.command.list", answer=Located[dict[str, Any]])
async def list_newer_commands(request: Request[NoQuery, NoBody]) -> Answer:
    """The commands; this kedge runs none yet, so it lists none."""
    return json(located(await request.known_place(), []))


@routes.get("/api/skill", "v2.skill.list", answer=Located[dict[str, Any]])
async def list_newer_skills(request: Request[NoQuery, NoBody]) -> Answer:
    """The skills; this kedge has none yet."""
    return json(located(await request.known_place(), []))


@routes.get("/api/fs/find", "v2.fs.find", query=FindQuery, answer=Located[Entry], reads_files=True)
async def find_entries(request: Request[FindQuery, NoBody]) -> Answer:
    """Files and folders whose names are like the query, the best first."""
    asked = request.query
    kinds: tuple[Kind, ...] = ("file", "directory") if asked.type is None else (asked.type,)
    place = await request.known_place()
    limit = max(0, min(asked.limit, _MOST_FOUND))
    found = await find_files(request.backend.names, place.directory, asked.query, limit, kinds)
    return json(located(place, [_entry(path) for path in found]))


def _entry(path: str) -> Entry:
    return Entry(path=path, type="directory" if path.endswith("/") else "file")


async def _providers(request: Request[Any, NoBody]) -> list[ProviderInfo]:
    catalog = (await request.surroundings()).catalog
    return await asyncio.to_thread(shown_providers, catalog)
