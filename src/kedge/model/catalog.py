"""The providers and models of a directory, from the configuration, the environment and the
registry.

catalog = Catalog(config, os.environ)
model = catalog.open(catalog.model(*catalog.default()))
...
await catalog.aclose()
"""

import asyncio
import difflib
import heapq
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from kedge.config.values import Config, ProviderConfig
from kedge.domain.errors import ModelNotFound
from kedge.domain.providers import Limits, ModelApi, ModelInfo, ProviderInfo, model_info
from kedge.model.endpoint import Endpoint, silence_of
from kedge.model.offline import OfflineModel, offline_info, offline_provider
from kedge.model.port import Model, ModelEvent, ModelRequest
from kedge.model.registry import (
    KNOWN,
    PROTOCOLS,
    KnownProvider,
    bare_model,
    configured_model,
    listed_model,
    listed_models,
    listed_names,
)

if TYPE_CHECKING:
    from kedge.model.pydantic_ai.client import Clients


class Connections:
    """A catalog's connections to its providers."""

    def __init__(self) -> None:
        self._clients: Clients | None = None

    async def clients(self) -> "Clients":
        """The clients; the libraries are imported in a thread, because that takes seconds."""
        if self._clients is None:
            await asyncio.to_thread(_load)
        # Another first request may have been faster.
        if self._clients is None:
            from kedge.model.pydantic_ai.client import Clients

            self._clients = Clients()
        return self._clients

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.aclose()


class RemoteModel:
    """A model behind an endpoint."""

    def __init__(
        self,
        info: ModelInfo,
        endpoint: Endpoint,
        connections: Connections,
        *,
        listed: tuple[str, str] | None = None,
    ) -> None:
        self.info = info
        self._endpoint = endpoint
        self._connections = connections
        self._listed = listed
        """The model's name in the public price list; None if the configuration has its price."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Send a request; leaving the block early cancels it."""
        clients = await self._connections.clients()
        from kedge.model.pydantic_ai.answer import answer

        asked = answer(request, self.info, self._endpoint, clients, self._listed)
        async with asked as events:
            yield events


def _load() -> None:
    import kedge.model.pydantic_ai.answer  # noqa: F401


_COMPATIBLE = "@ai-sdk/openai-compatible"
_NEAR = 3
_LIKELY = 20
_LONGEST_NAME = 200
_log = logging.getLogger(__name__)
_NOTHING = ProviderConfig()
_SECRET = ("apiKey", "headers")


class Catalog:
    """The models that can be used in one directory."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self._config = config
        self._environ = environ
        self._connections = Connections()
        self._providers: dict[str, ProviderInfo] | None = None

    def providers(self) -> list[ProviderInfo]:
        """The usable providers: those with a key, those that are configured, and the offline
        one."""
        return list(self._all().values())

    def model(self, provider_id: str, model_id: str) -> ModelInfo:
        """One model; raises `ModelNotFound`, which suggests similar names."""
        provider = self._all().get(provider_id)
        if provider is not None:
            if (info := provider.models.get(model_id)) is not None:
                return info
            if (info := self._unlisted(provider_id, model_id)) is not None:
                return info
        elif (info := self._keyless(provider_id, model_id)) is not None:
            return info
        raise ModelNotFound(provider_id, model_id, self._near(provider_id, model_id))

    def why_not(self, provider_id: str, model_id: str) -> str | None:
        """Why a model cannot be used, as far as that is known without a request; None if it can."""
        try:
            info = self.model(provider_id, model_id)
        except ModelNotFound as error:
            return str(error)
        if info.providerID == offline_info().providerID:
            return None
        return self._endpoint(info).problem()

    def default(self) -> tuple[str, str]:
        """The default provider and model: as configured, else of the first provider with a key."""
        if self._config.model:
            return _split(self._config.model)
        everything = self._all()
        for known in KNOWN.values():
            provider = everything.get(known.id)
            if provider is None or provider.key is None or known.default is None:
                continue
            if self._serves(known.id, known.default):
                return known.id, known.default
        for provider_id in self._config.provider:
            if provider_id in everything and (models := everything[provider_id].models):
                return provider_id, next(iter(models))
        offline = offline_info()
        return offline.providerID, offline.id

    @property
    def is_bare(self) -> bool:
        """Whether the offline model is the default only because there is no other."""
        offline = offline_info()
        return not self._config.model and self.default() == (offline.providerID, offline.id)

    def defaults(self) -> dict[str, str]:
        """The default model of each provider, the provider of the overall default first."""
        first, model = self.default()
        made = {first: model} if first in self._all() else {}
        for provider in self._all().values():
            known = KNOWN.get(provider.id)
            if known is not None and known.default and self._serves(known.id, known.default):
                made.setdefault(provider.id, known.default)
            elif provider.models:
                made.setdefault(provider.id, next(iter(provider.models)))
        return made

    def small(self, provider_id: str) -> ModelInfo | None:
        """A cheap model for titles and similar tasks: as configured, else one of the same
        provider."""
        if self._config.small_model:
            why = self.why_not(*_split(self._config.small_model))
            if why is None:
                return self.model(*_split(self._config.small_model))
            # A missing title is harmless, while an error here would prevent an answer.
            _log.warning("small_model of the configuration: %s", why)
        if provider_id == offline_info().providerID:
            return offline_info()
        known = KNOWN.get(provider_id)
        if known is None or known.small is None or not self._serves(provider_id, known.small):
            return None
        return self.model(provider_id, known.small)

    def open(self, info: ModelInfo) -> Model:
        """The model, ready for requests; the first one reports what is wrong with its provider."""
        if info.providerID == offline_info().providerID:
            return OfflineModel(info)
        return RemoteModel(
            info, self._endpoint(info), self._connections, listed=self._listed_price(info)
        )

    def key_variables(self) -> frozenset[str]:
        """The variables that hold or could hold providers' keys: the usual ones and those in the
        configuration."""
        known = {name for provider in KNOWN.values() for name in provider.env}
        named = {name for provider in self._config.provider.values() for name in provider.env or ()}
        return frozenset(known | named | {*self._config.key_variables})

    async def aclose(self) -> None:
        """Close the connections to all providers."""
        await self._connections.aclose()

    def _all(self) -> dict[str, ProviderInfo]:
        if self._providers is None:
            found = {id: self._provider(id) for id in {**KNOWN, **self._config.provider}}
            self._providers = {id: info for id, info in found.items() if info is not None}
            # Last, so that no other provider can take its name.
            offline = offline_provider(self._offline_limits())
            self._providers[offline.id] = offline
        return self._providers

    def _offline_limits(self) -> dict[str, Limits]:
        """The limits that the configuration gives to models of the offline provider."""
        config = self._config.provider.get(offline_info().providerID, _NOTHING)
        return {
            id: Limits(context=said.limit.context, input=said.limit.input, output=said.limit.output)
            for id, said in config.models.items()
            if said.limit is not None
        }

    def _is_enabled(self, provider_id: str) -> bool:
        enabled = self._config.enabled_providers
        if provider_id in self._config.disabled_providers:
            return False
        return enabled is None or provider_id in enabled

    def _provider(self, provider_id: str) -> ProviderInfo | None:
        known, config = KNOWN.get(provider_id), self._config.provider.get(provider_id)
        key = self._key(provider_id)
        # A server on the user's own machine exists only if the configuration or a key says so.
        if not self._is_enabled(provider_id) or (config is None and key is None):
            return None
        config = config or _NOTHING
        return ProviderInfo(
            id=provider_id,
            name=config.name or (known.name if known else provider_id),
            source="config" if provider_id in self._config.provider else "env",
            env=list(self._variables(provider_id)),
            key=key,
            options={name: config.options[name] for name in config.options if name not in _SECRET},
            models=self._models(provider_id, known, config),
        )

    def _models(
        self, provider_id: str, known: KnownProvider | None, config: ProviderConfig
    ) -> dict[str, ModelInfo]:
        models = listed_models(known) if known is not None else {}
        for model_id, said in config.models.items():
            base = models.get(model_id) or self._base(provider_id, said.id or model_id)
            base = msgspec.structs.replace(base, id=model_id)
            models[model_id] = configured_model(said, self._placed(base))
        return {
            model_id: self._placed(info)
            for model_id, info in models.items()
            if _is_wanted(model_id, config)
        }

    def _base(self, provider_id: str, model_id: str) -> ModelInfo:
        known = KNOWN.get(provider_id)
        if known is not None:
            return _known_model(known, model_id) or bare_model(known, model_id)
        api = ModelApi(id=model_id, url="", npm=_COMPATIBLE)
        return model_info(id=model_id, providerID=provider_id, api=api, name=model_id)

    def _placed(self, info: ModelInfo) -> ModelInfo:
        """The model with the address from its provider's configuration."""
        config = self._config.provider.get(info.providerID, _NOTHING)
        known = KNOWN.get(info.providerID)
        usual = (known.url, known.npm) if known else ("", _COMPATIBLE)
        if (info.api.url, info.api.npm) != usual:
            return info
        url = config.options.get("baseURL") or config.api or usual[0]
        api = ModelApi(id=info.api.id, url=str(url), npm=config.npm or usual[1])
        return msgspec.structs.replace(info, api=api)

    def _unlisted(self, provider_id: str, model_id: str) -> ModelInfo | None:
        known, config = KNOWN.get(provider_id), self._config.provider.get(provider_id, _NOTHING)
        if known is None or not _is_wanted(model_id, config):
            return None
        info = _known_model(known, model_id)
        return None if info is None else self._placed(info)

    def _keyless(self, provider_id: str, model_id: str) -> ModelInfo | None:
        # The request will say which variable to set, which is more helpful than "not found".
        known = KNOWN.get(provider_id)
        if known is None or not self._is_enabled(provider_id):
            return None
        return _known_model(known, model_id)

    def _serves(self, provider_id: str, model_id: str) -> bool:
        provider = self._all().get(provider_id)
        if provider is None:
            return False
        return model_id in provider.models or self._unlisted(provider_id, model_id) is not None

    def _near(self, provider_id: str, model_id: str) -> list[str]:
        """Similar names, first among usable models, then among those of well-known providers."""
        own = [(each.id, model) for each in self._all().values() for model in each.models]
        known = [
            (each.id, model)
            for each in KNOWN.values()
            if each.id not in self._all() and self._is_enabled(each.id)
            for model in listed_names(each)
        ]
        found: dict[str, None] = {}
        for names in (own, known):
            found |= dict.fromkeys(_similar(provider_id, model_id, names))
        return list(found)[:_NEAR]

    def _variables(self, provider_id: str) -> tuple[str, ...]:
        config, known = self._config.provider.get(provider_id), KNOWN.get(provider_id)
        if config is not None and config.env is not None:
            return config.env
        return known.env if known is not None else ()

    def _key(self, provider_id: str) -> str | None:
        options = self._config.provider.get(provider_id, _NOTHING).options
        if isinstance(key := options.get("apiKey"), str) and key:
            return key
        found = (self._environ.get(name) for name in self._variables(provider_id))
        return next(filter(None, found), None)

    def _endpoint(self, info: ModelInfo) -> Endpoint:
        provider_id = info.providerID
        config, known = self._config.provider.get(provider_id, _NOTHING), KNOWN.get(provider_id)
        return Endpoint(
            provider_id=provider_id,
            protocol=PROTOCOLS.get(info.api.npm),
            npm=info.api.npm,
            url=info.api.url or None,
            key=self._key(provider_id),
            key_variables=self._variables(provider_id),
            # A server of the user's own may need no key.
            needs_key=known.needs_key and info.api.url == known.url if known else False,
            headers=_headers(config.options),
            silence=silence_of(config.options),
            untrusted=self._untrusted(provider_id),
        )

    def _untrusted(self, provider_id: str) -> tuple[str, ...]:
        """The notices about what untrusted files say about a provider."""
        return tuple(
            each.notice
            for each in self._config.untrusted
            if each.key[:2] == ("provider", provider_id) and each.key[2:3] not in ((), ("models",))
        )

    def _listed_price(self, info: ModelInfo) -> tuple[str, str] | None:
        known = KNOWN.get(info.providerID)
        if known is None or known.listed_as is None:
            return None
        models = self._config.provider.get(info.providerID, _NOTHING).models
        if info.id in models and models[info.id].cost is not None:
            return None
        return known.listed_as, info.api.id


def _known_model(known: KnownProvider, model_id: str) -> ModelInfo | None:
    found = listed_model(known, model_id)
    if found is None and known.any_model and model_id:
        return bare_model(known, model_id)
    return found


def _similar(provider_id: str, model_id: str, names: Sequence[tuple[str, str]]) -> list[str]:
    """Names that are similar: the same model elsewhere, then names with a similar spelling."""
    wanted = f"{provider_id}/{model_id}"
    if len(wanted) > _LONGEST_NAME:
        return []
    whole = {f"{provider}/{model}": model for provider, model in names}
    same = [name for name, model in whole.items() if model_id in (model, model.rpartition("/")[2])]
    # Comparing with each of a thousand names would block the event loop.
    pieces = _pieces(wanted)
    likely = heapq.nlargest(_LIKELY, whole, key=lambda name: len(pieces & _pieces(name)))
    return [*same, *difflib.get_close_matches(wanted, likely, n=_NEAR)]


def _pieces(name: str) -> set[str]:
    return {name[at : at + 2] for at in range(len(name) - 1)}


def _is_wanted(model_id: str, config: ProviderConfig) -> bool:
    if config.blacklist is not None and model_id in config.blacklist:
        return False
    return config.whitelist is None or model_id in config.whitelist


def _split(name: str) -> tuple[str, str]:
    provider_id, _, model_id = name.partition("/")
    return provider_id, model_id


def _headers(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headers = options.get("headers")
    if not isinstance(headers, Mapping):
        return ()
    return tuple((str(name), str(value)) for name, value in headers.items())
