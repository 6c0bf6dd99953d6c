"""Begins a step while its model request already runs.

The first snapshot of a large worktree takes as long as a model needs for its first word. No part of
the answer is stored, and no tool is called, before the step has begun. In all other cases the step
begins first: then it is always recorded that the model was asked.
"""

import asyncio
from types import TracebackType
from typing import Self

from kedge._async import to_the_end
from kedge.engine.steps import Step


class StepStart:
    """Enters a step, concurrently with the block if that takes long, and leaves it with the
    block."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._entering: asyncio.Task[Step] | None = None
        """Set while the step is entered concurrently."""

    async def __aenter__(self) -> Self:
        if await self.step.begins_slowly():
            self._entering = asyncio.create_task(self.step.__aenter__())
        else:
            await self.step.__aenter__()
        return self

    async def begun(self) -> None:
        """Return when the step has begun; raise what prevents it."""
        if self._entering is not None:
            await self._entering

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        late = None if self._entering is None else await _end(self._entering, error)
        if self._entering is None or _is_done(self._entering):
            await self.step.__aexit__(kind, late or error, trace)
        if late is not None and error is None:
            raise late


async def _end(entering: asyncio.Task[Step], error: BaseException | None) -> BaseException | None:
    """Wait until the step was entered or failed; return the error, if any."""
    if isinstance(error, asyncio.CancelledError):
        # A cancelled block does not wait for a snapshot.
        entering.cancel()
    try:
        await to_the_end(entering)
    except BaseException as failure:  # noqa: BLE001 - the caller raises it
        return failure
    return None


def _is_done(entering: asyncio.Task[Step]) -> bool:
    return not entering.cancelled() and entering.exception() is None
