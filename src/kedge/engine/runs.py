"""The runs of this engine's sessions: acquires their leases, receives stop requests and releases
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
from kedge.store.queries.prompts import say_idle
from kedge.store.queries.requests import Asked, ask_tree_to_stop
from kedge.store.queries.reverts import waiting_reverts
from kedge.store.queries.sessions import session_tree

if TYPE_CHECKING:
    from kedge.engine.timeline.recovery import Ends

_log = logging.getLogger(__name__)
_PAGE = 500
_LOOK = 0.05
"""Seconds between two checks of a session that is to stop in another process."""

INTERRUPTED = "The process that ran this session ended before it was finished"


Closing: TypeAlias = "Callable[[str], AbstractAsyncContextManager[Ends | None]]"
"""Finds out what the calls of a dead run did; the result is stored inside the block."""

Stop: TypeAlias = Callable[[asyncio.Task[Any] | None], None]
"""Ends a run; the argument is the task that must not be cancelled for it, if any."""


class Runs:
    """The runs of this engine, and what it knows of the runs of others."""

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
        """By session, its newest run when the session was asked to end before the run was known."""
        self._ending: dict[str, asyncio.Future[bool]] = {}
        """By session, a future that is done when its dead run has been ended."""
        self._closed = False
        self._nothing_runs = asyncio.Event()
        self._nothing_runs.set()
        self._listener: asyncio.Task[None] | None = None

    def alive_in(self, session_id: str, stop: Stop | None = None) -> IsAlive:
        """A judge of whether the owner of this session still runs it; the run of `stop` does not
        count."""

        def is_alive(owner: str, expired: bool) -> bool:
            if owner == self.owner:
                # A run of this engine that failed to release its lease is over as well.
                return self._stoppers.get(session_id) not in (None, stop)
            return owner_lives(owner, expired and self._judges_expiry, self._here)

        return is_alive

    def is_open(self, owner: str, expired: bool) -> bool:
        """Whether the engine of an owner is still open, as far as this process can tell."""
        return owner_lives(owner, expired and self._judges_expiry, self._here)

    @property
    def _judges_expiry(self) -> bool:
        """After an outage of the database other engines need time to renew their leases."""
        return time.monotonic() >= self._store.available_since + self._settings.lease_time

    def keep(self) -> None:
        """Renew this engine's leases from now until it is closed."""
        self._keeper.start()

    async def starting(self, session_id: str, stop: Stop) -> None:
        """Register a run that is about to take its lease; `stop` is called when it should end."""
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
        """Find out what the run of a dead process did, and end it, before anything else happens in
        the session; return whether there was one."""
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
            # Several tasks may await this; the one that began it may have known less than this one
            # does.
            if await asyncio.shield(ending) or is_own:
                return ending.result()

    def _ended_dead(self, session_id: str, ending: "asyncio.Future[bool]") -> None:
        del self._ending[session_id]
        if not ending.cancelled():
            # Mark the exception as retrieved: all tasks that awaited it may be gone.
            ending.exception()

    def started(self, session_id: str, generation: int) -> None:
        """Record that the run has got its lease."""
        self._generations[session_id] = generation
        if self._asked.get(session_id) == generation:
            self._stoppers[session_id](None)

    def ended(self, session_id: str, stop: Stop) -> None:
        """Unregister a run that is over, whether or not it got its lease."""
        if self._stoppers.get(session_id) == stop:
            del self._stoppers[session_id]
            self._generations.pop(session_id, None)
            self._asked.pop(session_id, None)
            if not self._stoppers:
                self._nothing_runs.set()

    def still_held(self) -> Callable[[Fence], None]:
        """See `LeaseKeeper.still_held`."""
        return self._keeper.still_held()

    async def status(self, session_id: str) -> SessionStatus:
        """What a session is doing, in any process."""
        owner, expired, status = await self._store.read(partial(lease_of, session_id))
        if self._is_busy(session_id, owner, expired):
            return status
        # An unfinished revert keeps everything else out, as a running one does.
        unfinished = await self._store.read(partial(is_unfinished, session_id))
        return Busy() if unfinished else Idle()

    async def statuses(self) -> dict[str, LeaseState]:
        """Every session that runs in any process, or has an unfinished revert."""
        found = {lease.session_id: lease for lease in await self._store.scan(waiting_reverts)}
        return found | {
            lease.session_id: lease
            for lease in await self._held()
            if self._is_busy(lease.session_id, lease.owner, lease.expired)
        }

    def _is_busy(self, session_id: str, owner: str | None, expired: bool) -> bool:
        """Whether a session runs, or its dead run is being recovered."""
        if owner is None:
            return False
        return session_id in self._ending or self.alive_in(session_id)(owner, expired)

    async def abort(self, session_id: str) -> bool:
        """Like `stop`; for an idle session the idle event is announced again, because some clients
        wait for it."""
        await self.end_dead_run(session_id)
        script = partial(
            say_idle,
            session_id,
            self._ids,
            is_alive=self.alive_in(session_id),
            now=self._clock.now(),
        )
        if (await self._store.read(partial(session_tree, session_id)))[:-1]:
            # The session is idle only when its subtasks are.
            asked, is_over = await self._stop(session_id)
            if session_id not in asked:
                await self._store.write(script)
            return is_over
        return await self._store.write(script) or await self.stop(session_id)

    async def stop(self, session_id: str) -> bool:
        """Ask the runs of a session and its subtasks to end, in any process, and wait; return
        whether they have ended.

        Prompts that wait for a run are not answered afterwards either.
        """
        return (await self._stop(session_id))[1]

    async def _stop(self, session_id: str) -> tuple[Asked, bool]:
        """The runs that were asked to end, and whether all of them have."""
        deadline = asyncio.get_running_loop().time() + self._settings.stop_patience
        asked: Asked = {}
        while new := await self._ask_to_stop(session_id):
            asked |= new
            for each, generation in new.items():
                while await self._runs(each, generation):
                    if asyncio.get_running_loop().time() > deadline:
                        return asked, False
                    await asyncio.sleep(_LOOK)
            # What ended may have begun another subtask before it was asked to end.
        return asked, True

    async def _ask_to_stop(self, session_id: str) -> Asked:
        """Ask what runs of a session and its subtasks now to end."""
        for each in await self._store.read(partial(session_tree, session_id)):
            try:
                await self.end_dead_run(each)
            except RootBusy:
                # What the run did cannot be found out now, but its processes are ended.
                await self._end_left(each, self.alive_in(each))
        ask = partial(ask_tree_to_stop, session_id, self._ids, self._lives, now=self._clock.now())
        return await self._store.write(ask)

    def _lives(self, session_id: str, owner: str, expired: bool) -> bool:
        return self.alive_in(session_id)(owner, expired)

    async def _runs(self, session_id: str, generation: int) -> bool:
        owner, expired, newest = await self._store.read(partial(run_of, session_id))
        if owner is None or newest != generation:
            return False
        return self.alive_in(session_id)(owner, expired)

    async def dead_runs(self) -> list[str]:
        """The sessions whose run belongs to a dead process."""
        found: list[tuple[str, str, bool]] = []
        while page := await self._store.scan(
            partial(lease_owners, found[-1][0] if found else "", _PAGE)
        ):
            found += page
        return [id for id, owner, expired in found if not self.alive_in(id)(owner, expired)]

    async def close(self, closer: asyncio.Task[Any] | None = None) -> None:
        """Stop every run of this engine and wait until each has recorded that.

        Runs of the closing task itself are cut off: that task is here and cannot record anything.
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
            # Leases that could not be released are free as well: this process runs them no more.
            forget_engine(self._here)
            await asyncio.to_thread(self._keeper.stop)

    async def _take_over(
        self, session_id: str, is_alive: IsAlive, error: wire_errors.Failure
    ) -> bool:
        """End a dead run; if what its calls did cannot be found out, record that instead."""
        # First of all: processes that still run would go on changing files.
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
        except Exception as trouble:  # noqa: BLE001 - no error may keep the session busy
            _log.exception("cannot find out what the run of %s did", session_id)
            # Imported late: only programs that take snapshots pay for the import.
            from kedge.engine.timeline.recovery import give_up_calls

            reason = str(trouble)
            return await self._store.write_bulk(
                partial(end, closing=partial(give_up_calls, session_id, reason))
            )

    async def _end_left(self, session_id: str, is_alive: IsAlive) -> bool:
        """End the processes that a run left behind; return whether the dead run is still there."""
        left = await self._store.read(partial(processes_of, session_id))
        if not left:
            return True
        # Read after the processes: if the dead owner still holds the lease, none of them belong to
        # another owner.
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
        """The engines that hold a lease, dead or alive, on any machine."""
        return {engine_of(lease.owner) for lease in await self._held()}

    async def _let_go(self) -> None:
        # This process may outlive the engine, and no other one may then judge its sessions dead.
        error = wire_errors.aborted("The engine was closed before this was finished")
        for lease in await self._held():
            if lease.owner == self.owner:
                await self._take_over(lease.session_id, lambda owner, _: owner != self.owner, error)

    async def _start_listening(self) -> None:
        if self._listener is None:
            # Read before taking the lease, so that no request to its holder is older than this.
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
                _log.warning("cannot receive requests to sessions, trying again: %s", error)
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
