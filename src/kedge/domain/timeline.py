"""What happened to the files of a worktree, as on the wire."""

from typing import Literal, TypeAlias

from kedge.domain.values import Value

TimelineKind: TypeAlias = Literal[
    "session", "shared", "outside", "revert", "unrevert", "undo", "redo"
]
"""Who changed files: a call of a session; one of several sessions, whose calls ran at the same
time; another program or a person, before the write that found it; or something was undone or
brought back."""


class TimelineFile(Value, frozen=True, kw_only=True):
    """What happened to one file."""

    path: str
    """Relative to the root of the worktree; bytes that are not UTF-8 become U+FFFD."""
    pathBase64: str | None = None
    """The bytes of the path, if it is not UTF-8."""
    status: Literal["added", "modified", "deleted", "unknown"]
    """`unknown` if it could not be inspected."""
    reason: str | None = None
    """Why not."""


class TimelineEntry(Value, frozen=True, kw_only=True):
    """What one writer did to files at one time. Ids are those of sessions alone."""

    kind: TimelineKind
    number: int
    """Its place in the timeline; several entries may share one."""
    time: int | None = None
    """When it was recorded; of what is from outside, when it was found. None if that was by an
    earlier version and the call is gone."""
    sessionID: str | None = None
    """The session; of what is shared, the one whose call saw it."""
    title: str | None = None
    """The session's, unless it was deleted."""
    promptID: str | None = None
    """The prompt of the turn; of a revert, none."""
    messageID: str | None = None
    partID: str | None = None
    """The call."""
    tool: str | None = None
    files: list[TimelineFile]
    """At most 100, in the order in which they were recorded."""
    more: int | None = None
    """How many files are not listed, if some are not."""
