"""What a revert or unrevert says it did, path by path, as on the wire; doing it is the engine's."""

import base64
from enum import StrEnum
from typing import Literal, TypeAlias

from kedge.domain.values import Value

RevertStrategy: TypeAlias = Literal["merge", "overwrite", "abort"]
"""What to do with a path that others changed too: keep their changes and leave alone what cannot be
told apart, put it back all the same, or as the first, but do nothing at all if there is a
conflict."""

RevertScope: TypeAlias = Literal["all", "messages", "files"]
"""What goes back: messages and files, only messages (files stay as they are), or only files
(messages stay to be seen)."""


class ReceiptOutcome(StrEnum):
    """What became of one path."""

    RESTORED = "restored"
    """It holds again what it held before the session's changes."""
    MERGED = "merged"
    """The session's changes are out of it, and what others changed since is still in it."""
    DELETED = "deleted"
    RECREATED = "recreated"
    UNCHANGED = "unchanged"
    """It was already as it should be."""
    CONFLICT = "conflict"
    """It was left as it is, because somebody's work would have been lost."""
    SHARED = "shared"
    """It was left as it is: it cannot be told whose change it is, because calls of several sessions
    were at work, or a process had died."""
    SKIPPED = "skipped"
    """It was left as it is, for another reason."""


LEFT = frozenset({ReceiptOutcome.CONFLICT, ReceiptOutcome.SHARED, ReceiptOutcome.SKIPPED})
"""What is said of a path that was left as it is."""


class ReceiptEntry(Value, frozen=True, kw_only=True):
    """What became of one path, and why if that is not what was asked for."""

    path: str
    """From the root of the worktree; what is not UTF-8 in it is U+FFFD."""
    pathBase64: str | None = None
    """The bytes of the path, if it is not UTF-8."""
    outcome: ReceiptOutcome
    reason: str | None = None
    """In words; None if everything went as asked."""
    source: Literal["declared", "observed"]
    """Whether tools said of all changes that they make them, or some were only seen around a
    call."""

    @property
    def path_bytes(self) -> bytes:
        """The path as it is on disk."""
        if self.pathBase64 is not None:
            return base64.b64decode(self.pathBase64, validate=True)
        return self.path.encode()


class Receipt(Value, frozen=True, kw_only=True):
    """What a revert or unrevert did, or would do."""

    files: list[ReceiptEntry]
    """Sorted by the bytes of their paths."""
    notes: list[str]
    """What was not looked at, and what else a person should know."""
    applied: bool
    """False if it only says what would be done."""
    strategy: RevertStrategy


def receipt_entry(
    path: bytes,
    outcome: ReceiptOutcome,
    reason: str | None,
    source: Literal["declared", "observed"],
) -> ReceiptEntry:
    """The entry of a path, whatever bytes it is made of."""
    try:
        text, raw = path.decode(), None
    except UnicodeDecodeError:
        text, raw = path.decode(errors="replace"), base64.b64encode(path).decode()
    return ReceiptEntry(path=text, pathBase64=raw, outcome=outcome, reason=reason, source=source)
