"""The output of a command as it comes: its two ends in memory, all of it in a file once it is too
long."""

import os
from pathlib import Path

from kedge.engine.outputs import open_output

SHOWN = 256 * 1024
"""How much of an output a model is given, in bytes of UTF-8."""
PREVIEW = 30 * 1024
"""How much of an output clients are shown, in bytes of UTF-8."""
KEPT = 64 * 2**20
"""How much of an output is kept in its file, in bytes."""


class Collected:
    """The output of one command. What is not UTF-8 is replaced where it is shown, not in the
    file."""

    def __init__(self, path: Path, *, shown: int = SHOWN, kept: int = KEPT) -> None:
        self.path = path
        self.total = 0
        """Bytes that have come."""
        self.is_cut = False
        """Whether there is more than is shown."""
        self.problem = ""
        """Why the file is not whole, if it is not."""
        self._shown = shown
        self._half = shown // 2
        self._kept = kept
        self._head = bytearray()
        self._tail = bytearray()
        self._file: int | None = None
        self._written = 0

    @property
    def has_file(self) -> bool:
        """Whether there is a file with the output."""
        return self._written > 0 or self._file is not None

    def add(self, piece: bytes) -> None:
        """The next bytes."""
        if not self.is_cut and self.total + len(piece) > self._shown:
            self.keep()
            self.is_cut = True
        self.total += len(piece)
        self._write(piece)
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    def keep(self) -> None:
        """From now on, have all of the output in the file; nothing may have been cut yet."""
        if self._file is not None or self.problem:
            return
        try:
            self._file = open_output(self.path)
        except OSError as error:
            self.problem = _why(error)
            return
        self._write(bytes(self._whole()))

    def end(self) -> None:
        """Nothing that comes from now on is to be shown."""
        # Each byte that is not UTF-8 takes three where it is shown.
        if not self.is_cut and len(self._whole().decode("utf-8", "replace").encode()) > self._shown:
            self.keep()
            self.is_cut = True

    def close(self) -> None:
        """Nothing more comes."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def text(self, cut: str) -> str:
        """The output, with `cut` where something was left out."""
        if not self.is_cut:
            return self._whole().decode("utf-8", "replace")
        tail = self._tail[-self._half :]
        return f"{_first(self._head, self._half)}{cut}{_last(tail, self._half)}"

    def preview(self) -> str:
        """The newest of it."""
        is_whole = self.total <= self._shown
        end = _complete(self._whole() if is_whole else self._tail)
        if is_whole and len(end) <= PREVIEW:
            text = end.decode("utf-8", "replace")
            if len(text.encode()) <= PREVIEW:
                return text
        return f"...\n\n{_last(end[-PREVIEW:], PREVIEW)}"

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


def _first(data: bytes | bytearray, limit: int) -> str:
    """The beginning as text, and no part of a character at its end."""
    text = _complete(data).decode("utf-8", "replace")
    return text.encode()[:limit].decode("utf-8", "ignore")


def _last(data: bytes | bytearray, limit: int) -> str:
    """The end as text, and no part of a character at its beginning."""
    start = 0
    while start < min(4, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    text = data[start:].decode("utf-8", "replace")
    return text.encode()[-limit:].decode("utf-8", "ignore")


def _complete(data: bytes | bytearray) -> bytes | bytearray:
    """The bytes without the beginning of a character whose end has not come."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4
        return data[:-back] if byte >= 0xC0 and length > back else data
    return data
