"""Providers and their models as on the wire; the model layer talks to them."""

from typing import Any, Literal

from kedge.domain.values import Value


class Modalities(Value, frozen=True, kw_only=True):
    """The kinds of input or output of a model."""

    text: bool
    audio: bool
    image: bool
    video: bool
    pdf: bool


def modalities(
    *,
    text: bool = True,
    audio: bool = False,
    image: bool = False,
    video: bool = False,
    pdf: bool = False,
) -> Modalities:
    """Text and the given other kinds."""
    return Modalities(text=text, audio=audio, image=image, video=video, pdf=pdf)


class Capabilities(Value, frozen=True, kw_only=True):
    """What a model can do."""

    temperature: bool
    reasoning: bool
    attachment: bool
    toolcall: bool
    input: Modalities
    output: Modalities
    interleaved: Any


def capabilities(
    *,
    temperature: bool = True,
    reasoning: bool = False,
    attachment: bool = False,
    toolcall: bool = True,
    input: Modalities | None = None,
    output: Modalities | None = None,
    interleaved: Any = False,  # noqa: ANN401 - as on the wire
) -> Capabilities:
    """What most models can do, with the given differences."""
    return Capabilities(
        temperature=temperature,
        reasoning=reasoning,
        attachment=attachment,
        toolcall=toolcall,
        input=input or modalities(),
        output=output or modalities(),
        interleaved=interleaved,
    )


class CachePrice(Value, frozen=True, kw_only=True):
    """Dollars per million tokens that were read from or written to the provider's cache."""

    read: float
    write: float


class Price(Value, frozen=True, kw_only=True):
    """Dollars per million tokens."""

    input: float
    output: float
    cache: CachePrice


NO_PRICE = Price(input=0, output=0, cache=CachePrice(read=0, write=0))


class Limits(Value, frozen=True, kw_only=True):
    """Limits in tokens; 0 if unknown."""

    context: int
    input: int | None = None
    output: int


NO_LIMITS = Limits(context=0, output=0)


class ModelApi(Value, frozen=True, kw_only=True):
    """How to reach the model."""

    id: str
    url: str
    npm: str


class ModelInfo(Value, frozen=True, kw_only=True):
    """A model of a provider."""

    id: str
    providerID: str
    api: ModelApi
    name: str
    family: str | None = None
    capabilities: Capabilities
    cost: Price
    limit: Limits
    status: Literal["alpha", "beta", "deprecated", "active"]
    options: dict[str, Any]
    headers: dict[str, str]
    release_date: str
    variants: dict[str, dict[str, Any]] | None = None


def model_info(
    *,
    id: str,
    providerID: str,
    api: ModelApi,
    name: str,
    family: str | None = None,
    abilities: Capabilities | None = None,
    cost: Price = NO_PRICE,
    limit: Limits = NO_LIMITS,
    variants: dict[str, dict[str, Any]] | None = None,
) -> ModelInfo:
    """A model with only these facts known; the rest is default."""
    return ModelInfo(
        id=id,
        providerID=providerID,
        api=api,
        name=name,
        family=family,
        capabilities=abilities or capabilities(),
        cost=cost,
        limit=limit,
        status="active",
        options={},
        headers={},
        release_date="",
        variants=variants,
    )


class ProviderInfo(Value, frozen=True, kw_only=True):
    """A provider and its models; `key` is never sent to clients."""

    id: str
    name: str
    source: Literal["env", "config", "custom", "api"]
    env: list[str]
    key: str | None = None
    options: dict[str, Any]
    models: dict[str, ModelInfo]
