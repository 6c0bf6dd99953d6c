"""What lies in a folder of a worktree as it was once; on the wire as clients know file lists."""

from typing import Literal

from kedge.domain.values import Value


class TreeEntry(Value, frozen=True, kw_only=True):
    """A file, a folder or a symlink that was there."""

    name: str
    path: str
    """As it can be asked for again: from the session's directory. What is not UTF-8 is U+FFFD."""
    pathBase64: str | None = None
    """The bytes of the path, if it is not UTF-8."""
    type: Literal["file", "directory", "symlink"]
    size: int | None = None
    """Bytes of a file's content or of a symlink's target."""
    executable: bool | None = None
    """Of a file: whether its owner could run it."""
