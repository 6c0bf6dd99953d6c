"""Agents, models and providers in the words of OpenCode's newer routes, which begin with `/api`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

import msgspec

from kedge.domain.agents import AgentInfo
from kedge.domain.permissions import PermissionAction
from kedge.domain.providers import Limits, Modalities, ModelInfo, Price, ProviderInfo
from kedge.domain.sessions import ModelRef
from kedge.engine.engine import Place

T = TypeVar("T")


class LocationProject(msgspec.Struct, frozen=True):
    """The project of a place, and where it is."""

    id: str
    directory: str


class Location(msgspec.Struct, frozen=True):
    """The place that an answer is about."""

    directory: str
    project: LocationProject


class Located(msgspec.Struct, Generic[T], frozen=True):
    """A list, and the place that it is about."""

    location: Location
    data: Sequence[T]


class NewerRule(msgspec.Struct, frozen=True):
    """A permission rule."""

    action: str
    resource: str
    effect: PermissionAction


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """What goes along with each request to a model."""

    headers: dict[str, str]
    body: dict[str, Any]


_NOTHING_SENT = Sent(headers={}, body={})


class NewerAgent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody who answers prompts."""

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
    """How a model or provider is reached."""

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
    """A way to ask a model."""

    id: str
    headers: dict[str, str]
    body: dict[str, Any]


class Released(msgspec.Struct, frozen=True):
    """When a model came out, in milliseconds since the epoch; 0 if that is not known."""

    released: int


class NewerModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model of a provider."""

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
    """A list about a place."""
    return Located(location_of(place), data)


def location_of(place: Place) -> Location:
    """A place."""
    return Location(place.directory, LocationProject(place.project.id, place.project.worktree))


def newer_agent(agent: AgentInfo) -> NewerAgent:
    """An agent."""
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
    """A provider; it is where its first model is."""
    first = next(iter(provider.models.values()), None)
    npm, url = (first.api.npm, first.api.url) if first else ("", "")
    return NewerProvider(
        id=provider.id,
        name=provider.name,
        api=NewerApi(type="aisdk", package=npm, url=url),
        request=_NOTHING_SENT,
    )


def newer_model(model: ModelInfo) -> NewerModel:
    """A model."""
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
