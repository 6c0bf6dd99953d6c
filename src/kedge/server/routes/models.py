"""Routes for the providers and models of a directory; they never show a key."""

import asyncio
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from kedge.config.display import redacted
from kedge.domain.providers import ModelApi, ModelInfo, ProviderInfo
from kedge.model.catalog import Catalog
from kedge.model.registry import KNOWN
from kedge.server.requests import NoBody, NoQuery, Request
from kedge.server.responses import Response, json
from kedge.server.router import Routes

routes = Routes()

# A catalog does not change, and a terminal UI asks for it four times at its start.
_SHOWN: WeakKeyDictionary[Catalog, list[ProviderInfo]] = WeakKeyDictionary()


class Providers(msgspec.Struct, frozen=True, kw_only=True):
    """The usable providers, the one of the default model first."""

    providers: list[ProviderInfo]
    default: dict[str, str]
    """The default model of each provider."""


class AllProviders(msgspec.Struct, frozen=True, kw_only=True):
    """All providers; those that lack a key are listed without models."""

    all: list[ProviderInfo]
    default: dict[str, str]
    connected: list[str]


class LoginMethod(msgspec.Struct, frozen=True):
    """A way to log in to a provider."""

    type: Literal["oauth", "api"]
    label: str


@routes.get("/config/providers", "config.providers", answer=Providers)
async def list_connected_providers(request: Request[NoQuery, NoBody]) -> Response:
    """The usable providers with their models."""
    catalog = (await request.surroundings()).catalog
    return await asyncio.to_thread(_connected, catalog)


def _connected(catalog: Catalog) -> Response:
    return json(Providers(providers=shown_providers(catalog), default=catalog.defaults()))


@routes.get("/provider", "provider.list", answer=AllProviders)
async def list_providers(request: Request[NoQuery, NoBody]) -> Response:
    """The usable providers, and those that only lack a key."""
    catalog = (await request.surroundings()).catalog
    return await asyncio.to_thread(_all, catalog)


def _all(catalog: Catalog) -> Response:
    found = shown_providers(catalog)
    connected = [each.id for each in found]
    return json(
        AllProviders(
            all=[*found, *_keyless(connected)], default=catalog.defaults(), connected=connected
        )
    )


@routes.get("/provider/auth", "provider.auth", answer=dict[str, list[LoginMethod]])
async def list_logins(request: Request[NoQuery, NoBody]) -> Response:
    """How each provider gets its key: from a variable or the configuration, as kedge stores
    none."""
    catalog = (await request.surroundings()).catalog
    found = await asyncio.to_thread(catalog.providers)
    every = [*found, *_keyless([each.id for each in found])]
    return json({each.id: [_login(each)] for each in every})


def _login(provider: ProviderInfo) -> LoginMethod:
    # Not as "api": clients would then ask for the key, and not show that it was not stored.
    if provider.env:
        return LoginMethod("oauth", f"Set {provider.env[0]} and start kedge again")
    return LoginMethod("oauth", "Needs no key but what the configuration says")


def shown_providers(catalog: Catalog) -> list[ProviderInfo]:
    """The usable providers without secrets, that of the default model first.

    The first call reads the list of models, which takes a while: run it in a thread.
    """
    if (known := _SHOWN.get(catalog)) is not None:
        return known
    first = catalog.default()[0]
    found = sorted(catalog.providers(), key=lambda each: each.id != first)
    _SHOWN[catalog] = shown = [_shown(each) for each in found]
    return shown


def _shown(provider: ProviderInfo) -> ProviderInfo:
    return msgspec.structs.replace(
        provider,
        key=None,
        options=_shown_options(provider.options),
        models={id: _shown_model(model) for id, model in provider.models.items()},
    )


def _shown_options(options: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = redacted({"provider": {"it": {"options": options}}})
    found: dict[str, Any] = shown["provider"]["it"]["options"]
    return found


def _shown_model(model: ModelInfo) -> ModelInfo:
    shown = redacted({"url": model.api.url, "options": model.options, "headers": model.headers})
    return msgspec.structs.replace(
        model,
        # OpenCode always sends a family.
        family=model.family or "",
        api=ModelApi(id=model.api.id, url=shown["url"], npm=model.api.npm),
        options=shown["options"],
        headers=shown["headers"],
        variants=redacted(model.variants or {}),
    )


def _keyless(connected: list[str]) -> list[ProviderInfo]:
    return [
        ProviderInfo(
            id=known.id,
            name=known.name,
            source="custom",
            env=list(known.env),
            options={},
            models={},
        )
        for known in KNOWN.values()
        if known.needs_key and known.id not in connected
    ]
