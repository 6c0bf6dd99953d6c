"""Whose the lines of a file are, as on the wire."""

from typing import Literal, TypeAlias

from kedge.domain.values import Value

OriginKind: TypeAlias = Literal["session", "shared", "outside", "before", "unrecorded", "unknown"]
"""Who wrote a line: a call of a session; one of several sessions, whose commands ran at the same
time; a person or another program; somebody before kedge first recorded a change in the worktree; a
call that still runs, or somebody beside it; or it is not known, because the content of that time
could not be inspected, is too large or is not kept any more."""


class LineOrigin(Value, frozen=True, kw_only=True):
    """Who wrote lines, and when. Ids are those of sessions alone."""

    kind: OriginKind
    sessionID: str | None = None
    title: str | None = None
    """The session's, unless it was deleted."""
    promptID: str | None = None
    """The prompt of the turn, if it still exists."""
    messageID: str | None = None
    """The message with the call."""
    partID: str | None = None
    """The call."""
    tool: str | None = None
    """The call's tool."""
    time: int | None = None
    """When it was recorded: of a session's line when its call ended, of others when kedge first saw
    the line. None if it is not recorded yet, or was by an earlier version."""


class BlameLine(Value, frozen=True, kw_only=True):
    """One line."""

    text: str
    """Without its line feed; bytes that are not UTF-8 become U+FFFD."""
    origin: int
    """Its place in the list of origins, from 0."""


class Blame(Value, frozen=True, kw_only=True):
    """The lines of a file as it is on disk, and who wrote each of them."""

    path: str
    """Relative to the root of the worktree; bytes that are not UTF-8 become U+FFFD."""
    pathBase64: str | None = None
    """The bytes of the path, if it is not UTF-8."""
    origins: list[LineOrigin]
    """Each once, in the order of their first lines."""
    lines: list[BlameLine]
