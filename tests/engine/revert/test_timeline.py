"""Reverts as actors of the timeline: what one writes is nobody else's change."""

from functools import partial
from pathlib import Path

import pytest

from kedge._failpoints import armed
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.store.queries.changes import changes_between
from kedge.store.queries.timeline import open_calls
from tests.engine.revert.scene import Crash, crash, lines, names, put, told, turn


async def recorded(session: Session) -> list[tuple[str, bytes]]:
    """Source and path of everything that is recorded of a session."""
    store = session._engine.store
    found = await store.scan(partial(changes_between, session.id, 0))
    return [(change.source, change.path) for change in found]


async def test_a_running_shell_is_not_charged_for_a_revert(engine: Engine, folder: Path) -> None:
    """Of another session; what its own command did meanwhile is its own."""
    put(folder / "a", "base\n")
    one, two = [await engine.sessions.create() for _ in range(2)]
    prompt = await turn(one, (folder / "a", "1\n"), (folder / "b", "2\n"))
    async with (
        two.turn("Run") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        await one.revert(prompt)
        put(folder / "c", "3\n")
    assert await recorded(two) == [("observed", b"c")]
    assert await engine.store.read(partial(open_calls, one.id)) == []
    async with (
        two.turn("Run again") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        await one.unrevert()
    assert await recorded(two) == [("observed", b"c")]
    assert told(await two.revert(begun.message.id)) == {}


async def test_a_revert_in_the_middle_of_a_command_merges(engine: Engine, folder: Path) -> None:
    """What a command writes to a file after a revert touched it is the command's."""
    put(folder / "a", "base\n")
    one, two = [await engine.sessions.create() for _ in range(2)]
    prompt = await turn(one, (folder / "a", "1\n"))
    async with (
        two.turn("Run") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        await one.revert(prompt)
        put(folder / "a", "by the command\n")
    assert await recorded(two) == [("observed", b"a")]
    assert told(await two.revert(begun.message.id)) == {"a": "restored"}
    assert (folder / "a").read_text() == "base\n"


async def test_sessions_revert_one_after_the_other(engine: Engine, folder: Path) -> None:
    """Each takes out its own lines, in whatever order; unreverts bring back what was there."""
    file = folder / "file"
    put(file, lines())
    one, two = [await engine.sessions.create() for _ in range(2)]
    first = await turn(one, (file, lines((1, "one"))))
    second = await turn(two, (file, lines((1, "one"), (5, "two"))))
    both = file.read_text()
    assert told(await one.revert(first)) == {"file": "merged"}
    assert told(await two.revert(second)) == {"file": "merged"}
    assert file.read_text() == lines()
    await one.unrevert()
    assert file.read_text() == lines((1, "one"))
    await two.unrevert()
    assert file.read_text() == both


async def test_a_revert_that_is_carried_through_is_not_charged_either(
    engine: Engine, folder: Path
) -> None:
    """Its process died in the middle of it, while another session's command ran."""
    put(folder / "a", "base\n")
    one, two = [await engine.sessions.create() for _ in range(2)]
    prompt = await turn(one, (folder / "a", "1\n"), (folder / "b", "2\n"))
    async with (
        two.turn("Run") as begun,
        begun.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        with armed("plan-stored", crash), pytest.raises(Crash):
            await one.revert(prompt)
        await engine.recovery.recover()
        put(folder / "c", "3\n")
    assert names(folder) == ["a", "c"]
    assert await recorded(two) == [("observed", b"c")]
    assert await engine.store.read(partial(open_calls, one.id)) == []
