"""Providers that need no configuration but a key; everything else is for the configuration."""

import re
from dataclasses import dataclass

from kedge.domain.providers import Modalities, modalities
from kedge.model.endpoint import Protocol

PROTOCOLS: dict[str, Protocol] = {
    "@ai-sdk/openai-compatible": "chat",
    "@ai-sdk/openai": "responses",
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/google": "google",
    "@openrouter/ai-sdk-provider": "chat",
    "@ai-sdk/groq": "chat",
    "@ai-sdk/deepseek": "chat",
    "@ai-sdk/mistral": "chat",
    "@ai-sdk/xai": "chat",
}


_TEXT = modalities()
_SEES = modalities(image=True)
_READS = modalities(image=True, pdf=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProvider:
    """A provider that people name without saying where it is."""

    id: str
    name: str
    npm: str = "@ai-sdk/openai-compatible"
    url: str
    env: tuple[str, ...] = ()
    """The variables that may hold its key, the usual one first."""
    needs_key: bool = True
    any_model: bool = False
    """Whether its models are whatever its owner put on it."""
    default: str | None = None
    small: str | None = None
    listed_as: str | None = None
    """What genai-prices calls it."""
    own: re.Pattern[str] = re.compile("")
    """Which of the models that are listed for it it serves itself, with text in and out."""
    thinks: re.Pattern[str] = re.compile("(?!)")
    effort: str | None = None
    """The option that says how much to think."""
    takes: Modalities = _TEXT


_ALL = (
    KnownProvider(
        id="anthropic",
        name="Anthropic",
        npm="@ai-sdk/anthropic",
        url="https://api.anthropic.com/v1",
        env=("ANTHROPIC_API_KEY",),
        default="claude-sonnet-5-5",
        small="claude-haiku-5-5",
        listed_as="anthropic",
        own=re.compile(r"claude-(?!2|v1)"),
        thinks=re.compile(r"claude-(3-7|fable|(opus|sonnet|haiku)-[4-9])"),
        effort="effort",
        takes=_READS,
    ),
    KnownProvider(
        id="openai",
        name="OpenAI",
        npm="@ai-sdk/openai",
        url="https://api.openai.com/v1",
        env=("OPENAI_API_KEY",),
        default="gpt-6.1-sol",
        small="gpt-6-luna",
        listed_as="openai",
        own=re.compile(
            r"(gpt-[4-9]|o[134]|codex)"
            r"(?!.*(audio|realtime|transcribe|tts|image|search|research|vision|live|:|\.ft-))"
        ),
        thinks=re.compile(r"(?!o1-(mini|preview)|.*chat)(gpt-[5-9]|o[134]|codex)"),
        effort="reasoningEffort",
        takes=_READS,
    ),
    KnownProvider(
        id="google",
        name="Google",
        npm="@ai-sdk/google",
        url="https://generativelanguage.googleapis.com/v1beta",
        env=("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GOOGLE_API_KEY"),
        default="gemini-3.8-flash",
        small="gemini-3.5-flash-lite",
        listed_as="google",
        own=re.compile(r"gemini-[2-9](?!.*(tts|image|live|vision))"),
        thinks=re.compile(r"gemini-(2\.5|[3-9])"),
        effort="thinkingLevel",
        takes=_READS,
    ),
    KnownProvider(
        id="openrouter",
        name="OpenRouter",
        url="https://openrouter.ai/api/v1",
        env=("OPENROUTER_API_KEY",),
        any_model=True,
        default="anthropic/claude-sonnet-5.5",
        listed_as="openrouter",
        takes=_SEES,
    ),
    KnownProvider(
        id="xai",
        name="xAI",
        url="https://api.x.ai/v1",
        env=("XAI_API_KEY",),
        default="grok-4.7",
        small="grok-code-fast-1",
        listed_as="x-ai",
        own=re.compile(r"grok-(?!voice)"),
        takes=_SEES,
    ),
    KnownProvider(
        id="deepseek",
        name="DeepSeek",
        url="https://api.deepseek.com/v1",
        env=("DEEPSEEK_API_KEY",),
        default="deepseek-v4-pro",
        small="deepseek-v4-flash",
        listed_as="deepseek",
    ),
    KnownProvider(
        id="mistral",
        name="Mistral",
        url="https://api.mistral.ai/v1",
        env=("MISTRAL_API_KEY",),
        default="mistral-medium-latest",
        small="mistral-small-latest",
        listed_as="mistral",
        own=re.compile(r"(?!.*(embed|ocr|transcribe|voxtral|:free))"),
        takes=_SEES,
    ),
    KnownProvider(
        id="groq",
        name="Groq",
        url="https://api.groq.com/openai/v1",
        env=("GROQ_API_KEY",),
        default="openai/gpt-oss-120b",
        small="openai/gpt-oss-20b",
        listed_as="groq",
        own=re.compile(r"(?!.*(whisper|guard|orpheus|safeguard))"),
    ),
    KnownProvider(
        id="ollama",
        name="Ollama",
        url="http://127.0.0.1:11434/v1",
        needs_key=False,
        any_model=True,
    ),
    KnownProvider(
        id="lmstudio",
        name="LM Studio",
        url="http://127.0.0.1:1234/v1",
        needs_key=False,
        any_model=True,
    ),
)

KNOWN = {provider.id: provider for provider in _ALL}
"""In the order in which a default is looked for."""
