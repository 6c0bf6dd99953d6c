"""Replacing a piece of a text, without a disk."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kedge.agent.tools.editing import edited
from kedge.agent.tools.texts import Text
from kedge.agent.tools.tool import ToolFailure

LETTERS = st.text(alphabet="ab \t\n{}é", max_size=40)


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """A text, a piece of it, and what should be there instead."""
    text = draw(LETTERS.filter(bool))
    start = draw(st.integers(0, len(text) - 1))
    old = text[start : draw(st.integers(start + 1, len(text)))]
    return text, old, draw(LETTERS.filter(lambda new: new != old))


def edit(text: str, old: str, new: str, *, everywhere: bool = False) -> str:
    """The file after an edit."""
    return edited(Text(text), old, new, everywhere=everywhere).whole


def places(text: str, wanted: str) -> int:
    """How often it is there, overlapping places included."""
    return sum(text.startswith(wanted, at) for at in range(len(text)))


@given(edits())
def test_an_exact_match_is_replaced_as_str_replace_does(made: tuple[str, str, str]) -> None:
    """If it is there once; else it is refused, and the number of places is told."""
    text, old, new = made
    count = places(text, old)
    if count == 1:
        assert edit(text, old, new) == text.replace(old, new)
    else:
        with pytest.raises(ToolFailure, match=f"found {count} times"):
            edit(text, old, new)


@given(edits())
def test_all_exact_matches_are_replaced_as_str_replace_does(made: tuple[str, str, str]) -> None:
    """With replaceAll, however many there are."""
    text, old, new = made
    assert edit(text, old, new, everywhere=True) == text.replace(old, new)


@given(edits())
def test_line_ends_are_kept(made: tuple[str, str, str]) -> None:
    """A file of another system stays one, though the model does not know of it."""
    text, old, new = made
    changed = edit(text.replace("\n", "\r\n"), old, new, everywhere=True)
    expected = text.replace(old, new)
    if "\n" in text:
        expected = expected.replace("\n", "\r\n")
    assert changed == expected


@given(LETTERS, st.data())
def test_lines_that_are_not_touched_keep_their_ends(text: str, data: st.DataObject) -> None:
    """Also in a file that has both kinds."""
    lines = [line + data.draw(st.sampled_from(["\n", "\r\n"])) for line in text.split("\n")]
    at = data.draw(st.integers(0, len(lines)))
    whole = "".join([*lines[:at], "MARK\n", *lines[at:]])
    assert edit(whole, "MARK", "new") == "".join([*lines[:at], "new\n", *lines[at:]])


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_bytes_that_are_no_text_are_kept(before: bytes, after: bytes) -> None:
    """Only what is replaced changes."""
    assume(b"MARK" not in before + after)
    text = Text.decode(before + b"\nMARK\n" + after)
    assert edited(text, "MARK", "é").encode() == before + b"\n\xc3\xa9\n" + after


@given(st.lists(st.sampled_from(["x", "  y", "\tz", "w {", "", "}"]), min_size=1, max_size=6))
def test_lines_are_found_whatever_their_blanks(lines: list[str]) -> None:
    """Blanks at both ends and between words may differ; nothing else is touched."""
    assume(lines[0].strip() and lines[-1].strip())
    file = "first\n" + "".join(f"   {line}  \n" for line in lines) + "last\n"
    changed = edit(file, "\n".join(lines), "NEW")
    # One line that is there exactly keeps the blanks around it.
    assert [line.strip() for line in changed.split("\n")] == ["first", "NEW", "last", ""]


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        pytest.param("a \nb\n", "a\nb", "c", "c\n", id="blanks-at-the-end"),
        pytest.param("    x\n    y\n", "x\ny", "z\n  w", "    z\n      w\n", id="indented-deeper"),
        pytest.param("x\ny\n", "  x\n  y", "  z", "z\n", id="indented-less"),
        pytest.param(
            "\tif a:\n\t\tb\n",
            "    if a:\n        b",
            "    if c:\n        b\n        d",
            "\tif c:\n\t\tb\n\t\td\n",
            id="tabs",
        ),
        pytest.param("f( a,  b )\n", "f( a, b )", "g()", "g()\n", id="blanks-inside"),
        pytest.param("  a\n b\n", "a\nb\n", "c\n", "c\n", id="not-one-shift"),
        pytest.param("  a\nrest\n", "a \n", "", "rest\n", id="line-end-goes-too"),
        pytest.param("\ufeffa\nb\n", "a\n", "c\n", "\ufeffc\nb\n", id="mark-stays"),
        pytest.param("\ufeff  a \nb\n", "a\nb", "c\nb", "\ufeffc\nb\n", id="mark-nearly"),
    ],
)
def test_nearly(text: str, old: str, new: str, expected: str) -> None:
    """Where only blanks differ, the new lines are indented as the file is."""
    assert edit(text, old, new) == expected


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        ("abc", "x", "y", "was not found"),
        ("abc", "a", "a", "the same"),
        ("a\na\n", "a", "b", r"found 2 times \(at lines 1, 2\)"),
        ("aaa", "aa", "b", "found 2 times"),
        (" a\n\ta\n", "a ", "b", "found 2 times"),
        ("x\n\n\n", " \n", "y", "was not found"),
        ("a\n" * 2000, "a", "b", "at least 1000 times"),
    ],
)
def test_refused(text: str, old: str, new: str, reason: str) -> None:
    """What is not there, or not clear, changes nothing; the model hears what to do."""
    with pytest.raises(ToolFailure, match=reason):
        edit(text, old, new)


def test_large_texts_made_to_be_slow() -> None:
    """Neither counting overlaps nor comparing lines takes more than their length."""
    with pytest.raises(ToolFailure, match="at least 1000"):
        edit("a" * 1_000_000, "a" * 100_000, "b")
    with pytest.raises(ToolFailure, match="not found"):
        edit("a \n" * 300_000, "a\n" * 100_000 + "b", "c")
