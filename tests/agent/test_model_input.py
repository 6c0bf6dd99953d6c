"""What the model is told of the conversation, and that providers accept it whatever happened."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from kedge.agent.model_input import NO_ANSWER, NO_WORDS, NOT_ANSWERED, NOT_RUN, ModelTurn, turns_of
from kedge.domain.conversation import PlacedMessage, PromptState
from kedge.domain.events import PermissionAsked
from kedge.domain.messages import (
    AssistantMessage,
    MessageModel,
    MessagePath,
    MessageTime,
    MessageWithParts,
    UserMessage,
)
from kedge.domain.parts import Part, ReasoningPart, TextPart, ToolPart, ToolPending
from kedge.domain.sessions import NO_TOKENS
from kedge.domain.wire_errors import Failure, not_run
from kedge.model.port import AssistantTurn, Text, ToolResult, ToolUse, UserTurn
from tests.agent.world import Scene, World, check_closed, text_of
from tests.support import model_server as says
from tests.support.model_server import Cut, ModelServer, Refusal, Reply, Request, Wait, answer

FINE = answer(says.Text.of("fine"))
SLEEP = says.Call.of("bash", command="sleep 600", description="s")
LOOK = says.Call.of("read", filePath="a.txt")
BROKEN = says.Call(name="read", pieces=('{"filePath": ',))


def check_accepted(request: Request) -> None:
    """Hold a request to what both providers demand of a conversation."""
    if request.path.endswith("/messages"):
        _check_anthropic(request.body["messages"])
    else:
        _check_openai([each for each in request.messages if each["role"] != "system"])


def _check_openai(messages: list[dict[str, Any]]) -> None:
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] in ("user", "tool")
    open: list[str] = []
    for each in messages:
        if each["role"] == "tool":
            open.remove(each["tool_call_id"])
            continue
        assert open == [], "every call is answered before anything else"
        open = [call["id"] for call in each.get("tool_calls") or []]
        assert open or each["content"], "a message says something"
    assert open == []


def _check_anthropic(messages: list[dict[str, Any]]) -> None:
    roles = [each["role"] for each in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    open: list[str] = []
    for each in messages:
        blocks = each["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(open), "every call is answered in the next message"
        open = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        assert all(block["signature"] for block in blocks if block["type"] == "thinking")
        assert blocks
        assert blocks[-1]["type"] != "thinking"


async def _abort_tool(scene: Scene, caller: asyncio.Task[Any]) -> None:
    await scene.works()
    await scene.agent.abort(scene.session)
    await caller


async def _abort_speech(scene: Scene, caller: asyncio.Task[Any]) -> None:
    await scene.speaks()
    await scene.agent.abort(scene.session)
    await caller


async def _abort_call(scene: Scene, caller: asyncio.Task[Any]) -> None:
    await scene.heard.until(lambda each: isinstance(getattr(each, "part", None), ToolPart))
    await scene.agent.abort(scene.session)
    await caller


async def _reject(scene: Scene, caller: asyncio.Task[Any]) -> None:
    asked = await scene.heard.asked(PermissionAsked)
    await scene.engine.asks.reply_permission(asked.id, "reject")
    await caller


async def _nothing(scene: Scene, caller: asyncio.Task[Any]) -> None:
    await caller


ENDINGS: dict[str, tuple[list[Reply], Any]] = {
    "abort in a tool": ([answer(says.Text.of("so"), SLEEP)], _abort_tool),
    "abort in a tool beside one that is done": ([answer(LOOK, SLEEP)], _abort_tool),
    "abort in a text": ([answer(says.Text.of("so"), Wait())], _abort_speech),
    "abort in a thought": (
        [answer(says.Thinking.of("hm", signature="x"), Wait())],
        _abort_speech,
    ),
    "abort in the arguments of a call": ([answer(BROKEN, Wait())], _abort_call),
    "reject": ([answer(says.Call.of("bash", command="touch x", description="t"))], _reject),
    "error after a tool": ([answer(LOOK), Refusal(status=400)], _nothing),
    "error at once": ([Refusal(status=400)], _nothing),
    "cut after a call": ([answer(LOOK, says.Text.of("and"), Cut()), FINE], _nothing),
    "cut in a call": ([answer(BROKEN, Cut()), FINE], _nothing),
    "arguments that are no JSON": ([answer(BROKEN), FINE], _nothing),
    "a tool that is not there": ([answer(says.Call.of("fly")), FINE], _nothing),
    # Each is asked for twice more.
    "only a thought": ([answer(says.Thinking.of("hm", signature="x"))] * 3, _nothing),
    "nothing at all": ([answer()] * 3, _nothing),
    "only blanks": ([answer(says.Text.of("  \n"))] * 3, _nothing),
}


@pytest.mark.parametrize("npm", ["openai-compatible", "anthropic"])
@pytest.mark.parametrize("how", ENDINGS)
async def test_the_next_request_is_accepted(world: World, npm: str, how: str) -> None:
    """However an answer ended, the conversation that follows has no dangling call and no empty
    message."""
    replies, end = ENDINGS[how]
    async with ModelServer([*replies, FINE]) as server:
        permission = {"bash": "ask"} if how == "reject" else {}
        world.use(server, npm=npm, permission=permission)
        async with world.at_work() as scene:
            await end(scene, asyncio.create_task(scene.prompt("go")))
            await check_closed(scene)
            assert text_of(await scene.prompt("and on")) == "fine"
            for request in server.requests:
                check_accepted(request)
            assert server.requests[-1].prompt.endswith("and on")


def person(
    id: str,
    *texts: str,
    state: PromptState = PromptState.SETTLED,
    **fields: Any,  # noqa: ANN401 - of a part
) -> PlacedMessage:
    """A prompt; its place is its id."""
    info = UserMessage(
        id=id,
        sessionID="ses",
        time=MessageTime(created=0),
        agent="build",
        model=MessageModel(providerID="p", modelID="m"),
    )
    parts: list[Part] = [
        TextPart(text=text, **part_ids(id, n), **fields) for n, text in enumerate(texts)
    ]
    message = MessageWithParts(info=info, parts=parts)
    return PlacedMessage(message=message, pos=int(id), state=state)


def model(id: str, parent: str, *parts: Part, error: Failure | None = None) -> PlacedMessage:
    """An answer; its place is its id."""
    info = AssistantMessage(
        id=id,
        sessionID="ses",
        parentID=parent,
        mode="build",
        agent="build",
        modelID="m",
        providerID="p",
        path=MessagePath(cwd="/", root="/"),
        cost=0,
        tokens=NO_TOKENS,
        time=MessageTime(created=0, completed=1),
        error=error,
    )
    return PlacedMessage(message=MessageWithParts(info=info, parts=list(parts)), pos=int(id))


def part_ids(message: str, n: int) -> dict[str, Any]:
    """Where a part is."""
    return {"id": f"{message}-{n}", "sessionID": "ses", "messageID": message}


def said(id: str, text: str) -> TextPart:
    """Words of a model."""
    return TextPart(text=text, **part_ids(id, 0))


def words(messages: list[PlacedMessage], prompts: Collection[str] = ()) -> list[str]:
    """The turns in short."""
    return [short(turn) for turn in turns_of(messages, prompts)]


def short(turn: ModelTurn) -> str:
    """A turn in short."""
    side = "M" if isinstance(turn, AssistantTurn) else "P"
    texts = [each.text for each in turn.content if isinstance(each, Text)]
    return f"{side}: {' '.join(texts)}"


def test_what_is_asked_together_is_one_turn() -> None:
    """So are notes and the prompt that they are read with."""
    for state in (PromptState.JOINED, PromptState.NOTE):
        messages = [person("1", "a", "b", state=state), person("2", "c")]
        messages.append(model("3", "2", said("3", "d")))
        assert words([*messages, person("4", "e")]) == ["P: a b c", "M: d", "P: e"]


def test_what_nobody_answered_stands_alone() -> None:
    """Else the model would do it with what is asked next."""
    for state in (PromptState.SETTLED, PromptState.FAILED):
        messages = [
            person("1", "a", state=state),
            person("2", "b"),
            model("3", "2", said("3", "c")),
        ]
        assert words(messages) == ["P: a", f"M: {NOT_ANSWERED}", "P: b", "M: c"]


def test_a_prompt_stands_behind_the_answer_it_came_during() -> None:
    """It may be stored before that answer begins, or between two of its steps."""
    step, last = said("0", "A"), said("0", "B")
    expected = ["P: one", "M: A B", "P: two"]
    orders: list[list[PlacedMessage]] = [
        [person("1", "one"), person("2", "two"), model("3", "1", step), model("4", "1", last)],
        [person("1", "one"), model("2", "1", step), person("3", "two"), model("4", "1", last)],
        [person("1", "one"), model("2", "1", step), model("3", "1", last), person("4", "two")],
    ]
    for messages in orders:
        assert words(messages) == expected
        (two,) = [each for each in messages if each.message.info.id != "1" and not _answers(each)]
        answered = model("5", two.message.info.id, said("5", "C"))
        assert words([*messages, answered]) == [*expected, "M: C"]


def _answers(each: PlacedMessage) -> bool:
    return isinstance(each.message.info, AssistantMessage)


def test_a_note_stands_where_it_was_read() -> None:
    """The step behind it knew it."""
    call = ToolPart(tool="x", callID="c", state=ToolPending(input={}, raw=""), **part_ids("2", 0))
    messages = [person("1", "a"), model("2", "1", call), person("3", "n", state=PromptState.NOTE)]
    before = words(messages)
    assert before == ["P: a", "M: ", "P: n"]
    assert words([*messages, model("4", "1", said("4", "b"))]) == [*before, "M: b"]
    early = [person("1", "a"), person("2", "n", state=PromptState.NOTE)]
    assert words([*early, model("3", "1", said("3", "b"))]) == ["P: a n", "M: b"]


def test_a_prompt_that_waited_stands_behind_a_command() -> None:
    """What ran before the prompt was taken up is no answer to it, then and later."""
    command, ran = person("2", "a command"), model("3", "2", said("3", "done"))
    waited = person("1", "waited", state=PromptState.TAKEN)
    expected = ["P: a command", "M: done", "P: waited"]
    assert words([waited, command, ran], ["1"]) == expected
    answered = [person("1", "waited"), command, ran, model("4", "1", said("4", "so"))]
    assert words(answered) == [*expected, "M: so"]


def test_a_prompt_that_waits_is_not_told() -> None:
    """Nor one that nobody runs and that has yet to be told so."""
    for state in (PromptState.WAITING, PromptState.LEFT, PromptState.SPENT, PromptState.TAKEN):
        waiting = person("1", "waits", state=state)
        assert words([waiting, person("2", "a"), model("3", "2", said("3", "b"))]) == [
            "P: a",
            "M: b",
        ]


def test_a_prompt_that_is_told_late_why_nobody_ran_it() -> None:
    """It stands with what it is told, and not where it waited."""
    messages = [person("1", "spent"), person("2", "a"), model("3", "2", said("3", "b"))]
    told = model("4", "1", error=not_run("its process ended"))
    later = [*messages, told, person("5", "c")]
    assert words(later) == ["P: a", "M: b", "P: spent", f"M: {NOT_RUN}", "P: c"]


def test_a_prompt_that_is_told_in_the_middle_of_another_run() -> None:
    """The request of that run still ends with what the model has to answer."""
    call = ToolPart(tool="x", callID="c", state=ToolPending(input={}, raw=""), **part_ids("2", 0))
    messages = [person("1", "a"), model("2", "1", call), person("3", "withdrawn")]
    messages.append(model("4", "3", error=not_run("nobody waits")))
    sent = words(messages)
    assert sent == ["P: a", "M: ", "P: "]
    later = [*messages, model("5", "1", said("5", "b")), person("6", "c")]
    assert words(later) == [*sent, "M: b", "P: withdrawn", f"M: {NOT_RUN}", "P: c"]


def test_an_answer_to_a_message_that_is_gone_keeps_its_place() -> None:
    """Whoever removed the prompt did not change the order of the rest."""
    messages = [person("1", "one"), model("2", "0", said("2", "A")), person("3", "two")]
    assert words(messages) == ["P: one", "M: A", "P: two"]


def test_a_person_begins() -> None:
    """Providers refuse a conversation that the model begins, because the first prompt is gone."""
    messages = [model("2", "1", said("2", "A")), person("3", "two")]
    assert words(messages) == [f"P: {NO_WORDS[0].text}", "M: A", "P: two"]


def test_only_what_is_meant_for_the_model_is_told() -> None:
    """Texts that are empty or marked as ignored are left out."""
    first = person("1", "", "a", state=PromptState.JOINED)
    assert words([first, person("2", "hidden", ignored=True)]) == ["P: a"]


def test_a_call_that_is_still_open_has_a_result() -> None:
    """A provider would refuse it otherwise."""
    call = ToolPart(
        tool="bash",
        callID="c",
        state=ToolPending(input={"command": "x"}, raw=""),
        **part_ids("2", 0),
    )
    asked, answered = turns_of([person("1", "a"), model("2", "1", call)])[1:]
    assert isinstance(asked, AssistantTurn)
    assert asked.content == (ToolUse(call_id="c", name="bash", input={"command": "x"}),)
    assert isinstance(answered, UserTurn)
    (result,) = answered.content
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.is_error) == ("c", True)


def test_a_thought_alone_is_not_told() -> None:
    """Providers refuse a message that only thinks."""
    thought = ReasoningPart(text="hm", metadata=None, time=None, **part_ids("2", 0))  # type: ignore[arg-type]  # an old part has no time
    assert words([person("1", "a"), model("2", "1", thought), person("3", "b")]) == [
        "P: a",
        f"M: {NO_ANSWER}",
        "P: b",
    ]


def test_prompts_that_are_answered_now_are_marked() -> None:
    """What was typed, and neither older prompts nor what kedge added to them."""
    shown = person("2", "typed", state=PromptState.TAKEN)
    shown.message.parts.append(TextPart(text="added", synthetic=True, **part_ids("2", 9)))
    messages = [person("1", "old", state=PromptState.NOTE), shown]
    (turn,) = turns_of(messages, ["2"])
    assert isinstance(turn, UserTurn)
    marked = [each.text for each in turn.content if isinstance(each, Text) and each.is_prompt]
    assert marked == ["typed"]


def test_somebody_speaks_between_two_answers() -> None:
    """A prompt without words does not make the model answer itself, which providers refuse."""
    nothing = f"P: {NO_WORDS[0].text}"
    told = [person("1", " \n"), model("2", "1", said("2", "one")), person("3", "", ignored=True)]
    assert words(told) == [nothing, "M: one", nothing]
    told[-1] = replace(told[-1], state=PromptState.JOINED)
    assert words([*told, person("4", "two")]) == [nothing, "M: one", "P: two"]


def test_calls_have_names_that_every_provider_takes() -> None:
    """Their ids are unique in the conversation, and the names of tools are plain."""
    given = [("call_0", "multi_tool_use.parallel"), ("call_0", ""), ("", "x" * 99)]
    calls = [
        ToolPart(tool=name, callID=id, state=ToolPending(input={}, raw=""), **part_ids("2", n))
        for n, (id, name) in enumerate(given)
    ]
    (_, answer, results) = turns_of([person("1", "a"), model("2", "1", *calls)])
    assert isinstance(answer, AssistantTurn)
    uses = [each for each in answer.content if isinstance(each, ToolUse)]
    assert [each.name for each in uses] == ["multi_tool_use_parallel", "invalid", "x" * 64]
    assert len({each.call_id for each in uses}) == 3
    assert isinstance(results, UserTurn)
    heard = [each for each in results.content if isinstance(each, ToolResult)]
    assert [(each.call_id, each.name) for each in heard] == [(u.call_id, u.name) for u in uses]


def test_calls_that_are_named_as_others_would_be() -> None:
    """A name that is made up is no other call's name."""
    calls = [
        ToolPart(tool="x", callID=id, state=ToolPending(input={}, raw=""), **part_ids("2", n))
        for n, id in enumerate(["a", "a_2", "a"])
    ]
    answer = turns_of([person("1", "a"), model("2", "1", *calls)])[1]
    assert len({each.call_id for each in answer.content if isinstance(each, ToolUse)}) == 3
