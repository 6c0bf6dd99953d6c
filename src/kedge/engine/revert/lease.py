"""The lease of a session during a revert, and the end of the tasks that it has begun."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kedge.domain.errors import SessionBusy, SessionNotFound
from kedge.domain.sessions import Idle
from kedge.snapshot.files.steps import MayWrite
from kedge.store.queries.fences import Fence
from kedge.store.queries.requests import open_requests
from kedge.store.queries.reverts import begin_revert, begin_undo, end_revert, resume_plan

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.runs import Stop

_LOOK = 0.05
"""Seconds between two checks of a session that is about to be idle."""


@dataclass(slots=True)
class Lease:
    """The lease of a session, until it is released."""

    fence: Fence
    still_held: MayWrite
    """Raises `LeaseLost` when another process has taken the session; to be called in a thread."""
    is_over: bool = False
    """Whether a transaction has released it already."""


@asynccontextmanager
async def leased(engine: "Engine", session_id: str, *, hides: bool = True) -> AsyncIterator[Lease]:
    """Take the lease of a session; `SessionBusy` if it runs and was not asked to stop.

    `hides` says whether messages may be hidden, and with them prompts that wait.
    """
    deadline = asyncio.get_running_loop().time() + engine.settings.stop_patience
    while True:
        try:
            async with _kept(engine, session_id, None, hides) as lease:
                assert lease is not None
                yield lease
                return
        except _Taken:
            late = asyncio.get_running_loop().time() > deadline
            if late or not await _is_stopping(engine, session_id):
                raise SessionBusy(session_id) from None
        await asyncio.sleep(_LOOK)


async def stop_tasks(engine: "Engine", session_ids: Iterable[str]) -> None:
    """Stop tasks in the background whose calls are undone; their caller is told with its next
    prompt."""
    for session_id in session_ids:
        await engine.background.defer(session_id)
        try:
            is_over = await engine.runs.stop(session_id)
        except SessionNotFound:
            continue  # its deletion has stopped it
        if not is_over:
            raise SessionBusy(session_id)


@asynccontextmanager
async def resumed(engine: "Engine", session_id: str, plan_id: str) -> AsyncIterator[Lease | None]:
    """Take the lease for a plan whose owner is gone; None if the plan is finished.

    Raises `SessionBusy` if the owner lives.
    """
    try:
        async with _kept(engine, session_id, plan_id) as lease:
            yield lease
    except _Taken:
        raise SessionBusy(session_id) from None


class _Taken(Exception):
    """Another run has the session."""


@asynccontextmanager
async def _kept(
    engine: "Engine", session_id: str, plan_id: str | None, hides: bool = False
) -> AsyncIterator[Lease | None]:
    def stop(closer: asyncio.Task[Any] | None) -> None:
        """Ignored: a revert ends soon, and one that is cut off would only have to be completed
        later."""

    try:
        await engine.runs.starting(session_id, stop)
    except SessionBusy:
        raise _Taken from None
    try:
        still_held = engine.runs.still_held()
        fence = await _take(engine, session_id, plan_id, stop, hides)
        if fence is None:
            yield None
            return
        engine.runs.started(session_id, fence.generation)
        lease = Lease(fence, partial(still_held, fence))
        try:
            yield lease
        finally:
            if not lease.is_over:
                await engine.store.write(partial(end_revert, fence))
    finally:
        engine.runs.ended(session_id, stop)


async def _take(
    engine: "Engine", session_id: str, plan_id: str | None, stop: "Stop", hides: bool
) -> Fence | None:
    runs = engine.runs
    names: dict[str, Any] = {"ttl": runs.ttl, "is_alive": runs.alive_in(session_id, stop)}
    try:
        if plan_id is None and not hides:
            return await engine.store.write(partial(begin_undo, session_id, runs.owner, **names))
        if plan_id is None:
            now = engine.clock.now()
            begin = partial(begin_revert, session_id, runs.owner, engine.ids, now=now, **names)
            return await engine.store.write(begin)
        return await engine.store.write(partial(resume_plan, plan_id, runs.owner, **names))
    except SessionBusy:
        raise _Taken from None


async def _is_stopping(engine: "Engine", session_id: str) -> bool:
    """Whether a session that was busy a moment ago is idle by now, or was asked to stop."""
    requests = await engine.store.read(partial(open_requests, session_id))
    if any(request.kind == "abort" for request in requests):
        return True
    return isinstance(await engine.runs.status(session_id), Idle)
