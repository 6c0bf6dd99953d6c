"""Which models there are follows from the configuration, the environment and what is known."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from kedge.config.values import Config, CostConfig, LimitConfig, ModelConfig, ProviderConfig
from kedge.domain.providers import NO_PRICE, ModelInfo, ProviderInfo
from kedge.errors import ModelNotFound
from kedge.model.catalog import Catalog
from kedge.model.port import ModelFailure
from kedge.model.registry import KNOWN, KnownProvider
from tests.model.scene import READ, ask, asking, text_of
from tests.support.model_server import ModelServer, Text, Usage, Wait, answer

ANTHROPIC_KEY = {"ANTHROPIC_API_KEY": "sk-ant-1"}


def catalog(environ: dict[str, str] | None = None, **config: Any) -> Catalog:  # noqa: ANN401
    """A catalog with this configuration."""
    return Catalog(Config(**config), environ or {})


def provider(**said: Any) -> dict[str, ProviderConfig]:  # noqa: ANN401
    """A configuration of one provider, `own`."""
    return {"own": ProviderConfig(**said)}


def ids(listed: list[ProviderInfo]) -> list[str]:
    """The providers' ids."""
    return [one.id for one in listed]


def test_nothing_configured_leaves_the_offline_model() -> None:
    """Without a key and a configuration there is still a model, and it is the default."""
    empty = catalog()
    assert ids(empty.providers()) == ["kedge"]
    assert empty.default() == ("kedge", "offline")
    small = empty.small("kedge")
    assert small is not None
    assert small.id == "offline"


@pytest.mark.parametrize(
    "known", [one for one in KNOWN.values() if one.env], ids=lambda one: one.id
)
def test_a_key_in_the_environment_is_enough(known: KnownProvider) -> None:
    """Each well-known provider is there with its key, has a default that it knows, and prices."""
    for variable in known.env:
        found = catalog({variable: "key"})
        assert ids(found.providers()) == [known.id, "kedge"]
        assert found.default() == (known.id, known.default)
        info = found.model(*found.default())
        assert (info.api.url, info.api.npm) == (known.url, known.npm)
        assert info.cost.input > 0
        if known.small is not None:
            small = found.small(known.id)
            assert small is not None
            assert small.cost.input <= info.cost.input


def test_an_empty_key_is_none() -> None:
    """A variable that is set to nothing is not a key."""
    assert ids(catalog({"OPENAI_API_KEY": ""}).providers()) == ["kedge"]


def test_models_are_listed_without_the_network() -> None:
    """Known models have names, limits and prices."""
    anthropic = catalog(ANTHROPIC_KEY).providers()[0]
    info = anthropic.models["claude-sonnet-5-5"]
    assert info.name == "Claude Sonnet 5.5"
    assert info.limit.context == 1_000_000
    assert info.cost.cache.read > 0
    assert info.capabilities.input.image
    assert info.variants is not None
    assert info.variants["high"] == {"effort": "high"}


def test_a_dated_id_is_the_same_model() -> None:
    """Ids with a date, which providers document, are known too."""
    info = catalog(ANTHROPIC_KEY).model("anthropic", "claude-sonnet-4-5-20250929")
    assert info.id == "claude-sonnet-4-5-20250929"
    assert info.cost.input == 3


def test_the_configured_model_is_the_default() -> None:
    """`model` is provider and model, and the model's id may have slashes."""
    found = catalog(ANTHROPIC_KEY, model="openrouter/meta-llama/llama-3")
    assert found.default() == ("openrouter", "meta-llama/llama-3")


def test_the_configured_small_model() -> None:
    """`small_model` may be of another provider."""
    found = catalog({**ANTHROPIC_KEY, "OPENAI_API_KEY": "k"}, small_model="openai/gpt-5-nano")
    small = found.small("anthropic")
    assert small is not None
    assert (small.providerID, small.id) == ("openai", "gpt-5-nano")


def test_a_small_model_that_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    """It is said in the log, and a title comes from a model that is there."""
    small = catalog(ANTHROPIC_KEY, small_model="anthropic/nope").small("anthropic")
    assert small is not None
    assert small.id == "claude-haiku-5-5"
    assert "anthropic/nope" in caplog.text


def test_a_provider_of_ones_own_is_the_default_if_it_is_the_only_one() -> None:
    """Who configures one provider with one model wants it."""
    found = catalog(
        provider=provider(options={"baseURL": "http://x/v1"}, models={"m": ModelConfig()})
    )
    assert found.default() == ("own", "m")
    assert found.small("own") is None


def test_what_a_configuration_says_of_a_model() -> None:
    """Everything that OpenCode's users write down for a model is in its description."""
    said = ModelConfig(
        id="real-name",
        name="Mine",
        limit=LimitConfig(context=1000, output=100),
        cost=CostConfig(input=1, output=2, cache_read=3, cache_write=4),
        reasoning=True,
        attachment=True,
        temperature=False,
        options={"a": 1},
        headers={"h": "v"},
        variants={"fast": {"x": 1}, "slow": {"disabled": True}},
    )
    own = provider(npm="@ai-sdk/anthropic", name="Own", options={"baseURL": "http://x/v1"})
    own = {"own": msgspec.structs.replace(own["own"], models={"m": said})}
    info = catalog(provider=own).model("own", "m")
    assert (info.id, info.api.id, info.name) == ("m", "real-name", "Mine")
    assert (info.api.url, info.api.npm) == ("http://x/v1", "@ai-sdk/anthropic")
    assert (info.limit.context, info.limit.output) == (1000, 100)
    assert (info.cost.output, info.cost.cache.write) == (2, 4)
    assert info.capabilities.reasoning
    assert not info.capabilities.temperature
    assert info.capabilities.input.pdf
    assert (info.options, info.headers) == ({"a": 1}, {"h": "v"})
    assert info.variants == {"fast": {"x": 1}}


def test_a_configuration_of_a_known_model_adds_to_what_is_known() -> None:
    """Only what is said changes; a new name for a known model keeps its price."""
    models = {"claude-sonnet-5-5": ModelConfig(name="S"), "s": ModelConfig(id="claude-sonnet-5-5")}
    found = catalog(ANTHROPIC_KEY, provider={"anthropic": ProviderConfig(models=models)})
    plain = catalog(ANTHROPIC_KEY).model("anthropic", "claude-sonnet-5-5")
    assert found.model("anthropic", "claude-sonnet-5-5") == msgspec.structs.replace(plain, name="S")
    renamed = found.model("anthropic", "s")
    assert (renamed.api.id, renamed.cost) == ("claude-sonnet-5-5", plain.cost)


def test_a_base_url_holds_for_all_models_of_a_provider() -> None:
    """A proxy for a known provider serves all its models."""
    own = {"anthropic": ProviderConfig(options={"baseURL": "http://proxy/v1", "apiKey": "k"})}
    info = catalog(provider=own).model("anthropic", "claude-haiku-5-5")
    assert info.api.url == "http://proxy/v1"


def test_models_can_be_chosen_and_left_out() -> None:
    """A whitelist or a blacklist decides which models there are."""
    chosen = ProviderConfig(whitelist=("claude-haiku-5-5",))
    left_out = ProviderConfig(blacklist=("claude-sonnet-5-5",))
    for said in (chosen, left_out):
        found = catalog(ANTHROPIC_KEY, provider={"anthropic": said})
        assert found.model("anthropic", "claude-haiku-5-5").id == "claude-haiku-5-5"
        with pytest.raises(ModelNotFound):
            found.model("anthropic", "claude-sonnet-5-5")


def test_providers_can_be_switched_off_and_on() -> None:
    """`disabled_providers` and `enabled_providers` decide, the offline model always stays."""
    keys = {**ANTHROPIC_KEY, "OPENAI_API_KEY": "k"}
    assert ids(catalog(keys, disabled_providers=("openai",)).providers()) == ["anthropic", "kedge"]
    assert ids(catalog(keys, enabled_providers=("openai",)).providers()) == ["openai", "kedge"]
    with pytest.raises(ModelNotFound):
        catalog(keys, disabled_providers=("openai",)).model("openai", "gpt-5")


def test_an_unknown_model_names_similar_ones() -> None:
    """A typing mistake is answered with what was probably meant."""
    with pytest.raises(ModelNotFound) as caught:
        catalog(ANTHROPIC_KEY).model("anthropic", "claude-sonet-5-5")
    assert "anthropic/claude-sonnet-5-5" in caught.value.near
    assert "did you mean anthropic/claude-sonnet-5-5" in str(caught.value)


@pytest.mark.parametrize("name", ["nope/nope", "/", "", "nope", "anthropic/", "kedge/other"])
def test_nonsense_is_not_found(name: str) -> None:
    """Whatever is written as a model, it is found or not found."""
    found = catalog(ANTHROPIC_KEY, model=name)
    if name:
        with pytest.raises(ModelNotFound):
            found.model(*found.default())


def test_servers_of_ones_own_have_any_model() -> None:
    """What is on somebody's Ollama is theirs to know."""
    found = catalog(provider={"ollama": ProviderConfig()})
    info = found.model("ollama", "qwen3:8b")
    assert info.api.url == "http://127.0.0.1:11434/v1"
    assert info.cost == NO_PRICE


async def test_a_missing_key_says_which_variable_to_set() -> None:
    """Asking without a key fails with what to do about it, and reaches no network."""
    found = catalog(model="anthropic/claude-sonnet-5-5")
    model = found.open(found.model(*found.default()))
    with pytest.raises(ModelFailure) as caught:
        await ask(model)
    failure = caught.value.failure
    assert failure.name == "ProviderAuthError"
    assert "ANTHROPIC_API_KEY" in failure.data["message"]
    assert "provider.anthropic.options.apiKey" in failure.data["message"]
    await found.aclose()


async def test_a_package_that_kedge_does_not_speak() -> None:
    """An npm package of another kind is named, with where to look."""
    found = catalog(provider=provider(npm="@ai-sdk/cohere", models={"m": ModelConfig()}))
    with pytest.raises(ModelFailure, match="@ai-sdk/cohere"):
        await ask(found.open(found.model("own", "m")))


@pytest.mark.parametrize("url", ["", "example.org/v1", "file:///etc/passwd", "javascript:alert(1)"])
async def test_an_address_that_is_none(url: str) -> None:
    """Without a proper address nothing is sent anywhere, and the key to set is named."""
    options = {"baseURL": url, "apiKey": "for nobody else"}
    found = catalog(provider=provider(options=options, models={"m": ModelConfig()}))
    with pytest.raises(ModelFailure, match=r"provider\.own\.options\.baseURL"):
        await ask(found.open(found.model("own", "m")))


def test_nobody_can_take_the_offline_models_name() -> None:
    """A provider that is configured as `kedge` is not asked instead of the offline model."""
    found = catalog(provider={"kedge": ProviderConfig(models={"offline": ModelConfig(name="x")})})
    assert found.model("kedge", "offline").api.npm == "kedge"


def test_the_offline_model_can_have_limits() -> None:
    """And others like it beside it, to try what a real model does with a full context."""
    limit = LimitConfig(context=9000, output=1000)
    models = {"small": ModelConfig(limit=limit), "other": ModelConfig(name="x")}
    found = catalog(provider={"kedge": ProviderConfig(models=models)})
    small = found.model("kedge", "small")
    assert (small.limit.context, small.api.npm) == (9000, "kedge")
    assert found.model("kedge", "offline").limit.context == 0
    with pytest.raises(ModelNotFound):
        found.model("kedge", "other")


def test_secrets_are_not_listed() -> None:
    """Options are shown to clients, the key and the headers in them are not."""
    options = {"apiKey": "k", "headers": {"a": "b"}, "baseURL": "http://x"}
    listed = catalog(provider=provider(options=options)).providers()[0]
    assert listed.options == {"baseURL": "http://x"}


async def test_the_key_is_the_configured_one_then_the_environments() -> None:
    """`options.apiKey` wins over the variables, which `env` may name."""
    async with ModelServer(lambda _: answer(Text.of("x"))) as server:
        for options, expected in (({}, "from-env"), ({"apiKey": "from-config"}, "from-config")):
            own = provider(
                env=("MY_KEY",),
                options={"baseURL": server.url, **options},
                models={"m": ModelConfig()},
            )
            found = catalog({"MY_KEY": "from-env"}, provider=own)
            await ask(found.open(found.model("own", "m")))
            await found.aclose()
            assert server.requests[-1].headers["authorization"] == f"Bearer {expected}"


async def test_headers_of_a_provider_are_sent() -> None:
    """`options.headers` go with every request."""
    async with ModelServer([answer(Text.of("x"))]) as server:
        options = {"baseURL": server.url, "headers": {"x-org": "us"}}
        found = catalog(provider=provider(options=options, models={"m": ModelConfig()}))
        await ask(found.open(found.model("own", "m")))
        await found.aclose()
        assert server.requests[0].headers["x-org"] == "us"


@pytest.mark.parametrize("npm", ["@ai-sdk/openai-compatible", "@ai-sdk/anthropic"])
async def test_silence_counts_as_lost(npm: str) -> None:
    """`options.timeout` is how long, in milliseconds, a provider may say nothing."""
    async with ModelServer([answer(Text.of("x"), Wait())]) as server:
        options = {"baseURL": server.url, "timeout": 50}
        found = catalog(provider=provider(npm=npm, options=options, models={"m": ModelConfig()}))
        with pytest.raises(ModelFailure) as caught:
            await ask(found.open(found.model("own", "m")))
        await found.aclose()
    assert caught.value.retryable
    assert "fell silent" in caught.value.failure.data["message"]


async def test_a_price_of_the_public_list() -> None:
    """Where the configuration has no price, the list has one, also for long prompts."""
    usage = Usage(input=1_000_000, output=0)
    async with ModelServer([answer(Text.of("x"), usage=usage)]) as server:
        options = {"baseURL": server.url, "apiKey": "k"}
        found = catalog(provider={"anthropic": ProviderConfig(options=options)})
        model = found.open(found.model("anthropic", "claude-haiku-5-5"))
        events = await ask(model, asking())
        await found.aclose()
    # Dearer than the price that is shown, which is for short prompts.
    assert getattr(events[-1], "cost", 0) > model.info.cost.input


async def test_a_closed_catalog_can_be_asked_again() -> None:
    """Closing ends connections; who asks again opens new ones."""
    async with ModelServer(lambda _: answer(Text.of("x"))) as server:
        own = provider(options={"baseURL": server.url}, models={"m": ModelConfig()})
        found = catalog(provider=own)
        model = found.open(found.model("own", "m"))
        for _ in range(2):
            await ask(model)
            await found.aclose()
        assert server.connections == 2


def test_descriptions_survive_json() -> None:
    """What the catalog lists can be sent to clients."""
    for one in catalog(ANTHROPIC_KEY).providers():
        for info in one.models.values():
            assert msgspec.json.decode(msgspec.json.encode(info), type=ModelInfo) == info


def test_the_libraries_are_imported_when_a_model_is_asked() -> None:
    """Making a catalog and finding the default must stay quick."""
    code = (
        "import sys\n"
        "from kedge.config.values import Config\n"
        "from kedge.model.catalog import Catalog\n"
        "found = Catalog(Config(), {})\n"
        "found.open(found.model(*found.default()))\n"
        "heavy = {'pydantic_ai', 'openai', 'anthropic', 'google.genai', 'genai_prices', 'httpx2'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("known", list(KNOWN.values()), ids=lambda one: one.id)
async def test_every_known_provider_can_be_asked(known: KnownProvider) -> None:
    """Default and small model of each, with every variant, tools and a temperature, are asked."""
    async with ModelServer(lambda _: answer(Text.of("x"))) as server:
        options = {"baseURL": server.url, "apiKey": "k"}
        found = catalog(provider={known.id: ProviderConfig(options=options)})
        for model_id in (known.default or "any", known.small or "any"):
            if model_id == "any" and not known.any_model:
                continue
            info = found.model(known.id, model_id)
            for variant in ({}, *(info.variants or {}).values()):
                request = asking(options=variant, temperature=0.5, tools=(READ,))
                assert text_of(await ask(found.open(info), request)) == "x"
                assert server.requests[-1].tools == ["read"]
        await found.aclose()


def test_each_provider_has_a_default() -> None:
    """That of the default model comes first, whatever it is; who has no models has none."""
    one = ProviderConfig(models={"a": ModelConfig(), "b": ModelConfig()})
    providers = {"one": one, "two": one, "none": ProviderConfig()}
    found = catalog(ANTHROPIC_KEY, provider=providers, model="two/b").defaults()
    assert next(iter(found)) == "two"
    assert found == {
        "two": "b",
        "one": "a",
        "anthropic": KNOWN["anthropic"].default,
        "kedge": "offline",
    }
    # A model of nobody is no default of anybody.
    assert catalog(model="nobody/x").defaults() == {"kedge": "offline"}
