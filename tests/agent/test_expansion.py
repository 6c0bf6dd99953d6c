"""What becomes of a command's template and its arguments."""

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.agent.expansion import ShellLine, expanded, hints, pieces, split_arguments


def text_of(template: str, arguments: str, output: str = "OUT") -> str:
    """The whole text, where every line says the same."""
    found = pieces(template, arguments)
    lines = [piece.command for piece in found if isinstance(piece, ShellLine)]
    return expanded(found, dict.fromkeys(lines, output)).text


def lines_of(template: str, arguments: str) -> list[str]:
    """The lines that run."""
    return [each.command for each in pieces(template, arguments) if isinstance(each, ShellLine)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two", ["one", "two"]),
        ("  'one two'  \"three  four\"\tfive ", ["one two", "three  four", "five"]),
        ("see [Image 12] here", ["see", "[Image 12]", "here"]),
        ("a'b c'd", ["a", "b c", "d"]),
        ("it's", ["it", "s"]),
        ("''", [""]),
        ("", []),
    ],
)
def test_arguments(text: str, expected: list[str]) -> None:
    """Words, images, and what stands in quotes."""
    assert split_arguments(text) == expected


@pytest.mark.parametrize(
    ("template", "arguments", "expected"),
    [
        ("say hello $ARGUMENTS", "big world", "say hello big world"),
        ("$1 then $2", "a b c d", "a then b c d"),
        ("$2 $1", "a b c", "b c a"),
        ("$1 $1", "a b", "a b a b"),
        ("$3|$1", "a", "|a"),
        ("$0.", "a", "."),
        ("plain", " more ", "plain\n\n more"),
        ("plain", "  ", "plain"),
        ("  $1  ", "", ""),
        ("$ARGUMENTS ($1)", "'a b' c", "'a b' c (a b c)"),
        ("$x $ $ARG", "a", "$x $ $ARG\n\na"),
        ("$1", "$ARGUMENTS $1", "$ARGUMENTS $1"),
        ("$ARGUMENTS", "!`id` $1", "!`id` $1"),
        ("now: !`date`.", "", "now: OUT."),
        ("a!`` b", "", "a!`` b"),
    ],
)
def test_places(template: str, arguments: str, expected: str) -> None:
    """The highest number takes the rest; a template without places gets them at its end."""
    assert text_of(template, arguments) == expected


@pytest.mark.parametrize(
    ("template", "arguments", "expected"),
    [
        ("!`git log $1`", "main; rm -rf x", ["git log main; rm -rf x"]),
        ("!`git log $1` $2", "'a b' c", ["git log a b"]),
        ("!`echo $ARGUMENTS`", "`id` !`id`", ["echo `id` !`id`"]),
        ("$ARGUMENTS", "!`id`", []),
        ("!$1id`", "`", []),
        ("!`$1`", "", [""]),
        ("!`a`!`b` `c`", "", ["a", "b"]),
    ],
)
def test_lines(template: str, arguments: str, expected: list[str]) -> None:
    """Only the template has lines; an argument in one stands there as it was written."""
    assert lines_of(template, arguments) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("$2 $10 $1 $ARGUMENTS $1", ["$1", "$10", "$2", "$ARGUMENTS"]),
        ("!`git log $1`", ["$1"]),
        ("nothing", []),
    ],
)
def test_hints(template: str, expected: list[str]) -> None:
    """Each place once: numbers as text, then all arguments."""
    assert hints(template) == expected


def by_steps(template: str, arguments: str) -> str:
    """The same, one step after the other over the whole text."""
    given = shlex.split(arguments)
    numbers = [int(each) for each in re.findall(r"\$([0-9]+)", template)]
    text = template
    for number in sorted(set(numbers), reverse=True):
        value = given[number - 1] if number <= len(given) else ""
        if number == max(numbers):
            value = " ".join(given[number - 1 :])
        text = text.replace(f"${number}", value)
    text = text.replace("$ARGUMENTS", arguments)
    if not numbers and "$ARGUMENTS" not in template and arguments.strip():
        text += "\n\n" + arguments
    while (start := text.find("!`")) >= 0 and (end := text.find("`", start + 2)) > start + 2:
        text = f"{text[:start]}<{text[start + 2 : end]}>{text[end + 1 :]}"
    return text.strip()


TEMPLATES = st.lists(
    st.sampled_from(["$1", "$2", "$3", "$ARGUMENTS", "!`do $1`", "!`x`", " ", "text", "\n"]),
    max_size=8,
).map("".join)
ARGUMENTS = st.lists(st.sampled_from(["a", "'b c'", '"d"', "@e", "f;g"]), max_size=5).map(" ".join)


@given(TEMPLATES, ARGUMENTS)
def test_as_step_by_step(template: str, arguments: str) -> None:
    """For arguments without signs of their own, the order of the steps makes no difference."""
    found = pieces(template, arguments)
    lines = {piece.command: f"<{piece.command}>" for piece in found if isinstance(piece, ShellLine)}
    made = expanded(found, lines)
    assert made.text == by_steps(template, arguments)
    for start, end in made.outputs:
        assert made.text[start] == "<"
        assert made.text[end - 1] == ">"


@given(TEMPLATES, st.text(alphabet="a $1`!'\"@", max_size=12), st.text(max_size=8))
def test_what_is_put_in_is_text(template: str, arguments: str, output: str) -> None:
    """Neither arguments nor outputs add a line to run, and outputs are marked."""
    assert len(lines_of(template, arguments)) == len(lines_of(template, "plain"))
    found = pieces(template, arguments)
    lines = [piece.command for piece in found if isinstance(piece, ShellLine)]
    made = expanded(found, dict.fromkeys(lines, output))
    assert all(made.text[start:end] in output for start, end in made.outputs)
