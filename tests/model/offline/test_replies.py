"""What the offline model says by itself."""

from dataclasses import replace

import pytest

from kedge.model.offline import offline_info, offline_provider
from kedge.model.offline.parser import VERBS
from kedge.model.port import Text
from tests.model.offline.requests import (
    ask,
    events,
    in_short,
    request,
    run,
    said_by_model,
    said_by_person,
)


async def test_the_first_reply_introduces() -> None:
    """At first the model says what it is, how to get a real one, and shows some commands."""
    answer = await ask("Hello, who are you?")
    for word in ("kedge/offline", "docs/configuration.md", "ANTHROPIC_API_KEY", "write hello.txt"):
        assert word in answer.text
    assert answer.finish.reason == "stop"


async def test_later_replies_are_short() -> None:
    """Who knows it already is not told again."""
    answer = await ask("hello", said_by_model(), "hello?")
    assert answer.text == "I only follow commands; say `help` for a list of them."
    answer = await ask("hello", said_by_model(), "wirte a.txt x")
    assert answer.text.endswith("Perhaps `write` is meant.")


async def test_the_first_turn_names_the_model_at_its_end() -> None:
    """Who begins with commands learns it too, unless the script has last words of its own."""
    assert "docs/configuration.md" in (await run("bash ls"))[-1].text
    assert (await run("bash ls\nsay End."))[-1].text == "End."


async def test_problems_are_told() -> None:
    """A script that cannot be read is answered by its lines, and nothing of it is done."""
    answer = await ask("hi", said_by_model(), "bash ls\nwrite it down\nsay")
    assert answer.calls == ()
    assert "- line 2: `it` does not look like a file" in answer.text
    assert "- line 3: write it as `say TEXT`." in answer.text
    assert "ANTHROPIC_API_KEY" in (await ask("write it down")).text


async def test_help_names_every_command() -> None:
    """What can be said can be looked up."""
    answer = await ask("help")
    for verb in VERBS.values():
        assert f"    {verb.usage} " in answer.text


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("write hello.txt Hello", "Write hello.txt Hello"),
        ("\n# a comment\nsay <<END\nHi\nEND", "Say"),
        ("one two three four five six seven eight", "One two three four five six seven"),
        ("x" * 100, "X" + "x" * 49),
        ("", "Nothing yet"),
        ("ß", "SS"),
        ("fail auth", "Fail auth"),
    ],
)
async def test_titles(prompt: str, title: str) -> None:
    """A title is made of the first words, whatever they would do."""
    for text in (Text(text=prompt), Text(text=prompt, is_prompt=True)):
        asked = replace(request(said_by_person(text), tools=()), purpose="title")
        assert in_short(await events(asked)).text == title


async def test_a_title_among_other_texts() -> None:
    """An instruction before the prompt, or a file after it, is not its title."""
    told = replace(request("Make a title for this:", "say a b"), purpose="title")
    assert in_short(await events(told)).text == "Say a b"
    files = said_by_person("Make a title:", Text(text="say a b", is_prompt=True), "a file")
    assert in_short(await events(replace(request(files), purpose="title"))).text == "Say a b"


def test_how_it_is_listed() -> None:
    """It is the one model of its provider, and free."""
    provider = offline_provider()
    assert (provider.id, list(provider.models)) == ("kedge", ["offline"])
    info = provider.models["offline"]
    assert info == offline_info()
    assert (info.id, info.providerID, info.cost.input, info.cost.output) == (
        "offline",
        "kedge",
        0,
        0,
    )
    assert info.capabilities.toolcall
