"""Agents as on the wire: their prompts, models and permissions."""

from typing import Any, Literal

from kedge.domain.messages import MessageModel
from kedge.domain.permissions import PermissionRule
from kedge.domain.values import Value

BUILD, PLAN = "build", "plan"
BUILT_IN = (BUILD, PLAN)
"""The agents that come with kedge."""


class AgentInfo(Value, frozen=True, kw_only=True):
    """An agent: it answers prompts."""

    name: str
    description: str | None = None
    mode: Literal["subagent", "primary", "all"]
    native: bool | None = None
    """Whether it comes with kedge."""
    hidden: bool | None = None
    topP: float | None = None
    temperature: float | None = None
    color: str | None = None
    permission: list[PermissionRule]
    """The last rule that matches decides."""
    model: MessageModel | None = None
    """The model that it prefers, if any."""
    variant: str | None = None
    prompt: str | None = None
    options: dict[str, Any]
    steps: int | None = None
    """The most steps that one of its turns may have."""
