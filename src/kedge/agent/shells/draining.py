"""Taking the output of processes from their pipe."""

import asyncio
import contextlib
import os

from kedge.agent.shells.collecting import Collected
from kedge.engine.processes import Processes

_AT_ONCE = 65536
_LEISURE = 0.05
"""Seconds between two reads of what nobody waits for."""
_PIPE_HOLDS = 2**20
"""What a pipe can hold at most, in bytes, unless the system was told otherwise."""


class Pipe:
    """The reading end of a pipe. Nothing is read faster than the event loop comes round, so that
    whoever writes too much has to wait."""

    def __init__(self, descriptor: int, output: Collected, owner: Processes) -> None:
        self.output = output
        self.came = asyncio.Event()
        """Set when output has come."""
        self._descriptor = descriptor
        self._owner = owner
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._take)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more can come."""
        return self._ended.is_set()

    async def finish(self, grace: float) -> None:
        """Take what is there, and wait a moment for the end."""
        self.take_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._ended.wait()

    def take_all(self) -> None:
        """Take what was written before now."""
        taken = 0
        while taken < _PIPE_HOLDS and (size := self._take()):
            taken += size

    def slow_down(self) -> None:
        """Take the rest at leisure: nobody waits for it, and what writes without end has to."""
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
        """Take no more."""
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
