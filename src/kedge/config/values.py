"""The values of a configuration, after its files were read, checked and merged."""

from typing import Any, Literal

import msgspec

from kedge.domain.agents import AgentMode
from kedge.domain.permissions import PermissionRule

Ruleset = tuple[PermissionRule, ...]
Share = Literal["manual", "auto", "disabled"]
Modality = Literal["text", "audio", "image", "video", "pdf"]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a configuration; unknown keys are left out."""


class CostConfig(Section, frozen=True, kw_only=True):
    """Dollars per million tokens."""

    input: float = 0
    output: float = 0
    cache_read: float = 0
    cache_write: float = 0


class LimitConfig(Section, frozen=True, kw_only=True):
    """Limits in tokens; 0 if unknown."""

    context: int = 0
    input: int | None = None
    output: int = 0


class ModalitiesConfig(Section, frozen=True, kw_only=True):
    """The kinds of input and output of a model."""

    input: tuple[Modality, ...] | None = None
    output: tuple[Modality, ...] | None = None


class ModelEndpoint(Section, frozen=True, kw_only=True):
    """Where to reach a single model, if it differs from its provider."""

    npm: str | None = None
    api: str | None = None


class ModelConfig(Section, frozen=True, kw_only=True):
    """A model of a provider; None means the value from the catalog."""

    id: str | None = None
    """The provider's name for it, if it differs from its key."""
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
    """`baseURL`, `apiKey`, `headers`, `timeout` (milliseconds, or false for none), and all other
    options of its client."""
    models: dict[str, ModelConfig] = {}
    whitelist: tuple[str, ...] | None = None
    blacklist: tuple[str, ...] | None = None


class AgentConfig(Section, frozen=True, kw_only=True):
    """An agent, or the differences of a built-in agent from its definition."""

    model: str | None = None
    variant: str | None = None
    prompt: str | None = None
    description: str | None = None
    mode: AgentMode | None = None
    hidden: bool | None = None
    color: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    permission: Ruleset = ()
    restrictions: tuple[Ruleset, ...] = ()
    """As `Config.restrictions`, for this agent alone."""
    steps: int | None = None
    disable: bool = False
    tools: dict[str, bool] = {}
    """As written; `permission` already includes it."""
    options: dict[str, Any] = {}


class CommandConfig(Section, frozen=True, kw_only=True):
    """A named prompt with places for arguments."""

    template: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    subtask: bool | None = None
    """Whether it runs in a session of its own; by default, if its agent is a `subagent`."""


class SkillConfig(Section, frozen=True, kw_only=True):
    """Instructions for a kind of work, which a model reads when it needs them."""

    description: str | None = None
    location: str
    """The file that it comes from."""
    content: str


class ToolOutputConfig(Section, frozen=True, kw_only=True):
    """How much of a tool's output is stored and sent; the rest goes to a file."""

    max_bytes: int = 50 * 1024
    max_lines: int = 2000


class CompactionConfig(Section, frozen=True, kw_only=True):
    """When a conversation is compacted, and what of it stays."""

    auto: bool = True
    """Whether it is compacted when the model's context is full."""
    prune: bool = False
    """Whether old outputs of tools are not sent any more."""
    tail_turns: int | None = None
    """The most turns that are kept beside a summary."""
    preserve_recent_tokens: int | None = None
    """How much is kept beside a summary."""
    reserved: int | None = None
    """What is kept free of the input limit of a model that has one."""
    threshold: float | None = None
    """The share of the context from which on the conversation is compacted."""


class Instruction(Section, frozen=True, kw_only=True):
    """Files, or a URL, with text that is put before every prompt."""

    pattern: str
    """A path, which may have wildcards, or an `http(s)` URL."""
    root: str | None = None
    """If set, only files below this folder match, with links followed, and no secrets."""
    trusted: bool = True
    """Whether it comes from a trusted file."""


class UntrustedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of an untrusted file that does not count, or not fully."""

    key: tuple[str | int, ...]
    notice: str
    """For people to read: the file, the setting, and how to make it count."""


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
    """The rules of untrusted files, one set for each. In a set the last match wins, and its action
    can only make the result of `permission` and all other rules stricter: `allow`, like no match,
    changes nothing, `ask` turns an allow into an ask, `deny` denies."""
    agent: dict[str, AgentConfig] = {}
    command: dict[str, CommandConfig] = {}
    skill: dict[str, SkillConfig] = {}
    tools: dict[str, bool] = {}
    """As written; `permission` and `restrictions` already include it."""
    instructions: tuple[Instruction, ...] = ()
    tool_output: ToolOutputConfig = ToolOutputConfig()
    compaction: CompactionConfig = CompactionConfig()
    subagent_depth: int = 1
    """How many levels of subtasks a session may have below it."""
    subagent_timeout: int | bool | None = None
    """Milliseconds without a sign of a subtask until it is stopped; false for none."""
    snapshot: bool = True
    share: Share = "manual"
    username: str | None = None
    shell: str | None = None
    keep_env: tuple[str, ...] = ()
    """Variables with providers' keys that the agent's commands may see anyway."""
    key_variables: tuple[str, ...] = ()
    """Variables from which the providers of trusted files take values."""
    notices: tuple[str, ...] = ()
    """What was ignored, and why, for people to read."""
    problems: tuple[str, ...] = ()
    """What is wrong with the files that could not be read; prompts are refused because of them."""
    untrusted: tuple[UntrustedSetting, ...] = ()
    """The settings of untrusted files that do not count, or not fully."""
    files: tuple[str, ...] = ()
    """The files that were read, in order of precedence: the last wins."""
    raw: dict[str, Any] = {}
    """Everything that counts as JSON, including unknown keys and secrets."""
