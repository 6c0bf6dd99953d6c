"""Ids that sort by their creation time.

An id is a prefix, 48 bits of time and counter in hex, and 14 random characters. The 48 bits wrap
every 795 days, so ids say nothing about the order of messages; `time.created` does.
"""

import json
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import InvalidId, InvariantBroken

_TICKS_PER_MS = 0x1000
_WRAP = 1 << 48
_SUFFIX_LENGTH = 14
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BYTE_TO_LETTER = bytes(ord(_ALPHABET[byte % 62]) for byte in range(256))
_MAX_LENGTH = 128
_PRINTABLE = re.compile("[!-~]*")


@dataclass(frozen=True, slots=True)
class IdBlock:
    """Consecutive ids with one suffix, so that two fields are enough to make them all again."""

    base: int
    suffix: str

    def id(self, prefix: str, n: int) -> str:
        """The n-th id of the block, counted from zero."""
        if n < 0 or self.base + n >= _WRAP:
            raise InvariantBroken(f"id {n} is outside of its block, which starts at {self.base}")
        return _format(prefix, self.base + n, self.suffix)


class IdMaker:
    """Makes ids that ascend within this process even if the clock goes back; thread-safe."""

    def __init__(
        self, clock: Clock | None = None, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._clock = clock or SystemClock()
        self._random = random
        self._lock = threading.Lock()
        self._last = 0

    def make(self, prefix: str) -> str:
        """A new id. Ids of sessions descend, so that the newest sorts first."""
        return _format(prefix, self._reserve(1), self._suffix())

    def session(self) -> str:
        return self.make("ses")

    def message(self) -> str:
        return self.make("msg")

    def part(self) -> str:
        return self.make("prt")

    def permission(self) -> str:
        return self.make("per")

    def question(self) -> str:
        return self.make("que")

    def event(self) -> str:
        return self.make("evt")

    def request(self) -> str:
        return self.make("req")

    def block(self, count: int) -> IdBlock:
        """Reserve `count` consecutive ids, with no wrap of the 48 bits among them."""
        if not 0 <= count <= _WRAP:
            raise InvariantBroken(f"a block of {count} ids cannot be reserved")
        return IdBlock(self._reserve(count), self._suffix())

    def _reserve(self, count: int) -> int:
        now = self._clock.now() * _TICKS_PER_MS
        with self._lock:
            # The counter of a new millisecond starts at 1. When it overflows, or when the clock
            # stands still or goes back, counting continues into future milliseconds.
            first = max(now, self._last) + 1
            if first % _WRAP + count > _WRAP:
                first += _WRAP - first % _WRAP
            self._last = first + count - 1
        return first % _WRAP

    def _suffix(self) -> str:
        return self._random(_SUFFIX_LENGTH).translate(_BYTE_TO_LETTER).decode()


def _format(prefix: str, tick: int, suffix: str) -> str:
    bits = _WRAP - 1 - tick if prefix == "ses" else tick
    return f"{prefix}_{bits:012x}{suffix}"


def check_id(prefix: str, value: object) -> str:
    """The value, if it is well-formed for this kind; clients make ids of any form after the
    prefix."""
    if not isinstance(value, str) or not value.startswith(prefix):
        raise InvalidId(_expected(prefix, value))
    if len(value) > _MAX_LENGTH:
        raise InvalidId(f"{_expected(prefix, value)}, longer than {_MAX_LENGTH} characters")
    if _PRINTABLE.fullmatch(value) is None:
        raise InvalidId(f"{_expected(prefix, value)}, not printable ASCII without spaces")
    return value


def _expected(prefix: str, value: object) -> str:
    shown = json.dumps(value[:_MAX_LENGTH]) if isinstance(value, str) else type(value).__name__
    return f'Expected a string starting with "{prefix}", got {shown}'
