"""Leases of a process that was paused: it notices that it was, before it writes another file."""

import asyncio
from functools import partial
from typing import Any

import pytest

from kedge.domain.errors import LeaseLost, StoreUnavailable
from kedge.domain.sessions import Busy
from kedge.engine import leases
from kedge.engine.engine import Engine
from kedge.engine.leases import LeaseKeeper
from kedge.store.queries.fences import Fence
from tests.engine.engine_factory import database_time, forge_lease, lease_row

LEASE_TIME = 30.0


class Clock:
    """The steady clock, as far as the keeper sees it."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time

    def pause(self) -> None:
        """Longer than a lease lasts."""
        self.time += 2 * LEASE_TIME


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that goes on when the test says so."""
    made = Clock()
    monkeypatch.setattr(leases, "now", made)
    return made


@pytest.fixture
def keeper(any_engine: Engine, clock: Clock) -> LeaseKeeper:
    """A keeper for the engine's leases; the test renews in its place."""
    made = LeaseKeeper(any_engine.store, any_engine.runs.owner, LEASE_TIME)
    made._until = clock() + LEASE_TIME
    return made


async def held(engine: Engine, owner: str | None = None) -> Fence:
    """A session of which somebody has the lease; by default the engine."""
    session = await engine.sessions.create()
    await take(engine, session.id, owner or engine.runs.owner)
    return Fence(session.id, 7)


async def take(engine: Engine, session_id: str, owner: str) -> None:
    """Have somebody take a lease that expires soon."""
    expires = await database_time(engine) + 1
    await forge_lease(engine, session_id, owner, expires=expires, status=Busy())


async def test_in_time_nobody_is_asked(
    any_engine: Engine, keeper: LeaseKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revert of a thousand files costs no question to the database."""
    fence = await held(any_engine)

    def refuse(script: Any) -> None:  # noqa: ANN401 - any script
        pytest.fail("the database was asked")

    monkeypatch.setattr(any_engine.store, "run_blocking", refuse)
    await asyncio.to_thread(keeper.still_held(), fence)


@pytest.mark.parametrize("renewed", [False, True], ids=["asked first", "renewed first"])
async def test_a_lease_that_was_taken_in_a_pause(
    any_engine: Engine, keeper: LeaseKeeper, clock: Clock, renewed: bool
) -> None:
    """Whether the thread that renews wakes up first, or the one that writes files."""
    fence = await held(any_engine)
    check = partial(keeper.still_held(), fence)
    clock.pause()
    await take(any_engine, fence.session_id, "another")
    if renewed:
        await asyncio.to_thread(keeper.renew)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await asyncio.to_thread(check)


async def test_a_lease_that_was_taken_twice(
    any_engine: Engine, keeper: LeaseKeeper, clock: Clock
) -> None:
    """By another process and then again by this one: it is another run's."""
    fence = await held(any_engine)
    check = partial(keeper.still_held(), Fence(fence.session_id, fence.generation - 1))
    clock.pause()
    with pytest.raises(LeaseLost):
        await asyncio.to_thread(check)


async def test_a_lease_that_was_taken_while_it_was_being_renewed(
    any_engine: Engine, keeper: LeaseKeeper, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that began in time may reach the database too late."""
    fence = await held(any_engine)
    check = partial(keeper.still_held(), fence)
    renew = any_engine.store.run_blocking
    # Late for the lease that is held, and not for the one that the renewal is about to promise.
    clock.time += LEASE_TIME - 1

    def paused(script: Any) -> Any:  # noqa: ANN401 - passed on
        clock.time += 2
        return renew(script)

    await take(any_engine, fence.session_id, "another")
    with monkeypatch.context() as patched:
        patched.setattr(any_engine.store, "run_blocking", paused)
        await asyncio.to_thread(keeper.renew)
    with pytest.raises(LeaseLost):
        await asyncio.to_thread(check)


async def test_a_laptop_that_slept_goes_on(
    any_engine: Engine, keeper: LeaseKeeper, clock: Clock
) -> None:
    """Nobody took the lease: it is renewed at once, and from then on it is as before."""
    fence = await held(any_engine)
    check = partial(keeper.still_held(), fence)
    clock.pause()
    before = (await lease_row(any_engine, fence.session_id))[2]
    await asyncio.to_thread(check)
    renewed = (await lease_row(any_engine, fence.session_id))[2]
    assert renewed > before
    await asyncio.to_thread(check)
    assert (await lease_row(any_engine, fence.session_id))[2] == renewed


async def test_without_a_database_nothing_is_written(
    any_engine: Engine, keeper: LeaseKeeper, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cannot ask must not go on."""
    fence = await held(any_engine)
    check = partial(keeper.still_held(), fence)
    clock.pause()

    def away(script: Any) -> None:  # noqa: ANN401 - any script
        raise StoreUnavailable("away")

    monkeypatch.setattr(any_engine.store, "run_blocking", away)
    with pytest.raises(StoreUnavailable):
        await asyncio.to_thread(check)
