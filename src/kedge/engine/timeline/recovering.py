"""Calls that a process left running when it died: what they did is found out before their session
is idle."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from kedge.domain.errors import SessionNotFound
from kedge.engine.timeline.declared import end_left_over
from kedge.engine.timeline.unknown import UnknownEffects
from kedge.store.script import Script, ScriptMaker
from kedge.store.verbs.leases import lease_expiry
from kedge.store.verbs.timeline import Call

if TYPE_CHECKING:
    from kedge.engine.engine import Engine


@asynccontextmanager
async def closing(
    engine: "Engine", session_id: str, calls: Sequence[Call]
) -> AsyncIterator[ScriptMaker[None] | None]:
    """What records the ends of a session's calls; to be run inside of the block.

    Only what was written while their process may have lived is theirs.
    """
    try:
        session = await engine.sessions.get(session_id)
    except SessionNotFound:
        yield None
        return
    timeline = engine.timeline
    alive_until = await _alive_until(engine, session_id)
    async with timeline.sampled(session) as taken:
        scripts: list[ScriptMaker[None]] = []
        for call in calls:
            if call.kind == "opening":
                continue
            if call.kind == "unknown":
                effects = UnknownEffects.of_call(timeline, session, call)
                scripts.append(await effects.end_with(taken, alive_until))
            else:
                scripts.append(await end_left_over(timeline, session, call, alive_until))
        yield partial(_one_after_the_other, scripts)


async def _alive_until(engine: "Engine", session_id: str) -> int:
    """The latest time at which the owner of a session can have lived: it renews its lease three
    times in the lease's life, and did not do so again."""
    expires = await engine.store.read(partial(lease_expiry, session_id))
    return 0 if expires is None else expires - 2 * engine.runs.ttl // 3


def _one_after_the_other(scripts: Sequence[ScriptMaker[None]]) -> Script[None]:
    for script in scripts:
        yield from script()
