"""What the agents that are compared have in common: a configuration, and a turn to be timed."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar

PROVIDER, MODEL = "scripted", "talker"


@dataclass(frozen=True, slots=True)
class Turn:
    """What the subscribers heard of one turn."""

    idle_at: int
    """When the first of them heard of its end, in nanoseconds of the machine's clock."""
    deltas: int
    """How many pieces of text each of them heard, at least."""


class Side(abc.ABC):
    """An agent in a process of its own, with its subscribers."""

    name: ClassVar[str]
    pid: int

    @abc.abstractmethod
    async def turn(self, prompt: str) -> Turn:
        """Have a prompt answered in a new session that has a title."""


def configuration(url: str) -> dict[str, Any]:
    """What both of them read from a file: the scripted model, and nothing that asks people."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": {"baseURL": url, "apiKey": "none"},
        "models": {MODEL: {"name": "Talker", "limit": {"context": 100_000, "output": 8_000}}},
    }
    name = f"{PROVIDER}/{MODEL}"
    return {
        "model": name,
        "small_model": name,
        "permission": "allow",
        "provider": {PROVIDER: provider},
    }
