"""Leaving plan mode: the person decides, and the build agent goes on."""

import asyncio
from typing import Any

import pytest

from kedge.agent.tools.plan_exit import APPROVED
from kedge.domain.events import QuestionAsked
from kedge.domain.messages import AssistantMessage, UserMessage
from kedge.domain.parts import TextPart, ToolCompleted
from kedge.domain.questions import QuestionRequest
from tests.agent.world import Scene, World, check_closed, error_of, info_of, tools_of
from tests.support.timeouts import PATIENCE

PLANNED = "say First this, then that.\nplan_exit"


async def asked(scene: Scene) -> QuestionRequest:
    """The question, when it is asked."""
    await scene.heard.asked(QuestionAsked)
    (question,) = await scene.engine.asks.questions()
    return question


async def ended(scene: Scene, reply: list[str] | None) -> list[Any]:
    """The messages of a planned turn whose question gets a reply, or is dismissed."""
    async with asyncio.timeout(PATIENCE):
        running = asyncio.create_task(scene.prompt(PLANNED, agent="plan", model="kedge/offline"))
        question = await asked(scene)
        if reply is None:
            await scene.engine.asks.reject_question(question.id)
        else:
            await scene.engine.asks.reply_question(question.id, [reply])
        await running
    await scene.settled()
    await check_closed(scene)
    return await scene.messages()


async def test_the_person_approves_the_plan(world: World) -> None:
    """The build agent is prompted in the same turn, by a text that clients do not show."""
    async with world.at_work() as scene:
        prompt, plan, told, built = await ended(scene, ["Yes"])
        (question,) = scene.heard.of(QuestionAsked)[0].questions
        assert (question.header, question.custom) == ("Build Agent", False)
        assert [option.label for option in question.options] == ["Yes", "No"]
        (call,) = tools_of(plan)
        assert isinstance(call.state, ToolCompleted)
        assert call.state.title == "Switching to build agent"
        assert isinstance(told.info, UserMessage)
        assert (prompt.info.agent, told.info.agent, told.info.model) == (
            "plan",
            "build",
            prompt.info.model,
        )
        (text,) = told.parts
        assert isinstance(text, TextPart)
        assert (text.text, text.synthetic) == (APPROVED, True)
        assert isinstance(built.info, AssistantMessage)
        assert (built.info.agent, built.info.parentID) == ("build", told.info.id)
        assert (await scene.session.refresh()).info.agent == "build"


@pytest.mark.parametrize("reply", [["No"], [], None], ids=["no", "nothing", "dismissed"])
async def test_the_person_stays_with_the_plan(world: World, reply: list[str] | None) -> None:
    """The turn ends, and the next prompt is one to the plan agent."""
    async with world.at_work() as scene:
        _, plan = await ended(scene, reply)
        assert error_of(tools_of(plan)[0]).startswith("The user ")
        assert info_of(plan).error is None
        assert (await scene.session.refresh()).info.agent == "plan"


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("build", {}),
        ("build", {"permission": "allow"}),
        ("plan", {"agent": {"build": {"disable": True}}}),
        ("plan", {"agent": {"plan": {"permission": {"plan_exit": "deny"}}}}),
    ],
)
async def test_who_cannot_leave_plan_mode(world: World, agent: str, said: dict[str, Any]) -> None:
    """Those who are not in it, those whom a rule denies it, and those with nobody to hand over
    to."""
    world.configure(**said)
    async with world.at_work() as scene:
        await scene.prompt("call plan_exit", agent=agent, model="kedge/offline")
        assert "There is no tool 'plan_exit' here" in error_of(
            tools_of((await scene.answers())[0])[0]
        )


async def test_an_abort_while_it_asks(world: World) -> None:
    """Nothing is left to be answered."""
    async with world.at_work() as scene:
        await scene.agent.submit(scene.session, PLANNED, agent="plan", model="kedge/offline")
        async with asyncio.timeout(PATIENCE):
            await asked(scene)
            assert await scene.agent.abort(scene.session)
        assert await scene.engine.asks.questions() == []
        assert len(await scene.messages()) == 2
        await check_closed(scene)
