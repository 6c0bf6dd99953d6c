"""Commands and skills as on the wire."""

from typing import Literal

from kedge.domain.values import Value


class Command(Value, frozen=True, kw_only=True):
    """A named prompt with places for arguments."""

    name: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    """The model, as `provider/model`."""
    source: Literal["command", "mcp", "skill"]
    template: str
    subtask: bool | None = None
    """Whether it runs in a session of its own; by default, if its agent is a `subagent`."""
    hints: list[str]
    """The places for arguments in the template."""


class Skill(Value, frozen=True, kw_only=True):
    """Instructions for a kind of work, which a model reads when it needs them."""

    name: str
    description: str | None = None
    location: str
    """The file that it comes from."""
    content: str
