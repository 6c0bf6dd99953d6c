"""How much of an output is stored, shown to clients and sent to a model.

Of commands both ends are shown, and more of the end, where programs say what came of their work; of
all else the beginning. What kedge says about an output stands beside it and is not counted.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from kedge.config.values import Config, ToolOutputConfig

LARGEST = 2**20
"""The most bytes that can be configured: all of them are in memory, in events and in requests."""
NOTES_BYTES = 8 * 1024
NOTES_LINES = 64
"""How much there may be beside an output: two notes, with paths in them."""

DEFAULT = ToolOutputConfig()
_NOTED = "outputLimit"


def limit_of(config: Config) -> ToolOutputConfig:
    """What holds by a configuration."""
    given = config.tool_output
    return ToolOutputConfig(
        max_bytes=min(given.max_bytes, LARGEST), max_lines=min(given.max_lines, LARGEST)
    )


def fits(text: str, limit: ToolOutputConfig) -> bool:
    """Whether nothing of a text has to be left out."""
    if len(text) > limit.max_bytes or text.count("\n") > limit.max_lines:
        return False
    data = text.encode("utf-8", "replace")
    return len(data) <= limit.max_bytes and count_lines(data) <= limit.max_lines


def with_notes(limit: ToolOutputConfig) -> ToolOutputConfig:
    """The limit of an output that has been cut before, or that says by itself how it goes on."""
    return ToolOutputConfig(
        max_bytes=limit.max_bytes + NOTES_BYTES, max_lines=limit.max_lines + NOTES_LINES
    )


def head_of(limit: ToolOutputConfig) -> ToolOutputConfig:
    """How much is shown of the beginning where both ends are."""
    return ToolOutputConfig(max_bytes=limit.max_bytes // 4, max_lines=limit.max_lines // 4)


def tail_of(limit: ToolOutputConfig) -> ToolOutputConfig:
    """How much is shown of the end where both ends are."""
    head = head_of(limit)
    return ToolOutputConfig(
        max_bytes=limit.max_bytes - head.max_bytes, max_lines=limit.max_lines - head.max_lines
    )


def note_limit(text: str, limit: ToolOutputConfig) -> dict[str, Any]:
    """What is noted with an output that is longer than it would be by default."""
    is_usual = fits(text, with_notes(DEFAULT))
    return {} if is_usual else {_NOTED: msgspec.structs.asdict(limit)}


def limit_noted(metadata: Mapping[str, Any]) -> ToolOutputConfig:
    """The limit that held when an output was stored; the default one, if an older kedge stored it,
    which had none."""
    try:
        return msgspec.convert(metadata.get(_NOTED, {}), ToolOutputConfig)
    except msgspec.ValidationError:
        return DEFAULT


def shortened(text: str, limit: ToolOutputConfig = DEFAULT) -> str:
    """An output as a model is sent it, cut if an older kedge stored more than the limit.

    That depends on what is stored and on nothing else: providers keep what they were sent before.
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
    """What stands where something was left out."""
    return f"...{lines} lines truncated..." if lines > 0 else f"...{size} bytes truncated..."


def count_lines(data: bytes | bytearray) -> int:
    """How many lines there are; the last needs no end."""
    return data.count(b"\n") + bool(data and not data.endswith(b"\n"))


def first_lines(data: bytes, limit: ToolOutputConfig) -> bytes:
    """The beginning of UTF-8 text that is within the limit: whole lines, unless most of the room
    would be left empty by that."""
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
    # The last character may have its end in what is left out.
    return piece.decode("utf-8", "ignore").encode() if 2 * end < limit.max_bytes else piece[:end]


def last_lines(data: bytes, limit: ToolOutputConfig) -> bytes:
    """The end of UTF-8 text that is within the limit: whole lines, unless most of the room would be
    left empty by that."""
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
    """Where the first character begins, after what may be left of one before it."""
    start = 0
    while start < min(4, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return start
