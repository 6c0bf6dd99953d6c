"""A progress bar with the time that is left, for whatever takes longer than a second.

Nothing is shown of what is quicker, and nothing where standard error is no terminal.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from kedge.cli.screen import DIM, Screen, clip, errors
from kedge.cli.times import lasting

if TYPE_CHECKING:
    from kedge.maintenance import Progress as Tell

_QUIET = 1.0
"""Seconds in which nothing is shown."""
_EVERY = 0.1
_BAR = 24
_CLEAR = "\r\x1b[K"


class Progress:
    """How far something is; use it in a `with` block, and call `at` as often as you like."""

    def __init__(self, what: str, total: int | None = None, screen: Screen | None = None) -> None:
        self._what = what
        self._total = total
        self._screen = screen or errors()
        self._began = self._shown = time.monotonic()
        self._is_shown = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._screen.write(_CLEAR)

    def at(self, done: int, total: int | None = None) -> None:
        """So much is done, of so much in all."""
        self._total = self._total if total is None else total
        now = time.monotonic()
        if not self._screen.is_smart or now - self._began < _QUIET or now - self._shown < _EVERY:
            return
        self._shown, self._is_shown = now, True
        line = progress_line(self._what, done, self._total, now - self._began)
        self._screen.write(_CLEAR + self._screen.paint(clip(line, self._screen.width - 1), DIM))


@contextmanager
def bars() -> Iterator["Tell"]:
    """Shows a bar for each kind of work that takes longer than a second."""
    shown: dict[str, Progress] = {}

    def tell(what: str, done: int, total: int) -> None:
        if what not in shown:
            for each in shown.values():
                each.__exit__(None, None, None)
            shown.clear()
            shown[what] = Progress(what, total or None, errors())
        shown[what].at(done, total or None)

    try:
        yield tell
    finally:
        for each in shown.values():
            each.__exit__(None, None, None)


@asynccontextmanager
async def ticking(what: str) -> AsyncIterator[None]:
    """Shows for how long something has been going on that does not say how far it is."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(_EVERY)
            bar.at(0)

    with Progress(what) as bar:
        ticks = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticks.cancel()
            await asyncio.gather(ticks, return_exceptions=True)


def progress_line(what: str, done: int, total: int | None, seconds: float) -> str:
    """The bar after so many seconds."""
    if not total:
        return "  ".join(filter(None, (what, f"{done:,}" if done else "", lasting(seconds))))
    part = min(1.0, done / total)
    full = round(part * _BAR)
    bar = "━" * full + "╌" * (_BAR - full)
    left = f"  {lasting(seconds / part - seconds)} left" if part else ""
    return f"{what}  {bar} {part:4.0%}  {done:,} of {total:,}{left}"
