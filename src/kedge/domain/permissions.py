"""Permission rules and requests as on the wire; deciding about them is the agent's concern."""

from typing import Any, Literal

from kedge.domain.values import Value

PermissionAction = Literal["allow", "deny", "ask"]
PermissionReply = Literal["once", "always", "reject"]


class PermissionRule(Value, frozen=True, kw_only=True):
    """What to do about a permission for the things that match a pattern."""

    permission: str
    pattern: str
    action: PermissionAction


class ToolCallRef(Value, frozen=True, kw_only=True):
    """The tool call that asks."""

    messageID: str
    callID: str


class PermissionRequest(Value, frozen=True, kw_only=True):
    """A tool call waits for somebody to allow it."""

    id: str
    sessionID: str
    permission: str
    patterns: list[str]
    metadata: dict[str, Any]
    always: list[str]
    """The patterns that the reply `always` would allow from then on."""
    tool: ToolCallRef | None = None
