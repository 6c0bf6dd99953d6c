"""What a configuration says of a model, over what is known of it anyway."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kedge.config.values import ModelConfig
from kedge.domain.providers import (
    CachePrice,
    Capabilities,
    Limits,
    Modalities,
    ModelApi,
    ModelInfo,
    Price,
)


def configured_model(config: ModelConfig, base: ModelInfo) -> ModelInfo:
    """`base` with all that the configuration says."""
    endpoint = config.provider
    changes: dict[str, Any] = {
        "api": ModelApi(
            id=config.id or base.api.id,
            url=(endpoint.api if endpoint else None) or base.api.url,
            npm=(endpoint.npm if endpoint else None) or base.api.npm,
        ),
        "capabilities": _capabilities(config, base.capabilities),
        "options": {**base.options, **config.options},
        "headers": {**base.headers, **config.headers},
        "variants": _variants(config.variants, base.variants),
    }
    for name in ("name", "family", "release_date", "status"):
        if (value := getattr(config, name)) is not None:
            changes[name] = value
    if config.limit is not None:
        limit = config.limit
        changes["limit"] = Limits(context=limit.context, input=limit.input, output=limit.output)
    if config.cost is not None:
        cost = config.cost
        cache = CachePrice(read=cost.cache_read, write=cost.cache_write)
        changes["cost"] = Price(input=cost.input, output=cost.output, cache=cache)
    return msgspec.structs.replace(base, **changes)


def _capabilities(config: ModelConfig, base: Capabilities) -> Capabilities:
    said = {
        "temperature": config.temperature,
        "reasoning": config.reasoning,
        "attachment": config.attachment,
        "toolcall": config.tool_call,
        "interleaved": config.interleaved,
    }
    changes: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    taken = config.modalities.input if config.modalities else None
    given = config.modalities.output if config.modalities else None
    if taken is not None:
        changes["input"] = _modalities(taken)
    elif config.attachment:
        # Who says that files may be attached means at least these.
        changes["input"] = msgspec.structs.replace(base.input, image=True, pdf=True)
    if given is not None:
        changes["output"] = _modalities(given)
    return msgspec.structs.replace(base, **changes)


def _modalities(names: tuple[str, ...]) -> Modalities:
    every = ("text", "audio", "image", "video", "pdf")
    return msgspec.convert({name: name in names for name in every}, Modalities)


def _variants(
    said: Mapping[str, dict[str, Any]], base: dict[str, dict[str, Any]] | None
) -> dict[str, dict[str, Any]] | None:
    merged = {**(base or {}), **said}
    kept = {
        name: {key: value for key, value in options.items() if key != "disabled"}
        for name, options in merged.items()
        if not options.get("disabled")
    }
    return kept or None
