"""Two sessions at work in one folder at once, both on the same files: whose change is whose, and
each can be undone alone."""

import asyncio
from functools import reduce

import pytest

from kedge.agent import Agent
from kedge.domain.messages import UserMessage
from kedge.domain.parts import ToolCompleted
from kedge.engine.session import Session
from tests.agent.world import Scene, World, check_closed, info_of, text_of, tools_of

Edits = dict[str, dict[str, str]]
"""Which lines of each file became what."""

LINES = [f"line {number:02}" for number in range(1, 41)]


def lay(world: World) -> None:
    """Two files that both sessions edit, far enough apart to be told apart."""
    for name in ("one.txt", "two.txt"):
        world.put(name, "\n".join(LINES) + "\n")


def script(who: str, first: int) -> str:
    """Edits of ten lines in both files, one step each, and a file of its own."""
    commands = [f"write {who}.txt I am {who}", "try read one.txt", "try read two.txt"]
    for number in range(first, first + 20, 4):
        for name in ("one.txt", "two.txt"):
            # An edit is refused when the other was there; it is read and done again then.
            commands += [
                f'try edit {name} "line {number:02}" "{who} {number:02}"',
                f"try read {name}",
                f'try edit {name} "line {number:02}" "{who} {number:02}"',
            ]
    return "\n".join([*commands, f"say {who} is done"])


async def edits(scene: Scene, session: Session) -> Edits:
    """What a session did to each file: its edits that were not refused."""
    calls = [part for each in await scene.answers(session) for part in tools_of(each)]
    done: Edits = {"one.txt": {}, "two.txt": {}}
    for call in calls:
        if call.tool == "edit" and isinstance(call.state, ToolCompleted):
            given = call.state.input
            name = str(given["filePath"]).rpartition("/")[2]
            done[name][given["oldString"]] = given["newString"]
    assert all(done.values()), "both sessions got something done in both files"
    return done


async def first_prompt(session: Session) -> str:
    """Where all of a session's work begins."""
    message = (await session.messages()).messages[0]
    assert isinstance(message.info, UserMessage)
    return message.info.id


def check_files(world: World, *done: Edits) -> None:
    """Both files hold these edits and no others."""
    for name in ("one.txt", "two.txt"):
        lines = [
            reduce(lambda line, each: each[name].get(line, line), done, line) for line in LINES
        ]
        assert world.read(name) == "\n".join(lines) + "\n"


ADA, BOB = ("ada", 1), ("bob", 22)


async def both(scene: Scene, other: Agent | None = None) -> tuple[Session, Session]:
    """Two sessions, prompted at once; the second perhaps in another engine."""
    agent = other or scene.agent
    ada = await scene.engine.sessions.create("Ada")
    bob = await agent.engine.sessions.create("Bob")
    found = await asyncio.gather(
        scene.agent.prompt(ada, script(*ADA)), agent.prompt(bob, script(*BOB))
    )
    assert [text_of(each) for each in found] == ["ada is done", "bob is done"]
    return ada, bob


@pytest.mark.parametrize("engines", [1, 2])
async def test_each_change_is_somebodys(world: World, engines: int) -> None:
    """Both sessions' edits are there, and each session's diff holds its own alone."""
    lay(world)
    async with (
        world.at_work() as scene,
        world.open() as engine,
        Agent(engine, environ=world.environ) as other,
    ):
        ada, bob = await both(scene, other if engines == 2 else None)
        done = [await edits(scene, ada), await edits(scene, bob)]
        check_files(world, *done)
        for session, who, own in ((ada, "ada", done[0]), (bob, "bob", done[1])):
            diffs = {each.file: each for each in await session.diff()}
            assert set(diffs) == {"one.txt", "two.txt", f"{who}.txt"}
            for name in ("one.txt", "two.txt"):
                assert (diffs[name].additions, diffs[name].deletions) == (len(own[name]),) * 2
            await check_closed(scene, session)


@pytest.mark.parametrize("first", ["ada", "bob"])
async def test_each_is_undone_alone(world: World, first: str) -> None:
    """Whichever is reverted first, the other's edits stay, and nothing is left of both at the
    end; taken back, all is there again."""
    lay(world)
    async with world.at_work() as scene:
        ada, bob = await both(scene)
        one, two = (ada, bob) if first == "ada" else (bob, ada)
        done = [await edits(scene, one), await edits(scene, two)]
        await one.revert(await first_prompt(one))
        check_files(world, done[1])
        assert not (world.folder / f"{first}.txt").exists()
        await two.revert(await first_prompt(two))
        check_files(world)
        assert not (world.folder / "ada.txt").exists()
        assert not (world.folder / "bob.txt").exists()
        await one.unrevert()
        await two.unrevert()
        check_files(world, *done)


async def test_commands_at_once_are_shared_and_said_so(world: World) -> None:
    """What two shells did at the same time cannot be told apart, and no revert pretends to."""
    lay(world)
    world.put(".gitignore", "*.here\n")
    command = (
        "bash touch {me}.here; until [ -e {other}.here ]; do sleep 0.01; done;"
        " echo {me} > {me}.md; until [ -e {other}.md ]; do sleep 0.01; done"
    )
    async with world.at_work() as scene:
        ada = await scene.engine.sessions.create("Ada")
        bob = await scene.engine.sessions.create("Bob")
        await asyncio.gather(
            scene.prompt(command.format(me="a", other="b"), ada),
            scene.prompt(command.format(me="b", other="a"), bob),
        )
        receipt = await ada.revert(await first_prompt(ada))
        assert {entry.path: entry.outcome for entry in receipt.files} == {
            "a.md": "shared",
            "b.md": "shared",
        }
        assert (world.folder / "a.md").exists()


async def test_both_write_the_same_line(world: World) -> None:
    """The second is refused until it has seen what the first did; nothing is lost unseen."""
    world.put("one.txt", "start\n")
    async with world.at_work() as scene:
        ada = await scene.engine.sessions.create("Ada")
        bob = await scene.engine.sessions.create("Bob")
        await scene.prompt("read one.txt", ada)
        await scene.prompt("read one.txt", bob)
        await asyncio.gather(
            scene.prompt("edit one.txt start ada", ada), scene.prompt("edit one.txt start bob", bob)
        )
        assert world.read("one.txt") in ("ada\n", "bob\n")
        winner, loser = (ada, bob) if world.read("one.txt") == "ada\n" else (bob, ada)
        assert [each.file for each in await winner.diff()] == ["one.txt"]
        assert await loser.diff() == []
        answers = await scene.answers(loser)
        assert info_of(answers[-1]).error is None
        await winner.revert(await first_prompt(winner))
        assert world.read("one.txt") == "start\n"
