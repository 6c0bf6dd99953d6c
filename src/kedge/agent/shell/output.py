"""The output of a command: read from its pipe, with both ends kept in memory, and all of it in a
file once it is long."""

import asyncio
import contextlib
import os
from pathlib import Path

from kedge.agent.output_limit import (
    DEFAULT,
    count_lines,
    first_character,
    first_lines,
    head_of,
    last_lines,
    left_out,
    tail_of,
)
from kedge.config.values import ToolOutputConfig
from kedge.engine.processes import Processes
from kedge.engine.saved_output import open_output

PREVIEW = 30 * 1024
"""How much of a running command's output clients are shown, in bytes of UTF-8."""
KEPT = 64 * 2**20
"""How much of an output is kept in its file, in bytes."""
_SPARE = 8
"""Bytes beyond what is shown, to see whether a line or a character goes on."""


class ShellOutput:
    """The output of one command. Bytes that are not UTF-8 are replaced where it is shown, not in
    the file."""

    def __init__(self, path: Path, *, limit: ToolOutputConfig = DEFAULT, kept: int = KEPT) -> None:
        self.path = path
        self.total = 0
        """Bytes received."""
        self.is_cut = False
        """Whether there is more than is shown."""
        self.problem = ""
        """Why the file is incomplete, if it is."""
        self._limit = limit
        self._first = head_of(limit).max_bytes + _SPARE
        self._newest = max(limit.max_bytes, PREVIEW) + _SPARE
        self._kept = kept
        self._lines = 0
        """How many lines have ended."""
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._written = 0

    @property
    def has_file(self) -> bool:
        """Whether there is a file with the output."""
        return self._written > 0 or self._file is not None

    @property
    def whereabouts(self) -> str:
        """Where the whole output is, in words for a model."""
        if not self.has_file:
            return f"(The whole output could not be kept: {self.problem}.)"
        kept = f"the first {self._written} bytes of it are" if self.problem else "all of it is"
        return (
            f"({kept[0].upper()}{kept[1:]} in {self.path}. Search that file with grep, or read"
            " parts of it with read and offset.)"
        )

    def add(self, piece: bytes) -> None:
        """Add the next bytes."""
        if not piece:
            return
        self._lines += piece.count(b"\n")
        lines = self._lines + (not piece.endswith(b"\n"))
        is_long = self.total + len(piece) > self._limit.max_bytes or lines > self._limit.max_lines
        if is_long and not self.is_cut:
            self.keep()
            self.is_cut = True
        self.total += len(piece)
        self._write(piece)
        room = max(0, self._first - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._newest:
            del self._tail[: -self._newest]

    def keep(self) -> None:
        """Write the whole output to the file from now on; nothing may have been cut yet."""
        if self._file is not None or self.problem:
            return
        try:
            self._file = open_output(self.path)
        except OSError as error:
            self.problem = _why(error)
            return
        self._write(bytes(self._whole()))

    def end(self) -> None:
        """Show nothing that comes from now on."""
        # Each byte that is not UTF-8 becomes three where it is shown.
        if not self.is_cut and len(_text(self._whole()).encode()) > self._limit.max_bytes:
            self.keep()
            self.is_cut = True

    def close(self) -> None:
        """Close the file: nothing more comes."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def text(self) -> str:
        """The output, or both its ends and a note between them."""
        if not self.is_cut:
            return _text(self._whole())
        beginning: bytes | bytearray
        beginning = end = self._whole()
        if not self._has_all:
            beginning, end = _complete(self._head), self._tail[first_character(self._tail) :]
        head = first_lines(_text(beginning).encode(), head_of(self._limit))
        tail = last_lines(_text(end).encode(), tail_of(self._limit))
        # A last line without an end counts as well.
        lines = self._lines + (not self._tail.endswith(b"\n"))
        note = left_out(
            lines=lines - count_lines(head) - count_lines(tail),
            size=max(1, self.total - len(head) - len(tail)),
        )
        return f"{head.decode()}\n\n{note}\n{self.whereabouts}\n\n{tail.decode()}"

    def preview(self) -> str:
        """The newest part of it."""
        end = _complete(self._whole() if self._has_all else self._tail)
        if self._has_all and len(end) <= PREVIEW:
            text = _text(end)
            if len(text.encode()) <= PREVIEW:
                return text
        return f"...\n\n{_last(end[-PREVIEW:], PREVIEW)}"

    @property
    def _has_all(self) -> bool:
        """Whether nothing was dropped between the two ends."""
        return self.total == len(self._head) + len(self._tail)

    def _whole(self) -> bytearray:
        return self._head + self._tail

    def _write(self, piece: bytes) -> None:
        if self._file is None:
            return
        piece = piece[: self._kept - self._written]
        try:
            while piece:
                done = os.write(self._file, piece)
                self._written += done
                piece = piece[done:]
        except OSError as error:
            self.problem = _why(error)
        if self._written >= self._kept:
            self.problem = f"it is longer than {self._kept} bytes"
        if self.problem:
            self.close()


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")


def _last(data: bytes | bytearray, limit: int) -> str:
    """The end as text, without a partial character at its beginning."""
    text = _text(data[first_character(data) :])
    return text.encode()[-limit:].decode("utf-8", "ignore")


def _complete(data: bytes | bytearray) -> bytes | bytearray:
    """The bytes without an incomplete character at the end."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4
        return data[:-back] if byte >= 0xC0 and length > back else data
    return data


_AT_ONCE = 65536
_LEISURE = 0.05
"""Seconds between two reads when no caller waits for the output."""
_PIPE_HOLDS = 2**20
"""The largest capacity of a pipe in bytes, unless the system is configured otherwise."""


class Pipe:
    """The reading end of a pipe. Reads at most once per round of the event loop, so that a program
    that writes too much has to wait."""

    def __init__(self, descriptor: int, output: ShellOutput, owner: Processes) -> None:
        self.output = output
        self.came = asyncio.Event()
        """Set when output has arrived."""
        self._descriptor = descriptor
        self._owner = owner
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._take)

    @property
    def has_ended(self) -> bool:
        """Whether the end was reached."""
        return self._ended.is_set()

    async def finish(self, grace: float) -> None:
        """Read what is there, and wait a moment for the end."""
        self.take_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._ended.wait()

    def take_all(self) -> None:
        """Read what was written before now."""
        taken = 0
        while taken < _PIPE_HOLDS and (size := self._take()):
            taken += size

    def slow_down(self) -> None:
        """Read the rest slowly: no caller waits for it, and a program that writes without end is
        slowed down."""
        if not self.has_ended:
            self._loop.remove_reader(self._descriptor)
            self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_LEISURE, self._take_at_leisure)

    def _take_at_leisure(self) -> None:
        self._take()
        if not self.has_ended:
            self._wait()

    def close(self) -> None:
        """Stop reading."""
        if not self.has_ended:
            self._ended.set()
            self._loop.remove_reader(self._descriptor)
            if self._timer is not None:
                self._timer.cancel()
            os.close(self._descriptor)
            self.output.close()
            self._owner.let_go(self)

    def _take(self) -> int:
        if self.has_ended:
            return 0
        try:
            piece = os.read(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return 0
        if not piece:
            self.close()
            return 0
        self.output.add(piece)
        self.came.set()
        return len(piece)
