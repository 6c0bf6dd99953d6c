"""How texts and queries are folded into words, before any database sees them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.store.queries.search import words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \0\t!?", []),
        ("The QUICK fox", ["the", "quick", "fox"]),
        ("café cafe\u0301 CAFÉ", ["cafe", "cafe", "cafe"]),
        ("Straße", ["strasse"]),
        ("snake_case kebab-case", ["snake", "case", "kebab", "case"]),
        ('"a" OR b*', ["a", "or", "b"]),
        ("x2y 42", ["x2y", "42"]),
        ("\ud800word", ["word"]),
    ],
)
def test_words_are_folded(text: str, words: list[str]) -> None:
    """Case and accents do not count, and nothing but letters and digits is in a word."""
    assert words_of(text) == words


@given(st.text())
def test_folding_again_changes_nothing(text: str) -> None:
    """A word of the index, searched for, is that word."""
    words = words_of(text)
    assert words_of(" ".join(words)) == words


@given(st.text())
def test_words_are_safe_in_a_query(text: str) -> None:
    """No character of a word means something to a database's query language."""
    assert all(character.isalnum() for word in words_of(text) for character in word)


@given(st.text())
def test_composed_and_decomposed_text_have_the_same_words(text: str) -> None:
    """It does not matter how the person's keyboard puts accents on letters."""
    forms = {tuple(words_of(unicodedata.normalize(form, text))) for form in ("NFC", "NFD")}
    assert len(forms) == 1
