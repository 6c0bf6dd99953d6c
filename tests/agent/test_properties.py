"""What holds whatever a model answers, however it fails, and whoever comes between."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kedge.domain.errors import PermissionNotFound, TurnAborted
from kedge.domain.events import (
    MessageUpdated,
    PartDelta,
    PartRemoved,
    PartUpdated,
    PermissionAsked,
    SessionStatusChanged,
)
from kedge.domain.file_states import Outcome
from kedge.domain.messages import AssistantMessage, Message, MessageWithParts, UserMessage
from kedge.domain.parts import Part, ToolCompleted, ToolError, ToolPart, part_ended
from kedge.domain.sessions import Idle
from tests.agent.scripts import DECISIONS, HAPPENINGS, SCRIPTS, Happening
from tests.agent.world import Scene, World, check_closed
from tests.support.model_server import ModelServer, Reply, Text, answer

Tree = dict[str, bytes]


@settings(
    max_examples=max(25, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=SCRIPTS, happenings=HAPPENINGS, decisions=DECISIONS)
async def test_whatever_happens(
    script: list[Reply],
    happenings: list[Happening],
    decisions: list[str],
    patient: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Calls end, messages are completed, busy is followed by idle, part ids ascend, deltas add up,
    listeners know what is stored, and every change of a file is the session's and can be undone."""
    world = World.made(tmp_path_factory.mktemp("properties"))
    replies = chain(script, repeat(answer(Text.of("Done."))))
    async with ModelServer(lambda _: next(replies)) as server:
        world.use(server, permission={"*": "allow", "bash": "ask"} if decisions else "allow")
        async with world.at_work() as scene:
            before = _tree(world.folder)
            async with _deciding(scene, decisions):
                await _play(scene, happenings)
            await check_closed(scene)
            _check_statuses(scene, _aborts(happenings, decisions))
            _check_parts(scene)
            await _check_listener(scene)
            await _check_files(scene, before)


@asynccontextmanager
async def _deciding(scene: Scene, decisions: list[str]) -> AsyncIterator[None]:
    """Somebody who answers every ask, after the given words with "once"."""
    decider = asyncio.create_task(_decide(scene, chain(decisions, repeat("once"))))
    try:
        yield
        assert not decider.done()
    finally:
        decider.cancel()
        await asyncio.gather(decider, return_exceptions=True)


async def _decide(scene: Scene, decisions: Iterator[str]) -> None:
    at = 0
    while True:
        at = await scene.heard.until(lambda event: isinstance(event, PermissionAsked), after=at)
        ask = scene.heard.events[at - 1].properties
        assert isinstance(ask, PermissionAsked)
        decision = next(decisions)
        try:
            match decision:
                case "abort":
                    await scene.agent.abort(scene.session)
                case "correct":
                    await scene.engine.asks.reply_permission(ask.id, "reject", message="no")
                case "once" | "always" | "reject":
                    await scene.engine.asks.reply_permission(ask.id, decision)
        except PermissionNotFound:
            # Another answer settled it, or its turn is over.
            continue


async def _play(scene: Scene, happenings: list[Happening]) -> None:
    asking = [asyncio.create_task(_ask(scene, "begin"))]
    for each in sorted(happenings, key=lambda each: each.after):
        if not await _reached(scene, each.after, asking):
            break
        match each.kind:
            case "abort":
                await scene.agent.abort(scene.session)
            case "prompt":
                asking.append(asyncio.create_task(_ask(scene, "and this")))
            case "no reply":
                await scene.prompt("to know", no_reply=True)
            case "leave":
                asking[-1].cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await scene.settled()
    # Whatever it was, the session goes on.
    await _ask(scene, "go on")
    await scene.settled()


async def _ask(scene: Scene, words: str) -> None:
    try:
        await scene.prompt(words)
    except TurnAborted:
        return


async def _reached(scene: Scene, count: int, asking: list[asyncio.Task[None]]) -> bool:
    """Wait until so many events were heard; False if there is nothing more to hear."""
    heard = asyncio.create_task(_heard(scene, count))
    over = asyncio.create_task(_all_over(asking))
    await asyncio.wait({heard, over}, return_when=asyncio.FIRST_COMPLETED)
    is_reached = heard.done()
    for task in (heard, over):
        task.cancel()
    await asyncio.gather(heard, over, return_exceptions=True)
    return is_reached


async def _all_over(asking: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(asking)


async def _heard(scene: Scene, count: int) -> None:
    if count:
        await scene.heard.until(lambda _: len(scene.heard.events) >= count)


def _aborts(happenings: list[Happening], decisions: list[str]) -> int:
    return decisions.count("abort") + sum(each.kind == "abort" for each in happenings)


def _check_statuses(scene: Scene, aborts: int) -> None:
    """Idle comes last; between two prompts the session is told to be idle once, and once more for
    an abort that finds it idle."""
    told = [each.status for each in scene.heard.of(SessionStatusChanged, scene.session.id)]
    assert isinstance(told[-1], Idle)
    again = [
        isinstance(one, Idle) and isinstance(two, Idle) for one, two in pairwise([Idle(), *told])
    ]
    assert sum(again) <= aborts


def _check_parts(scene: Scene) -> None:
    """Parts appear in the order of their ids, and one that has ended never changes."""
    newest: dict[str, str] = {}
    latest: dict[str, Part] = {}
    for told in scene.heard.of(PartUpdated, scene.session.id):
        part = told.part
        if part.id in latest:
            assert not part_ended(latest[part.id]) or latest[part.id] == part
        else:
            assert part.id > newest.get(part.messageID, "")
            newest[part.messageID] = part.id
        latest[part.id] = part
    calls = [part for part in latest.values() if isinstance(part, ToolPart)]
    removed = {each.partID for each in scene.heard.of(PartRemoved, scene.session.id)}
    for call in calls:
        assert call.id in removed or isinstance(call.state, ToolCompleted | ToolError)


async def _check_listener(scene: Scene) -> None:
    """Who only listens has the messages as they are stored, and each text piece by piece."""
    messages: dict[str, Message] = {}
    parts: dict[tuple[str, str], Part] = {}
    texts: dict[str, str] = {}
    for event in scene.heard.events:
        match event.properties:
            case MessageUpdated(info=info):
                messages[info.id] = info
            case PartUpdated(part=part):
                parts[part.messageID, part.id] = part
            case PartRemoved(messageID=message, partID=id):
                del parts[message, id]
            case PartDelta(partID=id, delta=delta):
                texts[id] = texts.get(id, "") + delta
    stored = await scene.messages()
    assert [each.info for each in stored] == _ordered(messages)
    for each in stored:
        home = each.info.id
        assert each.parts == [parts[key] for key in sorted(parts) if key[0] == home]
        _check_texts(each, texts)
        assert isinstance(each.info, UserMessage) or each.info.time.completed is not None


def _ordered(messages: dict[str, Message]) -> list[Message]:
    return sorted(messages.values(), key=lambda each: (each.time.created, each.id))


def _check_texts(message: MessageWithParts, texts: dict[str, str]) -> None:
    for part in message.parts:
        said: Any = getattr(part, "text", None)
        if said is not None and isinstance(message.info, AssistantMessage):
            assert texts.get(part.id, "") == said


async def _check_files(scene: Scene, before: Tree) -> None:
    """What the session is said to have changed is what is different; undone, nothing is, apart
    from what is said to be left because calls were at it at the same time."""
    told = {each.file: each.status for each in await scene.session.diff()}
    assert told == _changes(before, _tree(scene.world.folder))
    messages = await scene.messages()
    prompts = [each.info.id for each in messages if isinstance(each.info, UserMessage)]
    receipt = await scene.session.revert(prompts[0])
    left = {each.path for each in receipt.files if each.outcome is Outcome.CONFLICT}
    assert _changes(before, _tree(scene.world.folder)).keys() <= left, receipt
    assert not left or any(_writers(each) > 1 for each in messages), receipt


def _writers(message: MessageWithParts) -> int:
    tools = [part.tool for part in message.parts if isinstance(part, ToolPart)]
    return sum(tool in ("bash", "edit", "write") for tool in tools)


def _changes(before: Tree, after: Tree) -> dict[str, str]:
    changes = {}
    for name in before.keys() | after.keys():
        if name not in before:
            changes[name] = "added"
        elif name not in after:
            changes[name] = "deleted"
        elif before[name] != after[name]:
            changes[name] = "modified"
    return changes


def _tree(folder: Path) -> Tree:
    """All files with their content and whether they can be run, apart from git's own."""
    return {
        str(path.relative_to(folder)): bytes([path.stat().st_mode & 0o111 > 0]) + path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }
