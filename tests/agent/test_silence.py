"""The inactivity limit: when a subtask counts as hanging, and what its caller is told then."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kedge.agent import AgentSettings
from kedge.agent.silence import Silences, Timer
from kedge.domain.events import (
    PartUpdated,
    PermissionAsked,
    QuestionAsked,
    ServerHeartbeat,
    SessionIdle,
)
from kedge.domain.messages import MessageWithParts
from kedge.domain.parts import ToolCompleted, ToolError, ToolPart, ToolRunning
from kedge.domain.sessions import Idle
from kedge.engine.event_log import Event
from kedge.engine.session import Session
from tests.agent.tasks import begin, calls, children, metadata_of
from tests.agent.world import QUICK, Scene, World, check_closed, error_of, text_of

LIMIT = 600
"""Seconds; the default."""
WAITS = "bash until [ -e {0} ]; do sleep 0.02; done"
"""Says nothing until the test puts a file."""


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._count = 0

    async def sleep(self, seconds: float) -> None:
        """Wait until so much time was let pass."""
        woken = asyncio.Event()
        self._count += 1
        heapq.heappush(self._sleepers, (self.now + seconds, self._count, woken))
        await woken.wait()

    async def pass_by(self, seconds: float) -> None:
        """Let time pass; each sleeper is woken when it is due."""
        end = self.now + seconds
        while True:
            # Whoever was woken goes back to sleep, or does not.
            for _ in range(10):
                await asyncio.sleep(0)
            if not self._sleepers or self._sleepers[0][0] > end:
                break
            self.now, _, woken = heapq.heappop(self._sleepers)
            woken.set()
        self.now = end


class HeardSilences(Silences):
    """Tells what it has heard."""

    def __init__(self, scene: Scene, clock: Clock) -> None:
        super().__init__(scene.engine, Timer(lambda: clock.now, clock.sleep))
        self._events = scene.engine.events
        self._seq = self._beats = 0
        self._news = asyncio.Event()

    async def caught_up(self) -> None:
        """Wait until everything that was stored or told was heard."""
        head = int((await self._events.head()).rpartition("-")[2])
        beats = self._beats
        self._events.announce(ServerHeartbeat())
        while self._seq < head or self._beats == beats:
            self._news.clear()
            await self._news.wait()

    def _hear(self, event: Event) -> None:
        super()._hear(event)
        self._seq = max(self._seq, event.seq)
        self._beats += event.type == ServerHeartbeat.type
        self._news.set()


class Watched:
    """An agent at work whose limit goes by a clock of the test's."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._clock = Clock()
        self._silences = HeardSilences(scene, self._clock)
        scene.agent.subagents.silences = self._silences

    async def pass_by(self, seconds: float) -> None:
        """Let time pass once all that has happened was heard."""
        await self._silences.caught_up()
        await self._clock.pass_by(seconds)

    async def child(self, of: Session | None = None, number: int = 0) -> Session:
        """A subtask of a session."""
        while len(found := await children(self.scene, of)) <= number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return found[number]

    async def works(self, session: Session, tool: str = "bash", *, after: int = 0) -> int:
        """Wait until a tool runs in a session; of commands, until they say no more."""

        def runs(event: Any) -> bool:  # noqa: ANN401 - any event
            if not isinstance(event, PartUpdated) or event.part.sessionID != session.id:
                return False
            part = event.part
            if not isinstance(part, ToolPart) or part.tool != tool:
                return False
            shown = "output" if tool == "bash" else "sessionId"
            return isinstance(part.state, ToolRunning) and shown in (part.state.metadata or {})

        return await self.scene.heard.until(runs, after=after)

    async def is_over(self, running: asyncio.Task[MessageWithParts]) -> bool:
        """Whether the caller's turn has come to an end by itself."""
        await self._silences.caught_up()
        return running.done()


@asynccontextmanager
async def watched(world: World, settings: AgentSettings = QUICK) -> AsyncIterator[Watched]:
    """An agent at work, with a clock."""
    async with world.at_work(settings=settings) as scene:
        yield Watched(scene)


async def test_a_task_that_hangs(world: World) -> None:
    """Not before the limit; then it is stopped, and its caller goes on and knows why."""
    async with watched(world) as watch:
        scene = watch.scene
        running = await begin(scene, f"try task general {WAITS.format('go')}\nsay I go on.")
        child = await watch.child()
        await watch.works(child)
        await watch.pass_by(LIMIT - 1)
        assert not isinstance(await child.status(), Idle)
        await watch.pass_by(1)
        assert text_of(await running) == "I go on."
        (call,) = await calls(scene)
        assert error_of(call) == (
            f"Subagent failed (task_id: {child.id}): nothing was heard of it for 600 s, so it was"
            " stopped. What it did so far stays. Go on with this task_id, give it a smaller task,"
            " or do it yourself."
        )
        assert metadata_of(call)["sessionId"] == child.id
        await check_closed(scene, child)
        await check_closed(scene)


async def test_whatever_is_heard_begins_the_time_anew(world: World) -> None:
    """A task that works is never stopped, however long it takes."""
    async with watched(world) as watch:
        scene = watch.scene
        steps = "\n".join(WAITS.format(f"go{n}") for n in range(4))
        running = await begin(scene, f"task general <<END\n{steps}\nsay Done.\nEND\nshow")
        child = await watch.child()
        heard = 0
        for n in range(4):
            heard = await watch.works(child, after=heard)
            await watch.pass_by(LIMIT - 1)
            world.put(f"go{n}", "")
            heard = await scene.heard.until(
                lambda event: (
                    isinstance(event, PartUpdated)
                    and isinstance(event.part, ToolPart)
                    and event.part.sessionID == child.id
                    and isinstance(event.part.state, ToolCompleted)
                ),
                after=heard,
            )
        assert "Done." in text_of(await running)


@pytest.mark.parametrize("what", ["permission", "question"])
@pytest.mark.parametrize("depth", [1, 2])
async def test_a_person_may_think_for_days(world: World, what: str, depth: int) -> None:
    """While a task asks, or one below it, neither is stopped; from the answer on time runs
    again."""
    world.configure(
        subagent_depth=2,
        permission={"edit": "ask"},
        agent={"mine": {"mode": "all", "permission": {"task": "allow", "question": "allow"}}},
    )
    asks = "write new.txt hi" if what == "permission" else "ask Which? | red | blue"
    task = f"{asks}\n{WAITS.format('go')}"
    for n in range(depth):
        task = f"task mine <<END{n}\n{task}\nEND{n}"
    async with watched(world) as watch:
        scene = watch.scene
        running = await begin(scene, f"try {task}\nsay I go on.")
        caller, asking = scene.session, await watch.child()
        if depth == 2:
            caller, asking = asking, await watch.child(asking)
        asked: PermissionAsked | QuestionAsked
        if what == "permission":
            asked = await scene.heard.asked(PermissionAsked)
        else:
            asked = await scene.heard.asked(QuestionAsked)
        assert asked.sessionID == asking.id
        await watch.pass_by(100 * LIMIT)
        assert not await watch.is_over(running)
        if what == "permission":
            await scene.engine.asks.reply_permission(asked.id, "once")
        else:
            await scene.engine.asks.reply_question(asked.id, [["red"]])
        await watch.works(asking)
        await watch.pass_by(LIMIT - 1)
        assert not await watch.is_over(running)
        await watch.pass_by(1)
        assert text_of(await running) == "I go on."
        (call,) = await calls(scene, caller)
        assert f"(task_id: {asking.id}): nothing was heard" in error_of(call)
        await check_closed(scene, asking)
        await check_closed(scene)


async def test_only_the_one_that_asks_is_waited_for(world: World) -> None:
    """Another task of the same caller is stopped meanwhile."""
    world.configure(permission={"edit": "ask"})
    async with watched(world) as watch:
        scene = watch.scene
        running = await begin(
            scene, f"try task general {WAITS.format('go')}\nand task general write new.txt hi\nshow"
        )
        asked = await scene.heard.asked(PermissionAsked)
        (hanging,) = [
            each
            for each in [await watch.child(), await watch.child(number=1)]
            if each.id != asked.sessionID
        ]
        await watch.works(hanging)
        await watch.pass_by(LIMIT)
        await scene.heard.until(
            lambda event: isinstance(event, SessionIdle) and event.sessionID == hanging.id
        )
        assert not await watch.is_over(running)
        await scene.engine.asks.reply_permission(asked.id, "once")
        await running
        assert world.read("new.txt") == "hi\n"


async def test_a_task_below_is_stopped_first(world: World) -> None:
    """Who waits for it is not silent, hears what became of it, and goes on."""
    world.configure(subagent_depth=2, permission={"task": "allow"})
    async with watched(world) as watch:
        scene = watch.scene
        task = f"try task general {WAITS.format('go')}\nshow"
        running = await begin(scene, f"task general <<END\n{task}\nEND\nshow")
        child = await watch.child()
        below = await watch.child(child)
        await watch.works(below)
        await watch.pass_by(LIMIT)
        answer = text_of(await running)
        assert 'state="completed"' in answer
        assert f"(task_id: {below.id}): nothing was heard" in answer
        await check_closed(scene, child)


@pytest.mark.parametrize(
    ("said", "settings", "limit"),
    [
        ({}, AgentSettings(subagent_timeout=5), 5),
        ({"subagent_timeout": 90_000}, AgentSettings(subagent_timeout=5), 90),
        ({"subagent_timeout": False}, AgentSettings(subagent_timeout=5), None),
    ],
)
async def test_the_limit_is_a_setting(
    world: World, said: dict[str, Any], settings: AgentSettings, limit: int | None
) -> None:
    """Of the configuration, in milliseconds, or else of the program."""
    world.configure(**said)
    async with watched(world, settings) as watch:
        scene = watch.scene
        running = await begin(scene, f"try task general {WAITS.format('go')}\nsay I go on.")
        child = await watch.child()
        await watch.works(child)
        await watch.pass_by(1_000_000 if limit is None else limit - 1)
        assert not await watch.is_over(running)
        if limit is None:
            world.put("go", "")
        else:
            await watch.pass_by(1)
        assert text_of(await running) == "I go on."
        (call,) = await calls(scene)
        assert isinstance(call.state, ToolCompleted if limit is None else ToolError)
