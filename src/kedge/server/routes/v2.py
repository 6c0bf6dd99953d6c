"""The routes below `/api` that newer clients request when they start."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec

from kedge.agent.skills import skills_of
from kedge.domain.agents import AgentInfo
from kedge.domain.commands import Command, Skill
from kedge.domain.permissions import PermissionAction
from kedge.domain.providers import Limits, Modalities, ModelInfo, Price, ProviderInfo
from kedge.domain.sessions import ModelRef
from kedge.engine.engine import Place
from kedge.engine.files.find import Kind
from kedge.model.registry import KNOWN
from kedge.server.errors import ProviderNotFound
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, json
from kedge.server.router import Routes
from kedge.server.routes.agents import shown_agents
from kedge.server.routes.models import shown_providers

T = TypeVar("T")
Identified = TypeVar("Identified", "ProviderInfo", "Integration")


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


class LocatedOne(msgspec.Struct, Generic[T], frozen=True):
    """One thing, and the location that it is about."""

    location: Location
    data: T


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


class NewerCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named prompt with places for arguments."""

    name: str
    template: str
    description: str | None = None
    agent: str | None = None
    model: ModelRef | None = None
    subtask: bool | None = None


class NewerSkill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Instructions for a kind of work."""

    name: str
    description: str | None = None
    slash: bool
    """Whether it can be run as a command; another command may have its name."""
    location: str
    content: str


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


def newer_command(command: Command) -> NewerCommand:
    """A command in v2's form."""
    provider, _, model = (command.model or "").partition("/")
    return NewerCommand(
        name=command.name,
        template=command.template,
        description=command.description,
        agent=command.agent,
        model=ModelRef(id=model, providerID=provider) if model else None,
        subtask=command.subtask,
    )


def newer_skill(skill: Skill, commands: Sequence[Command]) -> NewerSkill:
    """A skill in v2's form."""
    return NewerSkill(
        name=skill.name,
        description=skill.description,
        slash=any(each.name == skill.name and each.source == "skill" for each in commands),
        location=skill.location,
        content=skill.content,
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


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which folder."""

    path: str = ""


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


@routes.get("/api/provider/{providerID}", "v2.provider.get", answer=LocatedOne[NewerProvider])
async def get_newer_provider(request: Request[NoQuery, NoBody]) -> Response:
    """One usable provider."""
    one = _of_id(await _providers(request), request.path["providerID"])
    return json(LocatedOne(location_of(await request.known_place()), newer_provider(one)))


@routes.get("/api/model", "v2.model.list", answer=Located[NewerModel])
async def list_newer_models(request: Request[NoQuery, NoBody]) -> Response:
    """The usable models."""
    found = await _providers(request)
    models = [newer_model(model) for each in found for model in each.models.values()]
    return json(located(await request.known_place(), models))


@routes.get("/api/integration", "v2.integration.list", answer=Located[Integration])
async def list_integrations(request: Request[NoQuery, NoBody]) -> Response:
    """The providers that need a key, and the variables that may hold it."""
    found = _integrations(request.backend.agent.environ)
    return json(located(await request.known_place(), found))


@routes.get(
    "/api/integration/{integrationID}", "v2.integration.get", answer=LocatedOne[Integration]
)
async def get_integration(request: Request[NoQuery, NoBody]) -> Response:
    """One provider that needs a key."""
    found = _integrations(request.backend.agent.environ)
    one = _of_id(found, request.path["integrationID"])
    return json(LocatedOne(location_of(await request.known_place()), one))


def _integrations(environ: Mapping[str, str]) -> list[Integration]:
    return [
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


@routes.get("/api/reference", "v2.reference.list", answer=Located[dict[str, Any]])
async def list_references(request: Request[NoQuery, NoBody]) -> Response:
    """Other folders that the configuration refers to: kedge knows none."""
    return json(located(await request.known_place(), []))


@routes.get("/api/command", "v2.command.list", answer=Located[NewerCommand])
async def list_newer_commands(request: Request[NoQuery, NoBody]) -> Response:
    """The commands of the directory, without skills."""
    commands = (await request.surroundings()).commands.list()
    found = [newer_command(each) for each in commands if each.source != "skill"]
    return json(located(await request.known_place(), found))


@routes.get("/api/skill", "v2.skill.list", answer=Located[NewerSkill])
async def list_newer_skills(request: Request[NoQuery, NoBody]) -> Response:
    """The skills of the directory."""
    around = await request.surroundings()
    commands = around.commands.list()
    found = [newer_skill(each, commands) for each in skills_of(around.config)]
    return json(located(await request.known_place(), found))


@routes.get(
    "/api/fs/list", "v2.fs.list", query=ListQuery, answer=Located[FoundEntry], reads_files=True
)
async def list_entries(request: Request[ListQuery, NoBody]) -> Response:
    """The files and folders in a folder, folders first."""
    place = await request.known_place()
    files, path = request.backend.engine.files, request.query.path or "."
    found = await files.list_folder(path, directory=place.directory)
    return json(located(place, [FoundEntry(path=each.path, type=each.type) for each in found]))


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


def _of_id(found: Iterable[Identified], id: str) -> Identified:
    for each in found:
        if each.id == id:
            return each
    raise ProviderNotFound(id)


async def _providers(request: Request[Any, NoBody]) -> list[ProviderInfo]:
    catalog = (await request.surroundings()).catalog
    return await asyncio.to_thread(shown_providers, catalog)
