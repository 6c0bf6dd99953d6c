"""What a configuration says, after its files were read, checked and merged."""

from typing import Any, Literal

import msgspec

from kedge.domain.permissions import PermissionRule

Ruleset = tuple[PermissionRule, ...]
Share = Literal["manual", "auto", "disabled"]
Modality = Literal["text", "audio", "image", "video", "pdf"]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a configuration; keys that it does not know are left out."""


class CostConfig(Section, frozen=True, kw_only=True):
    """Dollars per million tokens."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0


class LimitConfig(Section, frozen=True, kw_only=True):
    """How many tokens fit; 0 is unknown."""

    context: int = 0
    input: int | None = None
    output: int = 0


class ModalitiesConfig(Section, frozen=True, kw_only=True):
    """What a model takes in and gives out."""

    input: tuple[Modality, ...] | None = None
    output: tuple[Modality, ...] | None = None


class ModelEndpoint(Section, frozen=True, kw_only=True):
    """Where one model is reached, if not where its provider is."""

    npm: str | None = None
    api: str | None = None


class ModelConfig(Section, frozen=True, kw_only=True):
    """A model of a provider; None is what the catalog knows of it."""

    id: str | None = None
    """What the provider calls it, if that is not its key."""
    name: str | None = None
    family: str | None = None
    release_date: str | None = None
    limit: LimitConfig | None = None
    cost: CostConfig | None = None
    reasoning: bool | None = None
    attachment: bool | None = None
    tool_call: bool | None = None
    temperature: bool | None = None
    interleaved: Any = None
    modalities: ModalitiesConfig | None = None
    status: Literal["alpha", "beta", "deprecated", "active"] | None = None
    provider: ModelEndpoint | None = None
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}
    variants: dict[str, dict[str, Any]] = {}


class ProviderConfig(Section, frozen=True, kw_only=True):
    """A provider of models."""

    id: str | None = None
    npm: str | None = None
    api: str | None = None
    name: str | None = None
    env: tuple[str, ...] | None = None
    """The variables that may hold its key."""
    options: dict[str, Any] = {}
    """`baseURL`, `apiKey`, `headers`, `timeout` (milliseconds, or false for none), and whatever
    else its client takes."""
    models: dict[str, ModelConfig] = {}
    whitelist: tuple[str, ...] | None = None
    blacklist: tuple[str, ...] | None = None


class AgentConfig(Section, frozen=True, kw_only=True):
    """What differs in an agent from how it is built in."""

    model: str | None = None
    variant: str | None = None
    prompt: str | None = None
    description: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    permission: Ruleset = ()
    restrictions: tuple[Ruleset, ...] = ()
    """As `Config.restrictions`, for this agent alone."""
    steps: int | None = None
    disable: bool = False
    tools: dict[str, bool] = {}
    """As it was written; `permission` has it already."""
    options: dict[str, Any] = {}


class ToolOutputConfig(Section, frozen=True, kw_only=True):
    """How much of what a tool gives back is stored and sent; the rest is kept in a file."""

    max_bytes: int = 50 * 1024
    max_lines: int = 2000


class Instruction(Section, frozen=True, kw_only=True):
    """Files, or an address, whose text every prompt begins with."""

    pattern: str
    """A path, which may have wildcards, or an `http(s)` address."""
    root: str | None = None
    """If set, only what lies below this folder is meant, wherever links lead, and no secrets."""
    trusted: bool = True
    """Whether somebody trusts the file that says so."""


class Config(Section, frozen=True, kw_only=True):
    """The merged configuration of one directory."""

    model: str | None = None
    small_model: str | None = None
    default_agent: str | None = None
    provider: dict[str, ProviderConfig] = {}
    enabled_providers: tuple[str, ...] | None = None
    disabled_providers: tuple[str, ...] = ()
    permission: Ruleset = ()
    """The rules of trusted files: the last that matches wins."""
    restrictions: tuple[Ruleset, ...] = ()
    """The rules of untrusted files, one set for each. In a set the last that matches wins, and an
    outcome can only make stricter what `permission` and all other rules come to: `allow`, like no
    match, changes nothing, `ask` turns an allow into an ask, `deny` is a deny."""
    agent: dict[str, AgentConfig] = {}
    tools: dict[str, bool] = {}
    """As it was written; `permission` and `restrictions` have it already."""
    instructions: tuple[Instruction, ...] = ()
    tool_output: ToolOutputConfig = ToolOutputConfig()
    snapshot: bool = True
    share: Share = "manual"
    username: str | None = None
    shell: str | None = None
    keep_env: tuple[str, ...] = ()
    """Variables with keys of providers that commands of the agent are told all the same."""
    key_variables: tuple[str, ...] = ()
    """Variables that the providers of trusted files take something from."""
    notices: tuple[str, ...] = ()
    """What was ignored, and why: for people to read."""
    files: tuple[str, ...] = ()
    """What was read, in the order in which it counts: the last wins."""
    raw: dict[str, Any] = {}
    """All that counts as JSON, with keys that kedge does not know, and with secrets."""
