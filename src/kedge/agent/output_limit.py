"""Limits on how much of an output is stored, shown to clients and sent to a model.

Of commands both ends are shown, and more of the end, where programs report their results; of
everything else the beginning. kedge's own notes on an output are not counted.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kedge.config.values import Config, ToolOutputConfig

LARGEST = 2**20
"""The largest limit that can be configured: the whole output is in memory, in events and in
requests."""
NOTES_BYTES = 8 * 1024
NOTES_LINES = 64
"""The room for notes beside an output: two notes, with paths in them."""

DEFAULT = ToolOutputConfig()
_NOTED = "outputLimit"


def limit_of(config: Config) -> ToolOutputConfig:
    """The configured limit."""
    given = config.tool_output
    return ToolOutputConfig(
        max_bytes=min(given.max_bytes, LARGEST), max_lines=min(given.max_lines, LARGEST)
    )


def fits(text: str, limit: ToolOutputConfig) -> bool:
    """Whether a text fits without leaving anything out."""
    if len(text) > limit.max_bytes or text.count("\n") > limit.max_lines:
        return False
    data = text.encode("utf-8", "replace")
    return len(data) <= limit.max_bytes and count_lines(data) <= limit.max_lines


def with_notes(limit: ToolOutputConfig) -> ToolOutputConfig:
    """The limit for an output that was cut before, or that says itself how it goes on."""
    return ToolOutputConfig(
        max_bytes=limit.max_bytes + NOTES_BYTES, max_lines=limit.max_lines + NOTES_LINES
    )


def head_of(limit: ToolOutputConfig) -> ToolOutputConfig:
    """How much is shown of the beginning if both ends are shown."""
    return ToolOutputConfig(max_bytes=limit.max_bytes // 4, max_lines=limit.max_lines // 4)


def tail_of(limit: ToolOutputConfig) -> ToolOutputConfig:
    """How much is shown of the end if both ends are shown."""
    head = head_of(limit)
    return ToolOutputConfig(
        max_bytes=limit.max_bytes - head.max_bytes, max_lines=limit.max_lines - head.max_lines
    )


def note_limit(text: str, limit: ToolOutputConfig) -> dict[str, Any]:
    """The limit to store with an output that is longer than the default limit."""
    is_usual = fits(text, with_notes(DEFAULT))
    return {} if is_usual else {_NOTED: msgspec.structs.asdict(limit)}


def limit_noted(metadata: Mapping[str, Any]) -> ToolOutputConfig:
    """The limit when an output was stored; the default for older versions, which had no setting."""
    try:
        return msgspec.convert(metadata.get(_NOTED, {}), ToolOutputConfig)
    except msgspec.ValidationError:
        return DEFAULT


def shortened(text: str, limit: ToolOutputConfig = DEFAULT) -> str:
    """An output as it is sent to a model, cut if an older version stored more than the limit.

    This depends only on what is stored: providers cache a request as long as it begins with the
    same bytes.
    """
    if fits(text, with_notes(limit)):
        return text
    data = text.encode("utf-8", "replace")
    head, tail = first_lines(data, head_of(limit)), last_lines(data, tail_of(limit))
    note = left_out(
        lines=count_lines(data) - count_lines(head) - count_lines(tail),
        size=len(data) - len(head) - len(tail),
    )
    return f"{head.decode()}\n\n{note}\n\n{tail.decode()}"


def left_out(*, lines: int, size: int) -> str:
    """The text in place of what was left out."""
    return f"...{lines} lines truncated..." if lines > 0 else f"...{size} bytes truncated..."


def count_lines(data: bytes | bytearray) -> int:
    """The number of lines; the last one needs no line end."""
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def first_lines(data: bytes, limit: ToolOutputConfig) -> bytes:
    """The beginning of UTF-8 text within the limit: whole lines, unless that would leave most of
    the room empty."""
    piece = data[: limit.max_bytes]
    end = 0
    for _ in range(limit.max_lines):
        at = piece.find(b"\n", end)
        if at < 0:
            break
        end = at + 1
    else:
        return piece[:end]
    if len(piece) == len(data):
        return piece
    # The end of the last character may be cut off.
    return piece.decode("utf-8", "ignore").encode() if 2 * end < limit.max_bytes else piece[:end]


def last_lines(data: bytes, limit: ToolOutputConfig) -> bytes:
    """The end of UTF-8 text within the limit: whole lines, unless that would leave most of the room
    empty."""
    piece = data[max(0, len(data) - limit.max_bytes) :]
    start = len(piece) - piece.endswith(b"\n")
    for _ in range(limit.max_lines):
        start = piece.rfind(b"\n", 0, start)
        if start < 0:
            break
    else:
        return piece[start + 1 :]
    if len(piece) == len(data):
        return piece
    start = 0 if data[-len(piece) - 1 : -len(piece)] == b"\n" else piece.find(b"\n") + 1
    if start and 2 * (len(piece) - start) >= limit.max_bytes:
        return piece[start:]
    return piece[first_character(piece) :]


def first_character(data: bytes | bytearray) -> int:
    """The index of the first whole character, after the rest of a cut one."""
    start = 0
    while start < min(4, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return start
