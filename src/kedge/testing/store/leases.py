"""Checks of leases, fences, statuses and requests: who runs a session, and who may still write to
it."""

import asyncio
from collections.abc import Callable

from kedge.domain.errors import LeaseLost, SessionBusy, SessionNotFound
from kedge.domain.messages import MessageTime
from kedge.domain.parts import StepStartPart
from kedge.domain.sessions import Busy, Idle, Retry, SessionInfo
from kedge.domain.wire_errors import aborted
from kedge.store.queries.fences import Fence
from kedge.store.queries.interrupts import interrupt_open_messages
from kedge.store.queries.leases import (
    free_lease,
    held_leases,
    lease_of,
    release_lease,
    renew_leases,
    set_status,
    take_over,
)
from kedge.store.queries.messages import put_message, remove_message
from kedge.store.queries.parts import put_part, remove_part
from kedge.store.queries.requests import add_request, open_requests
from kedge.store.queries.sessions import lock_session
from kedge.store.queries.todos import put_todos
from kedge.store.queries.turns import begin_step, fail_step, finish_step
from kedge.store.transaction import Script
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, opened, refused


async def a_lease_is_held_by_one(database: Database) -> None:
    """While its owner lives no other one gets it, in this process or another; then the generation
    rises."""
    async with opened(database) as scene, opened(database) as other:
        info = await scene.add_session()
        assert await scene.read(lease_of, info.id) == (None, False, Idle())
        fence = await scene.acquire(info, "one")
        assert await other.read(lease_of, info.id) == ("one", False, Busy())
        for each in (scene, other):
            with refused(SessionBusy):
                await each.acquire(info, "two")
        await scene.write(release_lease, fence)
        assert await other.read(lease_of, info.id) == (None, False, Idle())
        again = await other.acquire(info, "two")
        assert again.generation > fence.generation


async def of_many_that_want_a_lease_one_gets_it(database: Database) -> None:
    """The others get the error that the session is busy."""
    async with opened(database) as one, opened(database) as two:
        info = await one.add_session()
        wanted = [each.acquire(info, f"owner {n}") for n, each in enumerate([one, two] * 4)]
        outcomes = await asyncio.gather(*wanted, return_exceptions=True)
        assert sum(isinstance(each, Fence) for each in outcomes) == 1
        assert sum(isinstance(each, SessionBusy) for each in outcomes) == 7


async def whoever_asks_is_told_whether_the_lease_expired(database: Database) -> None:
    """By the database's clock; renewing extends everything the owner holds."""
    async with opened(database) as scene:
        late, other = await scene.add_session(), await scene.add_session()
        await scene.acquire(late, "owner", ttl=0)
        await scene.acquire(other, "other", ttl=0)
        assert (await scene.read(lease_of, late.id))[1] is True
        await asyncio.to_thread(scene.store.run_blocking, lambda: renew_leases("owner", ttl=60_000))
        assert (await scene.read(lease_of, late.id))[1] is False
        assert (await scene.read(lease_of, other.id))[1] is True


async def an_old_owner_cannot_write(database: Database) -> None:
    """After a takeover every query that takes a fence refuses the old one, and nothing is
    stored."""
    async with opened(database) as scene, opened(database) as other:
        info = await scene.add_session()
        old = await scene.acquire(info, "old")
        verbs = await _fenced_verbs(scene, info)
        for verb in verbs:
            await scene.write(verb, old)
        new = await other.acquire(info, "new", alive=False)
        assert new.generation > old.generation
        before, head = await scene.messages(info), (await scene.events())[-1].seq
        for verb in (*verbs, release_lease):
            with refused(LeaseLost):
                await scene.write(verb, old)
        assert await scene.messages(info) == before
        assert await scene.events(head) == []
        assert (await other.read(lease_of, info.id))[0] == "new"


async def whoever_released_cannot_write(database: Database) -> None:
    """A released lease is lost, even before another owner takes it."""
    async with opened(database) as scene:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        verbs = await _fenced_verbs(scene, info)
        await scene.write(release_lease, fence)
        head = (await scene.events())[-1].seq
        for verb in verbs:
            with refused(LeaseLost):
                await scene.write(verb, fence)
        assert await scene.events(head) == []


async def a_fence_holds_a_session_it_was_not_made_for(database: Database) -> None:
    """Without a lease there is no fence to pass."""
    async with opened(database) as scene:
        info = await scene.add_session()
        with refused(LeaseLost):
            await scene.write(put_message, scene.user(info), fence=Fence(info.id, 1))
        message = await scene.add_user(info)
        with refused(LeaseLost):
            await scene.write(put_part, scene.text(message), now=START, fence=Fence(info.id, 1))


async def statuses_are_stored_and_announced(database: Database) -> None:
    """Busy with the lease, what the owner says, idle when it is released."""
    async with opened(database) as scene:
        info = await scene.add_session()
        head = (await scene.events())[-1].seq
        fence = await scene.acquire(info)
        retry = Retry(attempt=2, message="later", next=START)
        await scene.write(set_status, fence, retry)
        assert (await scene.read(lease_of, info.id))[2] == retry
        [held] = await scene.read(held_leases, "", 10)
        assert (held.session_id, held.owner, held.status) == (info.id, "owner", retry)
        assert (held.directory, held.project_id) == (info.directory, info.projectID)
        await scene.write(release_lease, fence)
        assert await scene.read(held_leases, "", 10) == []
        types = [each.type for each in await scene.events(head)]
        assert types == ["session.status"] * 3 + ["session.idle"]


async def held_leases_come_in_pages(database: Database) -> None:
    """By session id, without those that were released."""
    async with opened(database) as scene:
        infos = [await scene.add_session() for _ in range(5)]
        fences = [await scene.acquire(info) for info in infos]
        await scene.write(release_lease, fences[2])
        expected = sorted(info.id for n, info in enumerate(infos) if n != 2)
        found: list[str] = []
        while page := await scene.read(held_leases, found[-1] if found else "", 2):
            found += [each.session_id for each in page]
        assert found == expected


async def an_interrupted_run_is_closed(database: Database) -> None:
    """Open messages are completed with an error, finished ones stay; a second time finds
    nothing."""
    async with opened(database) as scene:
        info = await scene.add_session()
        user = await scene.add_user(info)
        time = MessageTime(created=START, completed=START)
        done = await scene.add_assistant(info, user.id, time=time)
        await scene.add_assistant(info, user.id)
        await scene.acquire(info)

        def recover() -> Script[int]:
            locked = yield from lock_session(info.id)
            closed = yield from interrupt_open_messages(locked.info, START + 9, aborted("killed"))
            yield from free_lease(locked.info)
            return closed

        assert [await scene.store.write(recover) for _ in range(2)] == [1, 0]
        (_, before, after) = [message for message, _ in await scene.messages(info)]
        assert before == done
        assert getattr(after, "error", None) is not None
        assert after.time.completed == START + 9
        assert await scene.read(lease_of, info.id) == (None, False, Idle())


async def the_run_of_a_dead_owner_is_ended(database: Database) -> None:
    """What it left open is closed and its fence fails; a live owner and an idle session are left
    alone."""
    async with opened(database) as scene:
        dead, live, idle = [await scene.add_session() for _ in range(3)]
        await scene.add_assistant(dead, (await scene.add_user(dead)).id)
        fence = await scene.acquire(dead, "dead", ttl=0)
        await scene.acquire(live, "live")
        asked: list[tuple[str, bool]] = []

        def is_alive(owner: str, expired: bool) -> bool:
            asked.append((owner, expired))
            return owner == "live"

        ended = [
            await scene.write(
                take_over, each.id, "new", is_alive=is_alive, now=START, error=aborted("killed")
            )
            for each in (dead, live, idle)
        ]
        assert ended == [True, False, False]
        assert asked == [("dead", True), ("live", False)]
        (_, (message, _)) = await scene.messages(dead)
        assert message.time.completed == START
        with refused(LeaseLost):
            await scene.write(set_status, fence, Busy())
        assert await scene.read(lease_of, dead.id) == (None, False, Idle())
        assert (await scene.read(lease_of, live.id))[0] == "live"


async def requests_wait_until_the_run_ends(database: Database) -> None:
    """Oldest first, visible to every process, announced; releasing the lease closes them all."""
    async with opened(database) as scene, opened(database) as other:
        info = await scene.add_session()
        fence = await scene.acquire(info)
        head = (await scene.events())[-1].seq
        for id, kind in (("req_1", "abort"), ("req_2", "reply"), ("req_3", "delete")):
            await other.write(add_request, info.id, id, kind, '{"n":1}')
        found = await scene.read(open_requests, info.id)
        assert [(each.id, each.kind) for each in found] == [
            ("req_1", "abort"),
            ("req_2", "reply"),
            ("req_3", "delete"),
        ]
        assert {each.data for each in found} == {'{"n":1}'}
        assert [each.type for each in await scene.events(head)] == ["kedge.request"] * 3
        await scene.write(release_lease, fence)
        assert await scene.read(open_requests, info.id) == []
        with refused(SessionNotFound):
            await scene.write(add_request, "ses_none", "req_4", "abort")


async def _fenced_verbs(
    scene: Scene, info: SessionInfo
) -> tuple[Callable[[Fence], Script[object]], ...]:
    """Every write that an owner makes under its lease, as a script of the fence."""
    message, doomed = await scene.add_user(info), await scene.add_user(info)
    part = await scene.add_text(message)
    user, text, finish = scene.user(info), scene.text(message), scene.finish(message, 1)
    answer = scene.assistant(info, message.id)
    start = StepStartPart(id=scene.ids.part(), sessionID=info.id, messageID=answer.id)
    step = scene.finish(answer, 1)
    return (
        lambda fence: begin_step(answer, start, fence=fence, now=START),
        lambda fence: finish_step(answer, step, fence=fence, now=START),
        lambda fence: fail_step(info.id, aborted("stop"), fence=fence, now=START, tell=True),
        lambda fence: put_message(user, fence=fence),
        lambda fence: put_part(text, now=START, fence=fence),
        lambda fence: put_part(finish, now=START, fence=fence),
        lambda fence: remove_part(info.id, message.id, part.id, fence=fence),
        lambda fence: remove_message(info.id, doomed.id, fence=fence),
        lambda fence: put_todos(info.id, [], now=START, fence=fence),
        lambda fence: set_status(fence, Busy()),
    )
