"""What the next prompt makes of a revert, and the tails that it leaves."""

import asyncio
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from kedge.domain.errors import InvalidId, StoreError, TailNotFound
from kedge.domain.file_states import Present
from kedge.domain.sessions import Todo
from kedge.engine.engine import Engine
from kedge.snapshot.objects.store import ObjectStore
from kedge.store.queries.retention import purge_session
from kedge.store.transaction import ScriptMaker
from kedge.testing.replay import both
from tests.engine.engine_factory import EngineFactory, stored_log
from tests.engine.revert.scene import names, put, told, tree, turn


async def test_a_prompt_makes_it_final(any_engine: Engine, folder: Path) -> None:
    """The hidden messages are gone, unrevert has nothing to do, and the log tells the same."""
    session = await any_engine.sessions.create()
    first = await turn(session, (folder / "a", "1"))
    second = await turn(session, (folder / "b", "2"))
    todos = [Todo(content="x", status="pending", priority="high")]
    await session.set_todos(todos)
    await session.revert(second)
    assert await session.todos() == todos
    head = (await stored_log(any_engine))[-1].seq
    third = await turn(session, (folder / "c", "3"))
    types = [event.type for event in await stored_log(any_engine, head)]
    assert types[:5] == [
        "message.removed",
        "message.removed",
        "todo.updated",
        "session.updated",
        "message.updated",
    ]
    ids = [each.info.id for each in (await session.messages()).messages]
    assert ids[0] == first
    assert ids[2] == third
    assert len(ids) == 4
    assert session.info.revert is None
    assert await session.todos() == []
    assert told(await session.unrevert()) == {}
    replayed, tables = await both(any_engine.store)
    assert replayed == tables


async def test_reverts_after_a_final_one_undo_what_is_left(engine: Engine, folder: Path) -> None:
    """What was undone is nobody's any more; what was left alone is still the session's."""
    put(folder / "b", "base\n")
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1\n"))
    second = await turn(session, (folder / "b", "2\n"), (folder / "c", "2\n"))
    put(folder / "b", "by a person\n")
    assert told(await session.revert(second)) == {"b": "conflict", "c": "deleted"}
    third = await turn(session, (folder / "d", "3\n"))
    put(folder / "c", "by a person\n")
    put(folder / "b", "2\n")
    assert told(await session.revert(third)) == {"d": "deleted"}
    assert told(await session.revert(first)) == {"a": "deleted", "b": "restored", "d": "unchanged"}
    assert names(folder) == ["b", "c"]
    assert (folder / "b").read_text() == "base\n"


async def test_tails_are_kept_and_restored_as_forks(engine: Engine, folder: Path) -> None:
    """With everything that was before them; no file is touched."""
    session = await engine.sessions.create("Work")
    await turn(session, (folder / "a", "1"))
    second = await turn(session, (folder / "b", "2"))
    before = [each.parts for each in (await session.messages()).messages]
    assert await session.tails() == []
    await session.revert(second)
    await turn(session)
    (tail,) = await session.tails()
    assert (tail.messageID, tail.partID, tail.messages) == (second, None, 2)
    files = tree(folder)
    fork = await session.restore_tail(tail.id)
    assert tree(folder) == files
    assert fork.origin is not None
    assert (fork.origin.sessionID, fork.origin.messageID) == (session.id, second)
    copies = [each.parts for each in (await fork.messages()).messages]
    assert [len(parts) for parts in copies] == [len(parts) for parts in before]
    assert await session.tails() == [tail]
    last = (await fork.messages()).messages[-1].info.id
    assert sorted(entry.name for entry in await fork.tree(last)) == ["a", "b"]
    assert told(await fork.revert((await fork.messages()).messages[0].info.id)) == {}


async def test_what_a_final_revert_overwrote_can_be_read(engine: Engine, folder: Path) -> None:
    """The tail names the snapshot of the files as they were before the revert."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "a", "1"))
    put(folder / "a", "somebody's")
    await session.revert(first, strategy="overwrite")
    await turn(session)
    (tail,) = await session.tails()
    assert tail.snapshot is not None
    snapshots = await session.snapshots()
    state = await snapshots.state(tail.snapshot, b"a")
    assert isinstance(state, Present)
    assert await snapshots.read(state.blob) == b"somebody's"


async def test_unknown_tails_are_refused(engine: Engine) -> None:
    """By their form, or because there is none."""
    session = await engine.sessions.create()
    with pytest.raises(InvalidId):
        await session.restore_tail("ses_x")
    with pytest.raises(TailNotFound):
        await session.restore_tail("tail_x")


async def test_forks_keep_the_snapshots_of_their_origin(engine: Engine, folder: Path) -> None:
    """Also when the origin is purged; what nobody holds is released."""
    session = await engine.sessions.create()
    await turn(session, (folder / "a", "1"))
    fork = await session.fork()
    last = (await fork.messages()).messages[-1].info.id
    await session.delete()
    engine.upkeep._clock = _Later()
    assert await engine.upkeep.purge() == 1
    assert [entry.name for entry in await fork.tree(last)] == ["a"]


async def test_a_cancelled_fork_that_was_stored_keeps_its_snapshots(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation is heard when the fork is there already; only what failed lets go of them."""
    session = await engine.sessions.create()
    await turn(session, (folder / "a", "1"))
    write = engine.store.write_bulk

    async def write_and_be_cancelled(script: ScriptMaker[object]) -> NoReturn:
        await write(script)
        raise asyncio.CancelledError

    async def fail(script: ScriptMaker[object]) -> NoReturn:
        raise StoreError("no space")

    for broken, error in ((write_and_be_cancelled, asyncio.CancelledError), (fail, StoreError)):
        with monkeypatch.context() as patched:
            patched.setattr(engine.store, "write_bulk", broken)
            with pytest.raises(error):
                await session.fork()
    (fork,) = await session.forks()
    with ObjectStore(engine.data / "snapshots" / engine.project.id) as store:
        assert list(store.chain(fork.id))


async def test_snapshots_of_what_others_purged_are_released(
    place: EngineFactory, folder: Path
) -> None:
    """A process that died before it could, or another machine, leaves that to the next one; what
    the database knows nothing of is another's."""
    async with place.open() as engine:
        one, two = [await engine.sessions.create() for _ in range(2)]
        for session in (one, two):
            await turn(session, (folder / session.id, "1"))
        stranger = await one.snapshots()
        await stranger.track(session="ses_of_another_database")
        await one.delete()
    async with place.open() as engine:
        before = 2**45
        assert await engine.store.write_bulk(partial(purge_session, one.id, before))
        assert await engine.upkeep.release() == 1
    with ObjectStore(engine.data / "snapshots" / engine.project.id) as store:
        assert not list(store.chain(one.id))
        assert list(store.chain(two.id))
        assert list(store.chain("ses_of_another_database"))


class _Later:
    """A clock of long after the retention time."""

    def now(self) -> int:
        return 2**45
