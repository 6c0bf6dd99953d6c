"""The sessions this engine runs: takes their leases, hears what others ask of them, lets go of
them."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kedge.domain import wire, wire_errors
from kedge.domain.clock import Clock
from kedge.domain.errors import EngineClosed, RootBusy, SessionBusy, StoreError
from kedge.domain.events import SessionRequest
from kedge.domain.ids import IdMaker
from kedge.domain.sessions import Busy, Idle, SessionStatus
from kedge.engine.event_log import Event, EventLog
from kedge.engine.leases import LeaseKeeper
from kedge.engine.os_process import engine_of, forget_engine, owner_lives, this_process
from kedge.engine.processes import end_processes
from kedge.engine.settings import Settings
from kedge.store.port import Store
from kedge.store.queries.fences import Fence
from kedge.store.queries.leases import (
    IsAlive,
    LeaseState,
    held_leases,
    lease_of,
    lease_owners,
    run_of,
    take_over,
)
from kedge.store.queries.plans import is_unfinished
from kedge.store.queries.processes import processes_of
from kedge.store.queries.prompts import say_idle, stop_waiting, waiting_prompts
from kedge.store.queries.requests import ask_to_stop
from kedge.store.queries.reverts import waiting_reverts

if TYPE_CHECKING:
    from kedge.engine.timeline.recovery import Ends

_log = logging.getLogger(__name__)
_PAGE = 500
_LOOK = 0.05
"""Seconds between two looks at a session that is to stop in another process."""

INTERRUPTED = "The process that ran this session ended before it was finished"


Closing: TypeAlias = "Callable[[str], AbstractAsyncContextManager[Ends | None]]"
"""Finds out what the calls did that a session's run left at work; stored inside of the block."""

Stop: TypeAlias = Callable[[asyncio.Task[Any] | None], None]
"""Ends a run; told the task that must not be cancelled for it, if there is one."""


class Runs:
    """What this engine runs, and what it knows of the runs of others."""

    def __init__(
        self,
        store: Store,
        events: EventLog,
        ids: IdMaker,
        clock: Clock,
        settings: Settings,
        closing: Closing,
    ) -> None:
        self._store = store
        self._events = events
        self._ids = ids
        self._clock = clock
        self._settings = settings
        self._closing = closing
        self._here = this_process(secrets.token_hex(8))
        self.owner = wire.encode(self._here)
        self.engine_id = self._here.engine
        self.ttl = round(settings.lease_time * 1000)
        self._keeper = LeaseKeeper(store, self.owner, settings.lease_time)
        self._stoppers: dict[str, Stop] = {}
        self._generations: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        """The newest run of each session that was asked to end before it knew which one it is."""
        self._ending: dict[str, asyncio.Future[bool]] = {}
        """Of each session whose dead run is just being ended: done when it is."""
        self._closed = False
        self._nothing_runs = asyncio.Event()
        self._nothing_runs.set()
        self._listener: asyncio.Task[None] | None = None

    def alive_in(self, session_id: str, stop: Stop | None = None) -> IsAlive:
        """The judge of whether an owner of this session still runs it, other than the run of
        `stop`."""

        def is_alive(owner: str, expired: bool) -> bool:
            if owner == self.owner:
                # A run of our own that could not give back its lease is over all the same.
                return self._stoppers.get(session_id) not in (None, stop)
            return owner_lives(owner, expired and self._judges_expiry, self._here)

        return is_alive

    def is_open(self, owner: str, expired: bool) -> bool:
        """Whether the engine of an owner is still open, as far as can be told from here."""
        return owner_lives(owner, expired and self._judges_expiry, self._here)

    @property
    def _judges_expiry(self) -> bool:
        """After an outage of the database the others need time to renew."""
        return time.monotonic() >= self._store.available_since + self._settings.lease_time

    def keep(self) -> None:
        """Renew what this engine holds, from now on until it is closed."""
        self._keeper.start()

    async def starting(self, session_id: str, stop: Stop) -> None:
        """A run is about to take its lease; `stop` is called when somebody wants it to end."""
        if self._closed:
            raise EngineClosed
        if session_id in self._stoppers:
            raise SessionBusy(session_id)
        self._stoppers[session_id] = stop
        self._nothing_runs.clear()
        try:
            await self._start_listening()
            await self.end_dead_run(session_id, stop)
        except BaseException:
            self.ended(session_id, stop)
            raise
        self.keep()

    async def end_dead_run(self, session_id: str, stop: Stop | None = None) -> bool:
        """Before anything new is done, find out what the run of a dead process did, and end it;
        tells whether there was one."""
        is_alive = self.alive_in(session_id, stop)
        while True:
            owner, expired, _ = await self._store.read(partial(run_of, session_id))
            if owner is None or is_alive(owner, expired):
                return False
            ending = self._ending.get(session_id)
            is_own = ending is None
            if ending is None:
                error = wire_errors.aborted(INTERRUPTED)
                ending = asyncio.ensure_future(self._take_over(session_id, is_alive, error))
                self._ending[session_id] = ending
                ending.add_done_callback(partial(self._ended_dead, session_id))
            # Others may wait for it too; who began it may have judged by less than is known here.
            if await asyncio.shield(ending) or is_own:
                return ending.result()

    def _ended_dead(self, session_id: str, ending: "asyncio.Future[bool]") -> None:
        del self._ending[session_id]
        if not ending.cancelled():
            # Whoever waits is told; but they may all have gone.
            ending.exception()

    def started(self, session_id: str, generation: int) -> None:
        """The run has got its lease."""
        self._generations[session_id] = generation
        if self._asked.get(session_id) == generation:
            self._stoppers[session_id](None)

    def ended(self, session_id: str, stop: Stop) -> None:
        """The run is over, whether or not it got its lease."""
        if self._stoppers.get(session_id) == stop:
            del self._stoppers[session_id]
            self._generations.pop(session_id, None)
            self._asked.pop(session_id, None)
            if not self._stoppers:
                self._nothing_runs.set()

    def still_held(self) -> Callable[[Fence], None]:
        """As `LeaseKeeper.still_held`."""
        return self._keeper.still_held()

    async def status(self, session_id: str) -> SessionStatus:
        """What a session is doing, wherever it runs."""
        owner, expired, status = await self._store.read(partial(lease_of, session_id))
        if self._is_busy(session_id, owner, expired):
            return status
        # A revert that is still to be carried through keeps all else out, as one that runs does.
        unfinished = await self._store.read(partial(is_unfinished, session_id))
        return Busy() if unfinished else Idle()

    async def statuses(self) -> dict[str, LeaseState]:
        """Every session that runs somewhere, or waits for a revert to be carried through."""
        found = {lease.session_id: lease for lease in await self._store.scan(waiting_reverts)}
        return found | {
            lease.session_id: lease
            for lease in await self._held()
            if self._is_busy(lease.session_id, lease.owner, lease.expired)
        }

    def _is_busy(self, session_id: str, owner: str | None, expired: bool) -> bool:
        """Whether a session is run, or what a dead run left in it is just being put in order."""
        if owner is None:
            return False
        return session_id in self._ending or self.alive_in(session_id)(owner, expired)

    async def abort(self, session_id: str) -> bool:
        """As `stop`; of a session that is idle already, clients hear it once more: some wait for
        it."""
        await self.end_dead_run(session_id)
        script = partial(
            say_idle,
            session_id,
            self._ids,
            is_alive=self.alive_in(session_id),
            now=self._clock.now(),
        )
        return await self._store.write(script) or await self.stop(session_id)

    async def stop(self, session_id: str) -> bool:
        """Ask the run of a session to end, wherever it is, and wait; tells whether it has ended.

        Prompts that wait for a run are not answered after that either.
        """
        try:
            await self.end_dead_run(session_id)
        except RootBusy:
            # What the run did cannot be found out now; but nothing of it goes on.
            await self._end_left(session_id, self.alive_in(session_id))
        if isinstance(await self.status(session_id), Idle):
            if await self._store.read(partial(waiting_prompts, session_id)):
                stop = partial(stop_waiting, session_id, self._ids, now=self._clock.now())
                await self._store.write(stop)
            return True
        asked = await self._store.write(partial(ask_to_stop, session_id, self._ids.request()))
        deadline = asyncio.get_running_loop().time() + self._settings.stop_patience
        while asked is not None and await self._runs(session_id, asked):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_LOOK)
        return True

    async def _runs(self, session_id: str, generation: int) -> bool:
        owner, expired, newest = await self._store.read(partial(run_of, session_id))
        if owner is None or newest != generation:
            return False
        return self.alive_in(session_id)(owner, expired)

    async def dead_runs(self) -> list[str]:
        """The sessions whose run's process is gone."""
        found: list[tuple[str, str, bool]] = []
        while page := await self._store.scan(
            partial(lease_owners, found[-1][0] if found else "", _PAGE)
        ):
            found += page
        return [id for id, owner, expired in found if not self.alive_in(id)(owner, expired)]

    async def close(self, closer: asyncio.Task[Any] | None = None) -> None:
        """Stop every run of this engine and wait until each has recorded that it was stopped.

        Those of the closing task itself are cut off: it stands here and can record nothing.
        """
        self._closed = True
        try:
            for stop in list(self._stoppers.values()):
                stop(closer)
            for ending in list(self._ending.values()):
                ending.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.stop_patience):
                    await self._nothing_runs.wait()
            if self._listener is not None:
                self._listener.cancel()
                await asyncio.gather(self._listener, return_exceptions=True)
                await self._let_go()
        finally:
            # What could not be given back is free all the same: nobody here runs it any more.
            forget_engine(self._here)
            await asyncio.to_thread(self._keeper.stop)

    async def _take_over(
        self, session_id: str, is_alive: IsAlive, error: wire_errors.Failure
    ) -> bool:
        """End a run; what its calls did and cannot be found out is told instead."""
        # Before anything is looked at: what still runs would go on changing it.
        if not await self._end_left(session_id, is_alive):
            return False
        end = partial(
            take_over,
            session_id,
            self.owner,
            is_alive=is_alive,
            now=self._clock.now(),
            error=error,
        )
        try:
            async with self._closing(session_id) as ends:
                if ends is not None:
                    end = partial(end, closing=ends.record, notes=ends.notes)
                return await self._store.write_bulk(end)
        except (StoreError, EngineClosed, RootBusy):
            raise
        except Exception as trouble:  # noqa: BLE001 - whatever it is, it does not keep the session
            _log.exception("what the run of %s did cannot be found out", session_id)
            # Only programs that take snapshots wait for what it imports.
            from kedge.engine.timeline.recovery import give_up_calls

            reason = str(trouble)
            return await self._store.write_bulk(
                partial(end, closing=partial(give_up_calls, session_id, reason))
            )

    async def _end_left(self, session_id: str, is_alive: IsAlive) -> bool:
        """End the processes that a run left behind; tells whether it is still there to be ended."""
        left = await self._store.read(partial(processes_of, session_id))
        if not left:
            return True
        # Read after them: if the dead owner still has the lease, no other's are among them.
        owner, expired, _ = await self._store.read(partial(run_of, session_id))
        if owner is None or is_alive(owner, expired):
            return False
        await end_processes(left)
        return True

    async def _held(self) -> list[LeaseState]:
        found: list[LeaseState] = []
        while page := await self._store.scan(
            partial(held_leases, found[-1].session_id if found else "", _PAGE)
        ):
            found += page
        return found

    async def engines_at_work(self) -> set[str]:
        """The engines that have a lease, dead or alive, wherever they are."""
        return {engine_of(lease.owner) for lease in await self._held()}

    async def _let_go(self) -> None:
        # This process may live on without the engine, and nobody else may judge its sessions dead.
        error = wire_errors.aborted("The engine was closed before this was finished")
        for lease in await self._held():
            if lease.owner == self.owner:
                await self._take_over(lease.session_id, lambda owner, _: owner != self.owner, error)

    async def _start_listening(self) -> None:
        if self._listener is None:
            # Before the lease is taken, so that nothing asked of its holder comes before it.
            head = await self._events.head()
            if self._listener is None:
                self._listener = asyncio.create_task(self._listen(head))

    async def _listen(self, cursor: str) -> None:
        while True:
            events = self._events.subscribe(after=cursor)
            try:
                async with events:
                    async for event in events:
                        self._hear(event)
                return
            except StoreError as error:
                _log.warning("cannot hear what is asked of sessions, trying again: %s", error)
                cursor = events.cursor
                await asyncio.sleep(_LOOK)

    def _hear(self, event: Event) -> None:
        if event.type != SessionRequest.type or event.session_id not in self._stoppers:
            return
        request = event.properties
        if not isinstance(request, SessionRequest) or request.generation is None:
            return
        running = self._generations.get(event.session_id)
        if running is None:
            self._asked[event.session_id] = request.generation
        elif running == request.generation:
            self._stoppers[event.session_id](None)
