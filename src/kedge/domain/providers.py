"""Providers and their models as on the wire; talking to them is the model layer's concern."""

from typing import Any, Literal

from kedge.domain.values import Value


class Modalities(Value, frozen=True, kw_only=True):
    """What a model takes in or gives out."""

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
    """Text, and what else is said."""
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
    """What most models can do, and what else is said."""
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
    """How many tokens fit; 0 is unknown."""

    context: int
    input: int | None = None
    output: int


NO_LIMITS = Limits(context=0, output=0)


class ModelApi(Value, frozen=True, kw_only=True):
    """How the model is reached."""

    id: str
    url: str
    npm: str


class ModelInfo(Value, frozen=True, kw_only=True):
    """One model of a provider."""

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
    """A model of which only this is known."""
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
