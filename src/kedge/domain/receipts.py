"""Receipts: what a revert or unrevert did, path by path, as on the wire."""

import base64
from typing import Literal, TypeAlias

from kedge.domain.file_states import Outcome
from kedge.domain.values import Value

RevertStrategy: TypeAlias = Literal["merge", "overwrite", "abort"]
"""What to do with a path that others changed too: `merge` keeps their changes and leaves the path
alone if changes cannot be separated, `overwrite` restores it anyway, and `abort` is like `merge`,
but changes nothing at all if there is a conflict."""

RevertScope: TypeAlias = Literal["all", "messages", "files"]
"""What to revert: messages and files, only messages (files stay as they are), or only files
(messages stay visible)."""


ReceiptOutcome = Outcome
"""The public name of what happened to a path."""


class ReceiptEntry(Value, frozen=True, kw_only=True):
    """What happened to one path, and why if that differs from what was asked for."""

    path: str
    """Relative to the root of the worktree; bytes that are not UTF-8 become U+FFFD."""
    pathBase64: str | None = None
    """The bytes of the path, if it is not UTF-8."""
    outcome: Outcome
    reason: str | None = None
    """In words; None if everything went as requested."""
    source: Literal["declared", "observed"]
    """Whether tools declared all of the changes, or some were only observed around a call."""

    @property
    def path_bytes(self) -> bytes:
        """The path as it is on disk."""
        if self.pathBase64 is not None:
            return base64.b64decode(self.pathBase64, validate=True)
        return self.path.encode()


class Receipt(Value, frozen=True, kw_only=True):
    """What a revert or unrevert did, or would do."""

    files: list[ReceiptEntry]
    """Sorted by path, as bytes."""
    notes: list[str]
    """Paths that were not examined, and other facts that users should know."""
    applied: bool
    """False if it only describes what would be done."""
    strategy: RevertStrategy


def receipt_entry(
    path: bytes,
    outcome: Outcome,
    reason: str | None,
    source: Literal["declared", "observed"],
) -> ReceiptEntry:
    """The entry of a path, which may be any bytes."""
    try:
        text, raw = path.decode(), None
    except UnicodeDecodeError:
        text, raw = path.decode(errors="replace"), base64.b64encode(path).decode()
    return ReceiptEntry(path=text, pathBase64=raw, outcome=outcome, reason=reason, source=source)
