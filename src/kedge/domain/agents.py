"""Agents as on the wire: their prompts, models and permissions."""

from typing import Any, Literal

from kedge.domain.messages import MessageModel
from kedge.domain.permissions import PermissionRule
from kedge.domain.values import Value

AgentMode = Literal["subagent", "primary", "all"]

BUILD, PLAN = "build", "plan"
GENERAL, EXPLORE = "general", "explore"
COMPACTION, TITLE, SUMMARY = "compaction", "title", "summary"
SUBAGENTS = (GENERAL, EXPLORE)
HIDDEN = (COMPACTION, TITLE, SUMMARY)
"""What they do, kedge does by itself; a configuration may give them a model."""
BUILT_IN = (BUILD, PLAN, *SUBAGENTS, *HIDDEN)
"""The agents that come with kedge."""


class AgentInfo(Value, frozen=True, kw_only=True):
    """An agent: it answers prompts."""

    name: str
    description: str | None = None
    mode: AgentMode
    """A `primary` agent answers prompts, a `subagent` runs tasks for other agents, `all` can do
    both."""
    native: bool | None = None
    """Whether it comes with kedge."""
    hidden: bool | None = None
    """Whether clients leave it out of menus."""
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
