"""The judge of the kill test sees what is wrong with a prompt."""

from collections import Counter
from typing import Any

import pytest

from tests.torture.http_ledger import Prompt
from tests.torture.http_outcomes import left_open, run_of, trouble_with

Json = dict[str, Any]
FIRST = Prompt("p1", "the first", lines=1, is_acknowledged=True)
SECOND = Prompt("p2", "the second", lines=1, is_acknowledged=True)
ABORTED = {"name": "MessageAbortedError", "data": {"message": "The process ended"}}
NOT_RUN = {"name": "MessageAbortedError", "data": {"message": "Not run: too old"}}


def asked(prompt: Prompt) -> Json:
    """The message of a prompt."""
    return {
        "info": {"id": prompt.mark, "role": "user", "time": {}},
        "parts": [{"type": "text", "text": prompt.text}],
    }


def answer(parent: Prompt, *texts: str, **info: Any) -> Json:  # noqa: ANN401 - any JSON
    """A finished answer to a prompt; the last of its run, unless `finish` says otherwise."""
    told = {"finish": "stop", "parentID": parent.mark, "time": {"completed": 1}, **info}
    return {
        "info": {"id": f"to {parent.mark}", "role": "assistant", **told},
        "parts": [{"type": "text", "text": text} for text in texts],
    }


def kind_of(prompt: Prompt, messages: list[Json], *lines: str) -> str | None:
    """What is wrong, in a word."""
    trouble = trouble_with(prompt, messages, Counter(lines))
    return None if trouble is None else trouble[0]


def test_an_answer_to_the_end_is_right() -> None:
    """Its run says that it is done, and its commands ran; also if a later prompt gives the name."""
    assert kind_of(FIRST, [asked(FIRST), answer(FIRST, FIRST.done)], "p1.1") is None
    together = [asked(FIRST), asked(SECOND), answer(SECOND, FIRST.done, SECOND.done)]
    assert kind_of(FIRST, together, "p1.1") is None


def test_an_error_is_right() -> None:
    """It is said that it was cut off, or not run."""
    assert kind_of(FIRST, [asked(FIRST), answer(FIRST, error=ABORTED)], "p1.1") is None
    assert kind_of(FIRST, [asked(FIRST), answer(FIRST, error=NOT_RUN)]) is None


@pytest.mark.parametrize(
    ("kind", "messages", "lines"),
    [
        ("vanished prompt", [], []),
        ("vanished prompt", [asked(FIRST), asked(FIRST), answer(FIRST, FIRST.done)], ["p1.1"]),
        ("unanswered prompt", [asked(FIRST)], []),
        ("silent end", [asked(FIRST), answer(FIRST, finish="tool-calls")], ["p1.1"]),
        ("silent end", [asked(FIRST), asked(SECOND), answer(SECOND, SECOND.done)], ["p2.1"]),
        ("unanswered prompt", [asked(FIRST), asked(SECOND), answer(SECOND, error=NOT_RUN)], []),
        ("done without effect", [asked(FIRST), answer(FIRST, FIRST.done)], []),
        ("not run, but ran", [asked(FIRST), answer(FIRST, error=NOT_RUN)], ["p1.1"]),
    ],
)
def test_everything_else_is_wrong(kind: str, messages: list[Json], lines: list[str]) -> None:
    """Each way in which a prompt may get lost is told."""
    assert kind_of(FIRST, messages, *lines) == kind


def test_a_prompt_that_was_never_acknowledged_may_be_missing() -> None:
    """Nobody was promised anything."""
    assert kind_of(Prompt("p3", "the third", lines=1), []) is None


def test_a_run_begins_after_the_answers_to_earlier_prompts() -> None:
    """An answer that was created after a prompt is not for it, if it names an earlier one."""
    earlier, own = answer(FIRST, error=ABORTED), answer(SECOND, SECOND.done)
    assert run_of(SECOND, [asked(FIRST), asked(SECOND), earlier, own]) == [own]


def test_what_nobody_finishes_is_left_open() -> None:
    """Answers without an end, and calls that are still to run."""
    call = {"id": "a call", "type": "tool", "state": {"status": "running"}}
    message = answer(FIRST, time={})
    message["parts"].append(call)
    assert left_open([asked(FIRST), message]) == ["to p1", "a call"]
