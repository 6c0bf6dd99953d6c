"""How the offline model knows what to do next, though it remembers nothing."""

from dataclasses import replace

import pytest

from kedge.model.port import AssistantTurn, Media, Text, ToolCalled, ToolResult, ToolUse, UserTurn
from tests.model.offline.requests import (
    after,
    ask,
    events,
    in_short,
    refuse,
    request,
    run,
    said_by_model,
    said_by_person,
)


def inputs(calls: tuple[ToolCalled, ...]) -> list[object]:
    """The first argument of each call."""
    return [next(iter((call.input or {}).values())) for call in calls]


def prompt(text: str) -> Text:
    """A text that the agent marked as one to be answered."""
    return Text(text=text, is_prompt=True)


async def test_a_call_ends_a_step() -> None:
    """Each call is a step of its own, with the words before it, and the last step has no call."""
    answers = await run("think Hm.\nsay First.\nbash a\nsay Then.\nbash b\nsay Last.")
    assert [(a.thought, a.text, inputs(a.calls)) for a in answers] == [
        ("Hm.", "First.", ["a"]),
        ("", "Then.", ["b"]),
        ("", "Last.", []),
    ]
    assert [a.finish.reason for a in answers] == ["tool-calls", "tool-calls", "stop"]


async def test_joined_lines_are_one_step() -> None:
    """Lines with `and` belong to the step of the line before, words too."""
    answers = await run("bash a\nand bash b\nand say Both.\nbash c\nsay Done.")
    assert [(a.text, inputs(a.calls)) for a in answers] == [
        ("Both.", ["a", "b"]),
        ("", ["c"]),
        ("Done.", []),
    ]


async def test_the_end_without_words() -> None:
    """A script that ends with calls is closed by a sentence that names the tools."""
    answers = await run(said_by_person("hi"), said_by_model(), "bash a\nglob b\nbash c")
    assert answers[-1].text == "Done: bash, glob."


async def test_repeating() -> None:
    """What is repeated is a step each time, and may tell the rounds apart."""
    answers = await run("repeat 3 write f{n}.txt {n}\nsay {n} stays")
    assert [inputs(a.calls) for a in answers] == [["1\n"], ["2\n"], ["3\n"], []]
    assert answers[-1].text == "{n} stays"
    raw = await run('repeat 2 call x {"a": {n}}')
    assert [call.raw for a in raw for call in a.calls] == ['{"a": 1}', '{"a": 2}']
    nested = await run("repeat 2 todo round {n}")
    assert nested[1].calls[0].input == {
        "todos": [{"content": "round 2", "status": "pending", "priority": "medium"}]
    }


async def test_repeating_forever() -> None:
    """The same call for ever, for the guard against it; and steps without end that differ."""
    same = await run("repeat forever bash a\nsay never", most=30)
    assert [inputs(a.calls) for a in same] == [["a"]] * 30
    endless = await run("repeat forever bash {n}", most=30)
    assert [inputs(a.calls) for a in endless] == [[str(n)] for n in range(1, 31)]


async def test_a_call_that_fails_ends_the_script() -> None:
    """The model says what failed and what it leaves undone, and stops."""
    answers = await run("bash a\nbash b\nsay Done.", tool=refuse)
    assert len(answers) == 2
    assert answers[1].text.endswith("- bash: no\n\n2 more steps are not done.")
    answers = await run("bash a\nsay Done.", tool=refuse)
    assert answers[1].text.endswith("- bash: no\n\n1 more step is not done.")
    answers = await run("bash a", tool=refuse)
    assert answers[1].text.endswith("- bash: no")


async def test_trying() -> None:
    """A call that may fail does not end the script."""
    answers = await run("try bash a\nsay Done.", tool=refuse)
    assert answers[-1].text == "Done."
    answers = await run("try bash a\nbash b\nsay Done.", tool=refuse)
    assert len(answers) == 3
    assert "I stop here" in answers[-1].text


async def test_showing() -> None:
    """Results can be said, the long ones in short."""
    answers = await run("bash a\nand bash b\nshow")
    assert answers[-1].text == "bash done\n\nbash done"
    long = ToolResult(call_id="1", name="bash", output="x" * 20_000)
    answers = await run("bash a\nshow", tool=lambda call: replace(long, call_id=call.call_id))
    assert answers[-1].text == "x" * 10_000 + "\n(and 10000 more characters)"


async def test_prompts_that_waited_are_all_answered() -> None:
    """Several prompts since the last answer are one script after the other, words joined."""
    answers = await run("bash a", "say Between.", "hello", "hi", "bash b\nsay End.")
    assert [inputs(a.calls) for a in answers] == [["a"], ["b"], []]
    assert answers[1].text.startswith("Between.I am `kedge/offline`")
    assert answers[1].text.count("I am") == 1
    assert answers[2].text == "End."


async def test_a_prompt_in_the_middle() -> None:
    """A prompt that comes while a script runs is done after it."""
    history = [said_by_person(prompt("bash a\nbash b"))]
    history += after(await ask(*history))  # type: ignore[arg-type]  # both kinds of turn
    results = history.pop()
    assert isinstance(results, UserTurn)
    history.append(replace(results, content=(*results.content, prompt("bash c\nsay End."))))
    answers = await run(*history)
    assert [inputs(a.calls) for a in answers] == [["b"], ["c"], []]
    assert answers[-1].text == "End."


async def test_an_answer_ends_what_was_before_it() -> None:
    """After an answer without calls only what is new counts."""
    answer = await ask("bash a\nbash b", said_by_model("Stopped."), "say New.")
    assert (answer.text, answer.calls) == ("New.", ())


async def test_what_is_marked_is_all_that_counts() -> None:
    """An aborted script is not gone on with, nor is an attachment a script, if the agent says."""
    aborted = ToolUse(call_id="1", name="bash", input={"command": "a"})
    answer = await ask(
        "bash a\nbash b",
        AssistantTurn(content=(aborted,)),
        said_by_person(
            ToolResult(call_id="1", name="bash", output="ok"),
            "say left over",
            prompt("say New."),
            "bash from an attached file",
        ),
    )
    assert (answer.text, answer.calls) == ("New.", ())


@pytest.mark.parametrize("kind", ["auth", "overloaded", "cut"])
async def test_a_prompt_after_a_failure(kind: str) -> None:
    """A session is usable after its model failed, marked or not."""
    for made in (prompt, lambda text: Text(text=text)):
        turn = said_by_person(made(f"fail {kind}\nbash x"), made("say Hello."))
        answer = await ask(turn)
        assert (answer.text, answer.calls) == ("Hello.", ())


async def test_a_prompt_after_a_failed_call() -> None:
    """What a failed call ended is not gone on with at the next prompt."""
    history = [*after(await ask("bash a\nbash b"), refuse)]
    answer = await ask("bash a\nbash b", *history, "say New.")
    assert answer.text == "New."


async def test_files_alone() -> None:
    """A prompt of nothing but a file is chat."""
    answer = await ask(UserTurn(content=(Media(mime="image/png", data=b"x"),)))
    assert answer.text.startswith("I am `kedge/offline`")


async def test_a_conversation_that_is_empty() -> None:
    """Even nothing gets an answer."""
    assert (await ask()).text.startswith("Done.")


async def test_the_same_request_gets_the_same_events() -> None:
    """The model is deterministic, and its input may be used again."""
    asked = request("think a\nsay b\nbash c\nand write d.txt e")
    assert await events(asked) == await events(asked)
    assert in_short(await events(asked)).calls[0].call_id == "call_1_1_1"
