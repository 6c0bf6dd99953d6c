"""What a call of a tool hears when the rules, or a person, decide about it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kedge
from kedge.agent.agents import FIRM, Agents, tool_switches
from kedge.agent.permissions import (
    PermissionCorrected,
    PermissionDenied,
    PermissionRejected,
    Permissions,
    QuestionDismissed,
)
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import ToolFailure
from kedge.config.values import Config
from kedge.domain.parts import ToolPart
from kedge.domain.permissions import PermissionAction, PermissionRequest, PermissionRule, Rulebook
from kedge.domain.questions import QuestionInfo, QuestionOption
from kedge.engine import upkeep
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.engine.steps import Step
from tests.engine.engine_factory import NEVER, PAUSES
from tests.support.timeouts import PATIENCE

WHICH = QuestionInfo(
    question="Which?", header="Which", options=[QuestionOption(label="Red", description="r")]
)


def rule(permission: str, pattern: str, action: PermissionAction) -> PermissionRule:
    """A rule."""
    return PermissionRule(permission=permission, pattern=pattern, action=action)


ASK_ALL = Rulebook(((rule("*", "*", "ask"),),))


@dataclass
class Scene:
    """A step of a turn, in which tools are called."""

    engine: Engine
    session: Session
    step: Step

    @asynccontextmanager
    async def call(self, rulebook: Rulebook) -> AsyncIterator[Call]:
        """A call whose permissions are decided by these rules."""
        async with self.step.tool("bash", {}) as running:
            yield Call(self.step, running, Permissions(rulebook))

    async def ask(
        self,
        rulebook: Rulebook,
        *patterns: str,
        permission: str = "bash",
        **metadata: Any,  # noqa: ANN401 - whatever people are shown
    ) -> None:
        """Ask, as a tool does."""
        async with self.call(rulebook) as call:
            always = [f"{pattern.split()[0]} *" for pattern in patterns]
            await call.ask(permission, patterns, always=always, metadata=metadata)

    async def waiting(self, count: int = 1) -> list[PermissionRequest]:
        """What is asked of people, as soon as so much is."""
        everything = self.engine.events.subscribe(after=self.engine.events.start)
        async with asyncio.timeout(PATIENCE), everything as events:
            async for _ in events:
                found = await self.engine.asks.permissions()
                if len(found) == count:
                    return found
        raise AssertionError("the events ended")


@pytest.fixture
async def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A step in a new session."""
    for name in PAUSES:
        monkeypatch.setattr(upkeep, name, NEVER)
    folder = tmp_path / "work"
    folder.mkdir()
    async with kedge.open(folder, database=str(tmp_path / "kedge.db")) as engine:
        session = await engine.sessions.create("s")
        async with session.turn("Work") as turn, turn.step() as step:
            yield Scene(engine, session, step)


async def test_what_is_allowed_is_not_asked(scene: Scene) -> None:
    """Neither what rules allow, nor what somebody allowed for good."""
    allow = Rulebook(((rule("bash", "*", "allow"),),))
    await scene.ask(allow, "ls", "rm x")
    task = asyncio.create_task(scene.ask(ASK_ALL, "echo a"))
    [request] = await scene.waiting()
    await scene.engine.asks.reply_permission(request.id, "always")
    await task
    await scene.ask(ASK_ALL, "echo b")
    assert await scene.engine.asks.permissions() == []


async def test_only_what_needs_it_is_asked_for(scene: Scene) -> None:
    """Of a line of commands those that no rule allows; the call that asks is named."""
    some = Rulebook(((rule("*", "*", "ask"), rule("bash", "ls *", "allow")),))
    task = asyncio.create_task(scene.ask(some, "ls a", "rm b", command="ls a && rm b"))
    [request] = await scene.waiting()
    assert request.patterns == ["rm b"]
    assert request.always == ["ls *", "rm *"]
    assert request.metadata == {"command": "ls a && rm b"}
    assert request.tool is not None
    assert request.tool.messageID == scene.step.message.id
    stored = (await scene.session.message(scene.step.message.id)).parts
    assert [each.callID for each in stored if isinstance(each, ToolPart)] == [request.tool.callID]
    await scene.engine.asks.reply_permission(request.id, "once")
    await task


async def test_a_denial_is_told_with_its_rules(scene: Scene) -> None:
    """Before anybody is asked for the rest of the line; the model goes on."""
    rules = Rulebook(((rule("edit", "*", "allow"), rule("bash", "rm *", "deny")),))
    with pytest.raises(PermissionDenied) as caught:
        await scene.ask(rules, "ls", "rm x")
    assert isinstance(caught.value, ToolFailure)
    assert "bash for rm x" in str(caught.value)
    assert '[{"permission":"bash","pattern":"rm *","action":"deny"}]' in str(caught.value)
    assert "edit" not in str(caught.value)
    assert await scene.engine.asks.permissions() == []


async def test_what_was_allowed_for_good_does_not_undo_a_denial(scene: Scene) -> None:
    """Somebody who allows it while one agent works does not mean the other, which may not."""
    task = asyncio.create_task(scene.ask(ASK_ALL, "a.txt", permission="edit"))
    [request] = await scene.waiting()
    await scene.engine.asks.reply_permission(request.id, "always")
    await task
    with pytest.raises(PermissionDenied):
        await scene.ask(Rulebook(((rule("edit", "*", "deny"),),)), "a.txt", permission="edit")


async def test_some_agents_are_not_helped_by_what_was_allowed_for_good(scene: Scene) -> None:
    """What was allowed to one that works is asked for again, and offers nothing to remember."""
    task = asyncio.create_task(scene.ask(ASK_ALL, "rm a"))
    [request] = await scene.waiting()
    await scene.engine.asks.reply_permission(request.id, "always")
    await task

    async def plan(pattern: str) -> None:
        async with scene.step.tool("bash", {}) as running:
            call = Call(scene.step, running, Permissions(ASK_ALL, firm=FIRM["plan"]))
            await call.ask("bash", [pattern], always=[pattern])

    planning = asyncio.create_task(plan("rm b"))
    [firm] = await scene.waiting()
    assert firm.always == []
    other = asyncio.create_task(scene.ask(ASK_ALL, "touch a"))
    [firm, request] = await scene.waiting(2)
    await scene.engine.asks.reply_permission(request.id, "always")
    await other
    assert [each.id for each in await scene.waiting()] == [firm.id]
    await scene.engine.asks.reply_permission(firm.id, "once")
    await planning


async def test_what_may_be_done_unasked(scene: Scene) -> None:
    """What rules allow, and where they ask what was allowed for good."""
    rules = Rulebook(
        ((rule("read", "*", "allow"), rule("read", "*.env", "ask"), rule("read", "x", "deny")),)
    )
    task = asyncio.create_task(scene.ask(rules, "b.env", permission="read"))
    [request] = await scene.waiting()
    await scene.engine.asks.reply_permission(request.id, "always")
    await task
    async with scene.call(rules) as call:
        found = await call.unasked("read", ["a", "a.env", "b.env", "x"])
    assert found == {"a", "b.env"}


async def test_the_rules_of_the_session_come_last(scene: Scene) -> None:
    """Also those that it got after the turn began; only restrictions are above them."""
    allow = Rulebook(((rule("*", "*", "allow"),),))
    await scene.ask(allow, "ls")
    await scene.session.update(permission=[rule("bash", "*", "deny")])
    with pytest.raises(PermissionDenied):
        await scene.ask(allow, "ls")
    await scene.session.update(permission=[rule("bash", "*", "allow")])
    await scene.ask(Rulebook(((rule("bash", "*", "deny"),),)), "ls")
    with pytest.raises(PermissionDenied):
        await scene.ask(allow.plus(restrictions=[[rule("*", "ls", "deny")]]), "ls")


async def test_a_rejection_ends_the_turn(scene: Scene) -> None:
    """Every call of the session that waits hears it, in the words that clients know."""
    tasks = [asyncio.create_task(scene.ask(ASK_ALL, word)) for word in ("ls", "rm x")]
    first, _ = await scene.waiting(2)
    await scene.engine.asks.reply_permission(first.id, "reject")
    for task in tasks:
        with pytest.raises(PermissionRejected) as caught:
            await task
        assert str(caught.value) == "The user rejected permission to use this specific tool call."
        assert not isinstance(caught.value, ToolFailure)


async def test_a_rejection_with_words_is_told_to_the_model(scene: Scene) -> None:
    """Only the call that it is about fails."""
    task = asyncio.create_task(scene.ask(ASK_ALL, "rm x"))
    [request] = await scene.waiting()
    await scene.engine.asks.reply_permission(request.id, "reject", "use mv")
    with pytest.raises(PermissionCorrected, match="use mv") as caught:
        await task
    assert isinstance(caught.value, ToolFailure)


async def test_nothing_in_particular_is_still_asked_for(scene: Scene) -> None:
    """A tool that names no pattern gets no permission by that."""
    task = asyncio.create_task(scene.ask(ASK_ALL))
    [request] = await scene.waiting()
    assert request.patterns == ["*"]
    await scene.engine.asks.reply_permission(request.id, "once")
    await task


async def test_people_are_shown_a_piece_of_what_is_long(scene: Scene) -> None:
    """A file of many megabytes is not sent to every client; what decides is sent whole."""
    word = "x" * 100_000
    shown: dict[str, Any] = {
        "diff": "é" * 1_000_000,
        "files": [{"patch": word, "n": 1}],
        "flag": True,
    }
    task = asyncio.create_task(scene.ask(ASK_ALL, word, **shown))
    [request] = await scene.waiting()
    assert request.patterns == [word]
    assert request.metadata["diff"].startswith("é" * 65536 + "\n… and 934464 more")
    assert len(request.metadata["files"][0]["patch"]) < 66_000
    assert (request.metadata["files"][0]["n"], request.metadata["flag"]) == (1, True)
    await scene.engine.asks.reply_permission(request.id, "once")
    await task


async def answered(scene: Scene, questions: Sequence[QuestionInfo]) -> list[list[str]]:
    """Put questions, as a tool does."""
    async with scene.call(ASK_ALL) as call:
        return await call.question(questions)


async def asked_questions(scene: Scene) -> str:
    """The id of the questions that wait, as soon as there are some."""
    async with (
        asyncio.timeout(PATIENCE),
        scene.engine.events.subscribe(after=scene.engine.events.start) as events,
    ):
        async for _ in events:
            if found := await scene.engine.asks.questions():
                return found[0].id
    raise AssertionError("the events ended")


async def test_a_question_is_put_and_answered(scene: Scene) -> None:
    """The call gets what was chosen."""
    task = asyncio.create_task(answered(scene, [WHICH]))
    await scene.engine.asks.reply_question(await asked_questions(scene), [["Red"]])
    assert await task == [["Red"]]


async def test_a_question_that_nobody_answers_ends_the_turn(scene: Scene) -> None:
    """As a rejected permission does."""
    task = asyncio.create_task(answered(scene, [WHICH]))
    await scene.engine.asks.reject_question(await asked_questions(scene))
    with pytest.raises(QuestionDismissed, match=r"^The user dismissed this question$") as caught:
        await task
    assert isinstance(caught.value, PermissionRejected)


async def test_a_prompt_switches_tools_off(scene: Scene) -> None:
    """What a prompt says of tools holds against all rules, and a switch that is on allows
    nothing."""
    rules = (
        Agents(Config(), scene.engine.data)
        .rulebook()
        .plus(restrictions=[tool_switches({"bash": False, "write": True})])
    )
    assert rules.is_off("bash")
    with pytest.raises(PermissionDenied):
        await scene.ask(rules, "ls")
    await scene.ask(rules, "a.txt", permission="edit")
    on = ASK_ALL.plus(restrictions=[tool_switches({"bash": True})])
    assert on.decide("bash", "ls").action == "ask"
