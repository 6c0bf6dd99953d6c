"""Undo and redo beside everything else that takes changes out of the files: in any order, what is
in effect is what was not undone and not reverted."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path

import pytest

from kedge._failpoints import POINTS
from kedge.domain.errors import PartNotFound, TurnAborted
from kedge.domain.receipts import Receipt
from kedge.domain.sessions import SessionSummary
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.testing.replay import both
from tests.engine.engine_factory import EngineFactory
from tests.engine.revert.scene import lines, names, put, told, turn, write
from tests.engine.undo.test_undo import call, changed, mark
from tests.support.timeouts import PATIENCE

LONG = bool(os.environ.get("KEDGE_TORTURE"))
ROOT = Path(__file__).parents[3]
PLACES = (1, 4, 7)


class World:
    """A file that three turns change, one line each, and what should be in effect of them."""

    def __init__(self, session: Session, path: Path) -> None:
        self.session = session
        self.path = path
        self.parts: list[str] = []
        self.prompts: list[str] = []
        self.undone: set[int] = set()
        self.boundary: int | None = None
        self.gone = len(PLACES)
        """The first turn that a final revert has removed."""

    async def build(self) -> "World":
        """Work."""
        put(self.path, lines())
        for n in PLACES:
            done = [(place, f"call {place}") for place in PLACES if place <= n]
            async with (
                self.session.turn("Go on") as begun,
                begun.step() as step,
                step.tool("edit", {}, reads=[self.path], writes=[self.path]) as made,
            ):
                put(self.path, lines(*done))
            self.parts.append(made.part.id)
            self.prompts.append(begun.message.id)
        return self

    def check(self) -> None:
        """The file holds what is in effect."""
        end = self.gone if self.boundary is None else min(self.boundary, self.gone)
        left = [n for n in range(end) if n not in self.undone]
        wanted = lines(*((PLACES[n], f"call {PLACES[n]}") for n in left))
        assert self.path.read_text() == wanted

    async def undo(self, n: int) -> Receipt:
        """Undo one call."""
        receipt = await self._answer(self.session.undo, n)
        if receipt.applied:
            self.undone.add(n)
        return receipt

    async def redo(self, n: int) -> Receipt:
        """Redo one call."""
        receipt = await self._answer(self.session.redo, n)
        if receipt.applied:
            self.undone.remove(n)
        return receipt

    async def _answer(self, act: Callable[..., Awaitable[Receipt]], n: int) -> Receipt:
        if n < self.gone:
            return await act(parts=[self.parts[n]])
        with pytest.raises(PartNotFound):
            await act(parts=[self.parts[n]])
        return Receipt(files=[], notes=[], applied=False, strategy="merge")

    async def revert(self, n: int) -> Receipt:
        """Revert to before one turn."""
        if n < self.gone:
            self.boundary = n
        return await self.session.revert(self.prompts[n])

    async def unrevert(self) -> Receipt:
        """Take the revert back."""
        self.boundary = None
        return await self.session.unrevert()

    async def final(self) -> None:
        """The next prompt comes."""
        if self.boundary is not None:
            self.gone, self.boundary = min(self.gone, self.boundary), None
        await turn(self.session)


Act = Callable[[World], Awaitable[object]]
ACTS: dict[str, Act] = {
    "undo first": lambda world: world.undo(0),
    "undo last": lambda world: world.undo(2),
    "redo first": lambda world: world.redo(0),
    "redo last": lambda world: world.redo(2),
    "revert": lambda world: world.revert(1),
    "revert last": lambda world: world.revert(2),
    "unrevert": lambda world: world.unrevert(),
    "final": lambda world: world.final(),
}
STARTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "undone": ("undo first", "undo last"),
    "reverted": ("revert",),
    "undone and reverted": ("undo first", "undo last", "revert"),
}


async def test_any_two_of_them(engine: Engine, folder: Path) -> None:
    """After each the file holds what is in effect, and the log tells what the tables do."""
    every = list(product(ACTS, ACTS, STARTS))
    # Each pair at least once; which start it has changes from pair to pair.
    some = (
        every
        if LONG
        else [every[n * len(STARTS) + (n + n // 8) % 4] for n in range(len(ACTS) ** 2)]
    )
    for number, (first, second, start) in enumerate(some):
        session = await engine.sessions.create()
        world = await World(session, folder / f"{number}").build()
        try:
            for name in (*STARTS[start], first, second):
                await ACTS[name](world)
                world.check()
        except AssertionError as error:
            error.add_note(f"{start}: {first}, {second}")
            raise
    replayed, tables = await both(engine.store)
    assert replayed == tables


async def test_a_revert_over_an_undone_call_leaves_it_undone(engine: Engine, folder: Path) -> None:
    """Also when it is taken back, and when it is moved."""
    session = await engine.sessions.create()
    world = await World(session, folder / "file").build()
    await world.undo(1)
    for boundary in (2, 1, 0, 2):
        receipt = await world.revert(boundary)
        assert {entry.reason for entry in receipt.files} <= {None}
        world.check()
    receipt = await world.unrevert()
    assert {entry.reason for entry in receipt.files} == {None}
    world.check()
    assert await mark(session, world.parts[1]) is not None
    await world.redo(1)
    world.check()


async def test_what_a_revert_took_out_is_not_undone(engine: Engine, folder: Path) -> None:
    """The receipt says in words what to do first."""
    session = await engine.sessions.create()
    world = await World(session, folder / "file").build()
    await world.undo(1)
    await world.revert(1)
    for receipt in (await world.undo(2), await world.redo(1)):
        assert (receipt.files, receipt.applied) == ([], False)
        assert receipt.notes == [
            "a revert has taken it out already; unrevert brings that back first"
        ]


async def test_a_made_file_goes_with_what_was_undone_in_it(engine: Engine, folder: Path) -> None:
    """An undone call is not somebody else's change that would keep the file."""
    session = await engine.sessions.create()
    first = await turn(session, (folder / "file", lines()))
    part = await call(session, folder / "file", lines((1, "one")))
    await call(session, folder / "file", lines((1, "one"), (6, "two")))
    assert told(await session.undo(parts=[part])) == {"file": "merged"}
    assert told(await session.revert(first)) == {"file": "deleted"}
    await session.unrevert()
    assert (folder / "file").read_text() == lines((6, "two"))
    assert told(await session.redo(parts=[part])) == {"file": "restored"}


async def test_a_final_revert_takes_undone_calls_along(engine: Engine, folder: Path) -> None:
    """They are in the tail; nothing of them can come back by a later undo in the same file."""
    session = await engine.sessions.create()
    world = await World(session, folder / "file").build()
    await world.undo(0)
    await world.undo(2)
    await world.revert(2)
    await world.final()
    world.check()
    assert (await session.tails())[0].messages == 2
    await world.undo(1)
    world.check()
    await world.redo(0)
    world.check()
    await world.redo(1)
    world.check()
    assert await changed(session) == {"file": (2, 2)}


async def test_a_fork_of_an_undone_session(engine: Engine, folder: Path) -> None:
    """It shows what is undone, and owns nothing of it; the origin can redo it."""
    session = await engine.sessions.create()
    world = await World(session, folder / "file").build()
    await world.undo(1)
    fork = await session.fork()
    parts = [part for each in (await fork.messages()).messages for part in each.parts]
    copied = [part.id for part in parts if getattr(part, "undone", None) is not None]
    assert len(copied) == 1
    for receipt in (await fork.redo(parts=copied), await fork.undo(parts=copied)):
        assert (receipt.files, receipt.applied) == ([], False)
        assert session.id in receipt.notes[0]
    world.check()
    await world.redo(1)
    world.check()


async def test_it_is_still_undone_after_a_restart(any_place: EngineFactory, folder: Path) -> None:
    """And can be redone after more prompts."""
    async with any_place.open() as engine:
        world = await World(await engine.sessions.create(), folder / "file").build()
        await world.undo(1)
    async with any_place.open() as engine:
        world.session = await engine.sessions.get(world.session.id)
        assert await mark(world.session, world.parts[1]) is not None
        assert await changed(world.session) == {"file": (2, 2)}
        await turn(world.session, (folder / "other", "1\n"))
        assert told(await world.redo(1)) == {"file": "restored"}
        world.check()


async def test_what_a_subtask_did_goes_with_the_call_that_began_it(
    engine: Engine, folder: Path
) -> None:
    """The marks are on both calls, and either session can put it back."""
    parent = await engine.sessions.create()
    async with (
        parent.turn("Go on") as begun,
        begun.step() as step,
        step.tool("task", {}, effects="none") as task,
    ):
        child = await engine.sessions.create(parent=parent.id)
        one = await call(child, folder / "one", "1\n")
        await call(child, folder / "two", "2\n")
    assert told(await parent.undo(parts=[task.part.id])) == {"one": "deleted", "two": "deleted"}
    assert names(folder) == []
    found = await mark(parent, task.part.id)
    assert found is not None
    assert (found.files, found.left) == (2, None)
    assert await mark(child, one) is not None
    assert await changed(child) == await changed(parent) == {}
    assert told(await child.redo(parts=[one])) == {"one": "recreated"}
    found = await mark(parent, task.part.id)
    assert found is not None
    assert (found.files, found.left) == (1, 1)
    assert told(await parent.redo(messages=[begun.message.id])) == {"two": "recreated"}
    assert await mark(parent, task.part.id) is None
    assert names(folder) == ["one", "two"]


async def killed(place: EngineFactory, session: str, point: str, *order: str) -> int | None:
    """Have a process undo or redo, to be killed at a point."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.engine.revert_process"),
        *(str(place.folder), place.database, session, *order),
        cwd=ROOT,
        env={**os.environ, "KEDGE_FAILPOINT": point},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        await process.communicate()
    return process.returncode


async def counted(session: Session) -> SessionSummary:
    """What a session's summary should say."""
    diffs = await session.diff()
    return SessionSummary(
        additions=sum(each.additions for each in diffs),
        deletions=sum(each.deletions for each in diffs),
        files=len(diffs),
    )


PASSED = ("plan-stored", "after-exchange")


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=() if point in PASSED else pytest.mark.torture)
        for point in POINTS
        if not point.endswith("settle")
    ],
)
@pytest.mark.parametrize("act", [pytest.param("undo"), pytest.param("redo")])
async def test_killed_anywhere_it_is_done_in_the_end(
    place: EngineFactory, folder: Path, act: str, point: str
) -> None:
    """The next engine carries it through, with marks and receipts, and all goes on from there."""
    async with place.open() as engine:
        world = await World(await engine.sessions.create(), folder / "file").build()
        if act == "redo":
            await world.undo(1)
    status = await killed(place, world.session.id, point, act, world.parts[1])
    assert status in (-signal.SIGKILL, 0)
    assert status != 0 or point not in PASSED
    world.undone = {1} if act == "undo" else set()
    async with place.open() as engine:
        world.session = await engine.sessions.get(world.session.id)
        world.check()
        assert (await mark(world.session, world.parts[1]) is None) == (act == "redo")
        for again in (world.redo, world.undo) if act == "undo" else (world.undo, world.redo):
            assert world.session.info.summary == await counted(world.session)
            assert (await again(1)).applied
            world.check()
        assert world.session.info.summary == await counted(world.session)
        await world.revert(0)
        world.check()
        replayed, tables = await both(engine.store)
        assert replayed == tables


async def test_what_a_running_subtask_does_is_stopped_first(engine: Engine, folder: Path) -> None:
    """What it did goes with the call that it works for, also what it had just done."""
    parent = await engine.sessions.create()
    async with (
        parent.turn("Go on") as begun,
        begun.step() as step,
        step.tool("task", {}, effects="none") as task,
    ):
        child = await engine.sessions.create(parent=parent.id)
        await call(child, folder / "one", "1\n")
    is_on = asyncio.Event()

    async def work() -> None:
        async with child.turn("Go on") as running, running.step() as step:
            await write(step, folder / "two", "2\n")
            async with step.tool("bash", {}, effects="unknown"):
                put(folder / "three", "3\n")
                is_on.set()
                await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await is_on.wait()
    receipt = await parent.undo(messages=[begun.message.id])
    assert told(receipt) == {"one": "deleted", "three": "deleted", "two": "deleted"}
    with pytest.raises(TurnAborted):
        await working
    assert names(folder) == []
    assert await mark(parent, task.part.id) is not None
