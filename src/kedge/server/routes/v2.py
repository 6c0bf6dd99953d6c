"""The routes below `/api` that newer clients request when they start."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec

from kedge.domain.agents import AgentInfo
from kedge.domain.permissions import PermissionAction
from kedge.domain.providers import Limits, Modalities, ModelInfo, Price, ProviderInfo
from kedge.domain.sessions import ModelRef
from kedge.engine.engine import Place
from kedge.engine.files.find import Kind
from kedge.model.registry import KNOWN
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, json
from kedge.server.router import Routes
from kedge.server.routes.agents import shown_agents
from kedge.server.routes.models import shown_providers

T = TypeVar("T")


class LocationProject(msgspec.Struct, frozen=True):
    """The project of a location, and its directory."""

    id: str
    directory: str


class Location(msgspec.Struct, frozen=True):
    """The location that an answer is about."""

    directory: str
    project: LocationProject


class Located(msgspec.Struct, Generic[T], frozen=True):
    """A list, and the location that it is about."""

    location: Location
    data: Sequence[T]


class NewerRule(msgspec.Struct, frozen=True):
    """A permission rule."""

    action: str
    resource: str
    effect: PermissionAction


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent along with each request to a model."""

    headers: dict[str, str]
    body: dict[str, Any]


_NOTHING_SENT = Sent(headers={}, body={})


class NewerAgent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent."""

    id: str
    request: Sent
    mode: Literal["subagent", "primary", "all"]
    hidden: bool
    permissions: list[NewerRule]
    description: str | None = None
    system: str | None = None
    model: ModelRef | None = None
    color: str | None = None
    steps: int | None = None


class NewerApi(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to reach a model or provider."""

    id: str | None = None
    type: Literal["aisdk"]
    package: str
    url: str


class NewerCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can do."""

    tools: bool
    input: list[str]
    output: list[str]


class NewerVariant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a model: its options for requests."""

    id: str
    headers: dict[str, str]
    body: dict[str, Any]


class Released(msgspec.Struct, frozen=True):
    """When a model was released, in milliseconds since the epoch; 0 if unknown."""

    released: int


class NewerModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model of a provider."""

    id: str
    providerID: str
    family: str | None = None
    name: str
    api: NewerApi
    capabilities: NewerCapabilities
    request: Sent
    variants: list[NewerVariant]
    time: Released
    cost: list[Price]
    status: Literal["alpha", "beta", "deprecated", "active"]
    enabled: bool
    limit: Limits


class NewerProvider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of models."""

    id: str
    name: str
    api: NewerApi
    request: Sent


def located(place: Place, data: Sequence[T]) -> Located[T]:
    """A list about a location."""
    return Located(location_of(place), data)


def location_of(place: Place) -> Location:
    """A place as a location."""
    return Location(place.directory, LocationProject(place.project.id, place.project.worktree))


def newer_agent(agent: AgentInfo) -> NewerAgent:
    """An agent in v2's form."""
    model = agent.model
    return NewerAgent(
        id=agent.name,
        request=Sent(headers={}, body=agent.options),
        mode=agent.mode,
        hidden=bool(agent.hidden),
        permissions=[NewerRule(r.permission, r.pattern, r.action) for r in agent.permission],
        description=agent.description,
        system=agent.prompt,
        model=None if model is None else ModelRef(id=model.modelID, providerID=model.providerID),
        color=agent.color,
        steps=agent.steps,
    )


def newer_provider(provider: ProviderInfo) -> NewerProvider:
    """A provider in v2's form; its API is that of its first model."""
    first = next(iter(provider.models.values()), None)
    npm, url = (first.api.npm, first.api.url) if first else ("", "")
    return NewerProvider(
        id=provider.id,
        name=provider.name,
        api=NewerApi(type="aisdk", package=npm, url=url),
        request=_NOTHING_SENT,
    )


def newer_model(model: ModelInfo) -> NewerModel:
    """A model in v2's form."""
    can = model.capabilities
    return NewerModel(
        id=model.id,
        providerID=model.providerID,
        family=model.family or None,
        name=model.name,
        api=NewerApi(id=model.api.id, type="aisdk", package=model.api.npm, url=model.api.url),
        capabilities=NewerCapabilities(
            tools=can.toolcall, input=_named(can.input), output=_named(can.output)
        ),
        request=Sent(headers=model.headers, body=model.options),
        variants=[
            NewerVariant(id=id, headers={}, body=body)
            for id, body in (model.variants or {}).items()
        ],
        time=Released(_released(model.release_date)),
        cost=[model.cost],
        status=model.status,
        enabled=True,
        limit=model.limit,
    )


def _named(kinds: Modalities) -> list[str]:
    every = ("text", "audio", "image", "video", "pdf")
    return [name for name in every if getattr(kinds, name)]


def _released(date: str) -> int:
    try:
        day = datetime.fromisoformat(date).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(day.timestamp() * 1000)


routes = Routes()

_FOUND = 50
_MOST_FOUND = 1000


class FindQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to find."""

    query: str
    type: Kind | None = None
    limit: int = _FOUND


class FoundEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder, relative to the directory."""

    path: str
    type: Kind


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Variables that may hold a provider's key."""

    type: Literal["env"]
    names: list[str]


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that holds a provider's key."""

    type: Literal["env"]
    name: str


class Integration(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that is connected or could be."""

    id: str
    name: str
    methods: list[Key]
    connections: list[Connection]


@routes.get("/api/location", "v2.location.get", answer=Location)
async def get_location(request: Request[NoQuery, NoBody]) -> Response:
    """The directory and its project."""
    return json(location_of(await request.known_place()))


@routes.get("/api/agent", "v2.agent.list", answer=Located[NewerAgent])
async def list_newer_agents(request: Request[NoQuery, NoBody]) -> Response:
    """The agents of the directory, the default one first."""
    agents = shown_agents((await request.surroundings()).agents.list())
    return json(located(await request.known_place(), [newer_agent(each) for each in agents]))


@routes.get("/api/provider", "v2.provider.list", answer=Located[NewerProvider])
async def list_newer_providers(request: Request[NoQuery, NoBody]) -> Response:
    """The usable providers."""
    found = await _providers(request)
    return json(located(await request.known_place(), [newer_provider(each) for each in found]))


@routes.get("/api/model", "v2.model.list", answer=Located[NewerModel])
async def list_newer_models(request: Request[NoQuery, NoBody]) -> Response:
    """The usable models."""
    found = await _providers(request)
    models = [newer_model(model) for each in found for model in each.models.values()]
    return json(located(await request.known_place(), models))


@routes.get("/api/integration", "v2.integration.list", answer=Located[Integration])
async def list_integrations(request: Request[NoQuery, NoBody]) -> Response:
    """The providers that need a key, and the variables that may hold it."""
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
async def list_references(request: Request[NoQuery, NoBody]) -> Response:
    """Other folders that the configuration refers to: kedge knows none."""
    return json(located(await request.known_place(), []))


@routes.get("/api/command", "v2.command.list", answer=Located[dict[str, Any]])
async def list_newer_commands(request: Request[NoQuery, NoBody]) -> Response:
    """Commands as the second protocol has them: none. `GET /command` lists them."""
    return json(located(await request.known_place(), []))


@routes.get("/api/skill", "v2.skill.list", answer=Located[dict[str, Any]])
async def list_newer_skills(request: Request[NoQuery, NoBody]) -> Response:
    """Skills as the second protocol has them: none. `GET /skill` lists them."""
    return json(located(await request.known_place(), []))


@routes.get(
    "/api/fs/find", "v2.fs.find", query=FindQuery, answer=Located[FoundEntry], reads_files=True
)
async def find_entries(request: Request[FindQuery, NoBody]) -> Response:
    """Files and folders whose names match the query, the best match first."""
    asked = request.query
    kinds: tuple[Kind, ...] = ("file", "directory") if asked.type is None else (asked.type,)
    place = await request.known_place()
    limit = max(0, min(asked.limit, _MOST_FOUND))
    files = request.backend.engine.files
    found = await files.find_files(asked.query, limit=limit, kinds=kinds, directory=place.directory)
    return json(located(place, [_entry(path) for path in found]))


def _entry(path: str) -> FoundEntry:
    return FoundEntry(path=path, type="directory" if path.endswith("/") else "file")


async def _providers(request: Request[Any, NoBody]) -> list[ProviderInfo]:
    catalog = (await request.surroundings()).catalog
    return await asyncio.to_thread(shown_providers, catalog)
