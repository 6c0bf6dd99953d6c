"""Reverts that were interrupted: carried through at the next start, or closed with the reason."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn

import pytest

from kedge._failpoints import armed
from kedge.domain.errors import SnapshotError
from kedge.engine.engine import Engine
from kedge.engine.revert import recover
from kedge.engine.session import Session
from kedge.store.queries.plans import pending_plans, unfinished_plans
from kedge.testing.replay import both
from tests.engine.engine_factory import EngineFactory
from tests.engine.revert.scene import Crash, crash, lines, names, put, tree, turn


async def interrupted(
    place: EngineFactory, point: str, work: Callable[[Session], Awaitable[object]]
) -> str:
    """A session in which a revert got as far as a point; gives its id."""
    async with place.open() as engine:
        session = await engine.sessions.create()
        await work(session)
        prompt = (await session.messages()).messages[0].info.id
        with armed(point, crash), pytest.raises(Crash):
            await session.revert(prompt)
        return session.id


POINTS = ["plan-stored", "before-apply", "after-apply", "before-outcome"]


@pytest.mark.parametrize("point", POINTS)
async def test_an_interrupted_revert_is_carried_through(
    place: EngineFactory, folder: Path, point: str
) -> None:
    """When an engine starts, or by the upkeep of one that runs; and can then be taken back."""
    put(folder / "a", "base\n")
    before = tree(folder)

    async def work(session: Session) -> None:
        await turn(session, (folder / "a", "1\n"), (folder / "b", "2\n"))

    id = await interrupted(place, point, work)
    async with place.open() as engine:
        session = await engine.sessions.get(id)
        assert tree(folder) == before
        assert session.info.revert is not None
        assert await engine.store.read(unfinished_plans) == []
        replayed, tables = await both(engine.store)
        assert replayed == tables
        await session.unrevert()
        assert (folder / "b").read_text() == "2\n"


async def test_an_edit_made_in_between_survives(place: EngineFactory, folder: Path) -> None:
    """The path is a conflict and says so; the others are carried through."""
    put(folder / "a", "base\n")

    async def work(session: Session) -> None:
        await turn(session, (folder / "a", "1\n"), (folder / "b", "2\n"))

    id = await interrupted(place, "plan-stored", work)
    put(folder / "a", "by a person\n")
    async with place.open() as engine:
        session = await engine.sessions.get(id)
        assert session.info.revert is not None
        (plan,) = await engine.store.read(lambda: pending_plans(id))
        assert [(each.path, each.outcome.value) for each in plan.data.receipt.files] == [
            ("a", "conflict"),
            ("b", "deleted"),
        ]
    assert (folder / "a").read_text() == "by a person\n"
    assert not (folder / "b").exists()


async def test_another_revert_carries_it_through(place: EngineFactory, folder: Path) -> None:
    """Then it moves the boundary."""
    async with place.open() as engine:
        session = await engine.sessions.create()
        first = await turn(session, (folder / "a", "1\n"))
        second = await turn(session, (folder / "b", "2\n"))
        with armed("before-apply", crash), pytest.raises(Crash):
            await session.revert(first)
        await session.revert(second)
        assert names(folder) == ["a"]
        await turn(session)


async def test_a_folder_that_is_gone_closes_the_plan(
    engine: Engine, tmp_path: Path, folder: Path
) -> None:
    """Every path is skipped with the reason, once and for all."""
    place = tmp_path / "gone"
    place.mkdir()
    session = await engine.sessions.create(directory=place)
    prompt = await turn(session, (place / "a", "1\n"))
    with armed("plan-stored", crash), pytest.raises(Crash):
        await session.revert(prompt)
    (place / "a").unlink()
    place.rmdir()
    await engine.recovery.recover()
    assert await engine.store.read(unfinished_plans) == []
    (plan,) = await engine.store.read(lambda: pending_plans(session.id))
    assert plan.data.receipt.files[0].outcome.value in ("skipped", "deleted")
    await session.refresh()
    assert session.info.revert is not None


async def test_a_plan_of_another_machine_waits_for_it(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are not here; when it does not come back, the plan is closed."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1\n"))
    with armed("plan-stored", crash), pytest.raises(Crash):
        await session.revert(prompt)
    monkeypatch.setattr(engine.timeline, "machine", "another")
    await engine.recovery.recover()
    assert len(await engine.store.read(unfinished_plans)) == 1
    monkeypatch.setattr(recover, "_PATIENCE", 0)
    await engine.recovery.recover()
    assert await engine.store.read(unfinished_plans) == []
    assert (folder / "a").exists()


async def test_a_revert_that_runs_is_left_alone(place: EngineFactory, folder: Path) -> None:
    """Another engine's upkeep must not take it for interrupted."""
    async with place.open() as engine, place.open() as other:
        session = await engine.sessions.create()
        prompt = await turn(session, (folder / "a", "1\n"))
        looks: list[asyncio.Task[None]] = []

        def look() -> None:
            looks.append(asyncio.create_task(other.recovery.recover()))
            looks.append(asyncio.create_task(engine.recovery.recover()))

        with armed("plan-stored", look):
            receipt = await session.revert(prompt)
        await asyncio.gather(*looks)
        assert receipt.applied
        assert len(await engine.store.read(lambda: pending_plans(session.id))) == 1


async def test_a_deleted_session_is_carried_through_in_silence(
    place: EngineFactory, folder: Path
) -> None:
    """The files are whole, and the session stays deleted."""

    async def work(session: Session) -> None:
        await turn(session, (folder / "a", lines()))

    id = await interrupted(place, "plan-stored", work)
    async with place.open() as engine:
        assert not (folder / "a").exists()
        session = await engine.sessions.get(id)
        await session.unrevert()
        prompt = (await session.messages()).messages[0].info.id
        with armed("plan-stored", crash), pytest.raises(Crash):
            await session.revert(prompt)
        await session.delete()
        await engine.recovery.recover()
        assert not (folder / "a").exists()
        assert await engine.store.read(unfinished_plans) == []
        replayed, tables = await both(engine.store)
        assert replayed == tables


async def interrupted_here(engine: Engine, folder: Path) -> Session:
    """A session whose revert failed in the middle, in an engine that goes on."""
    session = await engine.sessions.create()
    prompt = await turn(session, (folder / "a", "1\n"))
    with armed("after-apply", crash), pytest.raises(Crash):
        await session.revert(prompt)
    return session


async def test_an_unrevert_takes_back_an_interrupted_revert(engine: Engine, folder: Path) -> None:
    """It is carried through first, whoever notices it."""
    session = await interrupted_here(engine, folder)
    receipt = await session.unrevert()
    assert [each.outcome for each in receipt.files] == ["recreated"]
    assert names(folder) == ["a"]


async def test_a_prompt_carries_an_interrupted_revert_through(engine: Engine, folder: Path) -> None:
    """Nobody has to wait for the upkeep."""
    session = await interrupted_here(engine, folder)
    await turn(session, (folder / "b", "2\n"))
    assert names(folder) == ["b"]
    assert len(await session.tails()) == 1


async def test_what_nobody_could_look_at_can_be_taken_back(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt says that it is not known, and an unrevert finds what was done."""
    session = await interrupted_here(engine, folder)

    async def refuse(worktree: str, project: str) -> NoReturn:
        raise SnapshotError("the object store is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "snapshots_of", refuse)
        await engine.recovery.recover()
    assert names(folder) == []
    await session.unrevert()
    assert names(folder) == ["a"]
