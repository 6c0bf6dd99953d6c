"""Thoughts that a chat server sends as text, between tags, wherever these are torn."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.model.port import ModelEvent, ReasoningDelta, TextDelta, TextWasThought, ThoughtWasText
from kedge.model.pydantic_ai.stream import TaggedText
from tests.model.raw_scene import DONE, STOP, calls, chunk, failed, heard, merged, said, sse
from tests.model.scene import finish_of, text_of, thought_of

TAGS = ["think", "thinking", "seed:think"]

# Text, the thought in it, and the words that remain.
ANSWERS = [
    *((f"<{tag}>\nhm\n</{tag}>\n\nYes.", "hm\n", "Yes.") for tag in TAGS),
    ("[THINK]hm[/THINK]Yes.", "hm", "Yes."),
    ("\n <think>hm</think>Yes.", "hm", "Yes."),
    ("<think>\n\n</think>\n\nYes.", "", "Yes."),
    ("<think>a < b </thin> c</think>Yes.", "a < b </thin> c", "Yes."),
    ("<think>one</think>\n<think>two</think>Yes.", "onetwo", "Yes."),
    ("First, look.\nThen think.\n</think>\n\nYes.", "First, look.\nThen think.\n", "Yes."),
    ("Hm.\n</think>\nYes.", "Hm.\n", "Yes."),
    # Text that only mentions them.
    ("Use `<think>` here.", "", "Use `<think>` here."),
    ("Yes.\n<think>hm</think>\nNo.", "", "Yes.\n<think>hm</think>\nNo."),
    ("End with </think> please.\nYes.", "", "End with </think> please.\nYes."),
    ("```\n</think>\n```\nYes.", "", "```\n</think>\n```\nYes."),
    ("So:\n<think>\na\n</think>\nYes.", "", "So:\n<think>\na\n</think>\nYes."),
    ("<b>Yes.</b>", "", "<b>Yes.</b>"),
    ("<reasoning>Yes.</reasoning>", "", "<reasoning>Yes.</reasoning>"),
    ("<thought>Yes.</thought>\nNo.", "", "<thought>Yes.</thought>\nNo."),
    ("<thinker>Yes.", "", "<thinker>Yes."),
    ("<", "", "<"),
    ("Yes.\n</th", "", "Yes.\n</th"),
    ("  Yes.", "", "  Yes."),
    ("Yes. </think>", "", "Yes. </think>"),
]


def read(pieces: list[str]) -> tuple[str, str]:
    """Thought and text of an answer in pieces."""
    tagged = TaggedText()
    thought = text = ""
    for kind, piece in [*(out for each in pieces for out in tagged.feed(each)), *tagged.end()]:
        if kind == "thought":
            thought += piece
        elif kind == "text":
            text += piece
        else:
            assert piece == text
            thought, text = thought + text, ""
    return thought, text


@pytest.mark.parametrize(("whole", "thought", "text"), ANSWERS)
def test_tags_at_the_beginning_are_thoughts(whole: str, thought: str, text: str) -> None:
    """Whole, and in every single character."""
    assert read([whole]) == (thought, text)
    assert read(list(whole)) == (thought, text)


@given(st.sampled_from(ANSWERS), st.lists(st.integers(0, 60), max_size=6))
def test_wherever_they_are_torn(answer: tuple[str, str, str], cuts: list[int]) -> None:
    """Pieces make no difference."""
    whole, thought, text = answer
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    assert read(pieces) == (thought, text)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
async def test_tags_of_a_server(size: int) -> None:
    """DeepSeek's and Qwen's models on servers that do not know their tags."""
    whole = "<think>let me see</think>\n\nDone."
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    events = await heard(sse(*(said(piece) for piece in pieces), STOP, DONE))
    assert (thought_of(events), text_of(events)) == ("let me see", "Done.")


async def test_a_thought_without_its_opening_tag() -> None:
    """The template of some models writes it into the prompt; only the end shows what it was."""
    frames = [said("Let me "), said("see.\n"), said("</thi"), said("nk>\n\n"), said("Done."), STOP]
    events = merged(await heard(sse(*frames, DONE)))
    found: list[ModelEvent] = [
        each for each in events if isinstance(each, TextDelta | TextWasThought | ReasoningDelta)
    ]
    assert found == [
        TextDelta(text="Let me see.\n"),
        TextWasThought(text="Let me see.\n"),
        TextDelta(text="Done."),
    ]


async def test_servers_that_tell_thoughts_apart_need_no_tags() -> None:
    """After thoughts in their own field, a tag in the text is text."""
    frames = [chunk({"reasoning_content": "hm"}), said("A\n</think>\nB"), STOP, DONE]
    events = await heard(sse(*frames))
    assert (thought_of(events), text_of(events)) == ("hm", "A\n</think>\nB")


async def test_a_call_inside_of_a_thought() -> None:
    """A thought that a call interrupts goes on after it."""
    call = {"index": 0, "id": "a", "function": {"name": "read", "arguments": '{"filePath": "a"}'}}
    events = await heard(sse(said("<think>hm"), calls(call), said(" so</think>Yes."), STOP, DONE))
    assert (thought_of(events), text_of(events)) == ("hm so", "Yes.")


async def test_a_thought_that_never_ends() -> None:
    """Thoughts alone are no answer, nor is one that was cut short."""
    assert "empty answer" in str(await failed(sse(said("<think>hm, hm"), STOP, DONE)))
    cut = await failed(sse(said("<think>hm</think>"), chunk({}, "length"), DONE))
    assert cut.failure.name == "MessageOutputLengthError"


ALONE = [
    "<thinking>\n <step>do x</step>\n</thinking>",
    "<think>one</think>\n<think>two</think>",
    "It ends with\n</think>",
]


@pytest.mark.parametrize("whole", ALONE)
@pytest.mark.parametrize("size", [1, 5, 100])
async def test_an_answer_in_tags(whole: str, size: int) -> None:
    """A thought behind which nothing comes is what the model had to say."""
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    events = await heard(sse(*(said(piece) for piece in pieces), said("\n"), STOP, DONE))
    assert events[-2] == ThoughtWasText(text=whole)
    assert finish_of(events).reason == "stop"


async def test_thoughts_apart_and_in_tags() -> None:
    """Where thoughts come in their own field too, none of them is an answer."""
    frames = [said("<think>hm</think>"), chunk({"reasoning_content": "so"}), STOP, DONE]
    assert "empty answer" in str(await failed(sse(*frames)))
