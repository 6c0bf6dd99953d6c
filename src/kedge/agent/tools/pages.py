"""A page of lines of a file of any size, and what kind of file it is, in bounded memory."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from kedge.agent.tools.places import Place, printable
from kedge.agent.tools.tool import ToolFailure
from kedge.snapshot.files.opening import Root

LONGEST_LINE = 2000

_CHUNK = 1 << 20
_FARTHEST = 256 * _CHUNK
"""Nobody pages through more than this; a command does that better."""
_MOST_COUNTED = 16 * _CHUNK
"""So much is read after the page to tell how many lines there are in all."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines of a file."""

    lines: list[str]
    total: int | None
    """How many there are in all; None if that would take long to find out."""
    is_full: bool
    """Whether it ends because there was no more room, not because enough lines were read."""


@contextmanager
def opened(place: Place) -> Iterator[BinaryIO]:
    """The file at a place, if it is one; never waits for anybody."""
    folder, _, name = place.below.rpartition(b"/")
    shown = printable(place.path)
    try:
        with Root(os.fsencode(place.root)) as root, root.folder(folder) as dir_fd:
            fd = os.open(name or b".", _OPEN, dir_fd=dir_fd)
    except OSError as error:
        raise ToolFailure(f"{shown} cannot be opened: {error.strerror}.") from error
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ToolFailure(f"{shown} is not a regular file.")
        try:
            yield file
        except OSError as error:
            raise ToolFailure(f"{shown} cannot be read: {error.strerror}.") from error


def numbered(number: int, line: str) -> str:
    """A line as models see it."""
    return f"{number}: {line}"


def read_page(file: BinaryIO, first: int, limit: int, room: int) -> Page:
    """At most so many lines, from the first one on, which is counted from 1, that with their
    numbers have room in so many bytes."""
    skipped = _skip(file, first - 1)
    if skipped < first - 1:
        raise ToolFailure(f"The file has only {skipped} lines; offset {first} is after its end.")
    lines: list[str] = []
    while len(lines) < limit:
        start = file.tell()
        line = _line(file)
        if line is None:
            return Page(lines, skipped + len(lines), is_full=False)
        room -= len(numbered(first + len(lines), line).encode()) + 1
        if room < 0 and lines:
            file.seek(start)
            break
        lines.append(line)
    rest = _count(file)
    total = None if rest is None else skipped + len(lines) + rest
    return Page(lines, total, is_full=room < 0)


def _skip(file: BinaryIO, lines: int) -> int:
    """Go to the line after so many; how many there were, at most that."""
    seen = 0
    while seen < lines:
        start = file.tell()
        if start >= _FARTHEST:
            raise ToolFailure(
                f"Line {lines + 1} is too far into a large file. Show it with a command, sed say."
            )
        chunk = file.read(_CHUNK)
        if not chunk:
            return seen
        ends = chunk.count(b"\n")
        if seen + ends < lines:
            seen += ends
            # A last line without an end is a line too.
            if len(chunk) < _CHUNK and not chunk.endswith(b"\n"):
                return seen + 1
            continue
        at = -1
        while seen < lines:
            at = chunk.index(b"\n", at + 1)
            seen += 1
        file.seek(start + at + 1)
    return seen


def _line(file: BinaryIO) -> str | None:
    """The next line without its end, cut if it is long."""
    is_first = file.tell() == 0
    # A character takes four bytes at most.
    data = file.readline(4 * LONGEST_LINE)
    if not data:
        return None
    if not data.endswith(b"\n"):
        _skip_rest(file)
    text = data.rstrip(b"\r\n").decode(errors="replace")
    if is_first:
        text = text.removeprefix("\ufeff")
    if len(text) > LONGEST_LINE:
        return f"{text[:LONGEST_LINE]}... (cut after {LONGEST_LINE} characters)"
    return text


def _skip_rest(file: BinaryIO) -> None:
    while piece := file.readline(_CHUNK):
        if piece.endswith(b"\n") or file.tell() > _FARTHEST:
            return


def _count(file: BinaryIO) -> int | None:
    """How many lines follow; None if there is too much."""
    count, last, read = 0, b"\n", 0
    while chunk := file.read(_CHUNK):
        read += len(chunk)
        if read > _MOST_COUNTED:
            return None
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")
