"""Sessions as on the wire, with their status and todo list."""

from dataclasses import dataclass
from typing import Any, Literal

from kedge.domain.permissions import PermissionRule
from kedge.domain.values import Value


class CacheCount(Value, frozen=True, kw_only=True):
    """Tokens read from and written to the provider's cache."""

    read: int
    write: int


class TokenCount(Value, frozen=True, kw_only=True):
    """Tokens used; only messages and steps have a total, sessions do not."""

    input: int
    output: int
    reasoning: int
    cache: CacheCount
    total: int | None = None


NO_TOKENS = TokenCount(input=0, output=0, reasoning=0, cache=CacheCount(read=0, write=0))


class ModelRef(Value, frozen=True, kw_only=True):
    """The model that a session uses; messages use `MessageModel`."""

    id: str
    providerID: str
    variant: str | None = None


class SessionTime(Value, frozen=True, kw_only=True):
    """Timestamps of a session, in milliseconds since the epoch."""

    created: int
    updated: int
    compacting: int | None = None
    archived: int | float | None = None
    """Any finite number that the client sent, including zero and negative ones."""


class FileDiff(Value, frozen=True, kw_only=True):
    """How one file changed."""

    file: str | None = None
    patch: str | None = None
    additions: int
    deletions: int
    status: Literal["added", "deleted", "modified"] | None = None


class SessionSummary(Value, frozen=True, kw_only=True):
    """How much a session changed."""

    additions: int
    deletions: int
    files: int
    diffs: list[FileDiff] | None = None


class Share(Value, frozen=True, kw_only=True):
    """The URL of a shared session."""

    url: str


class RevertState(Value, frozen=True, kw_only=True):
    """The boundary to which a session is reverted, until the next prompt makes it final."""

    messageID: str
    partID: str | None = None
    snapshot: str | None = None
    diff: str | None = None


class ForkOrigin(Value, frozen=True, kw_only=True):
    """The session that was forked, and the first message that the fork left out."""

    sessionID: str
    messageID: str | None = None


class SubtaskTotals(Value, frozen=True, kw_only=True):
    """What the subtasks of a session have used so far, with theirs."""

    cost: int | float
    tokens: TokenCount


class SessionInfo(Value, frozen=True, kw_only=True):
    """A conversation about one directory of a worktree."""

    id: str
    slug: str
    projectID: str
    workspaceID: str | None = None
    directory: str
    path: str | None = None
    """The directory relative to the worktree."""
    parentID: str | None = None
    """The session of which this one is a subtask; a fork has `fork` instead."""
    fork: ForkOrigin | None = None
    summary: SessionSummary | None = None
    cost: int | float
    """Of its own steps, as for `tokens`."""
    tokens: TokenCount
    subtasks: SubtaskTotals | None = None
    """Absent until one of its subtasks has used something."""
    share: Share | None = None
    title: str
    agent: str | None = None
    model: ModelRef | None = None
    version: str
    metadata: dict[str, Any] | None = None
    time: SessionTime
    permission: list[PermissionRule] | None = None
    revert: RevertState | None = None

    @property
    def worktree(self) -> str:
        """The root of the worktree that contains the directory."""
        return self.directory.removesuffix(f"/{self.path}") if self.path else self.directory


class Tail(Value, frozen=True, kw_only=True):
    """Messages that a revert removed from a session."""

    id: str
    messageID: str
    """The first message that was removed, or the one that lost its last parts."""
    partID: str | None = None
    """The first part that was removed, if the message stayed."""
    time: int
    """The time of the revert."""
    messages: int
    """The number of whole messages in it."""
    snapshot: str | None = None
    """The worktree before the revert, if a snapshot could be taken."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A match of the words."""

    session: SessionInfo
    messageID: str | None
    """None when the title matched."""
    partID: str | None
    excerpt: str


class Idle(Value, tag_field="type", tag="idle", frozen=True, kw_only=True):
    """Nothing is running."""


class Busy(Value, tag_field="type", tag="busy", frozen=True, kw_only=True):
    """A turn is running."""


class RetryAction(Value, frozen=True, kw_only=True):
    """What the user can do about a failure that is retried."""

    reason: str
    provider: str
    title: str
    message: str
    label: str
    link: str | None = None


class Retry(Value, tag_field="type", tag="retry", frozen=True, kw_only=True):
    """The model request failed and will be sent again at the time `next`."""

    attempt: int
    message: str
    action: RetryAction | None = None
    next: int


SessionStatus = Idle | Busy | Retry


class Todo(Value, frozen=True, kw_only=True):
    """One entry of a session's todo list; it has no id, as the list is always replaced whole."""

    content: str
    status: str
    priority: str


@dataclass(frozen=True, slots=True)
class TodoVersion:
    """A past state of the todo list."""

    version: int
    messageID: str | None
    time: int
    todos: list[Todo]
