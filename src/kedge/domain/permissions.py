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


class AllowedPermission(Value, frozen=True, kw_only=True):
    """What somebody allowed in a project with the reply `always`."""

    id: str
    permission: str
    pattern: str
    lasting: bool
    """Whether it holds until it is taken back, and not only until the server ends that took it."""
    time: int
    """When it was allowed, in milliseconds."""

    @property
    def rule(self) -> PermissionRule:
        """The rule that it is."""
        return PermissionRule(permission=self.permission, pattern=self.pattern, action="allow")


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
