"""Slugs, default titles and the titles of forks."""

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.titles import default_title, fork_title, is_default_title, slug


def _always(random: bytes) -> Callable[[int], bytes]:
    return lambda _: random


def test_slug_is_two_words() -> None:
    """A slug is an adjective and a noun, chosen by the random bytes."""
    assert slug(bytes) == "amber-anchor"
    assert slug(_always(b"\x3f\x3f")) == "warm-windlass"


@given(st.binary(min_size=2, max_size=2))
def test_slug_form(random: bytes) -> None:
    """Whatever the bytes, a slug is lower-case words joined by a hyphen."""
    first, second = slug(_always(random)).split("-")
    assert first.isalpha()
    assert second.isalpha()
    assert (first + second).islower()


def test_slugs_differ() -> None:
    """Every pair of words can be chosen, so that slugs rarely collide."""
    every_byte = [bytes([a, b]) for a in range(64) for b in range(64)]
    pairs = {slug(_always(two)) for two in every_byte}
    assert len(pairs) == 64 * 64
    assert slug(os.urandom) in pairs


def test_default_titles() -> None:
    """The title of a new session has its time of creation, in the form that clients know."""
    assert default_title(1794765251447, child=False) == "New session - 2026-11-15T17:54:11.447Z"
    assert default_title(0, child=True) == "Child session - 1970-01-01T00:00:00.000Z"


@given(st.integers(0, 10**13), st.booleans())
def test_default_titles_are_recognised(now: int, child: bool) -> None:
    """A default title is known for one, until somebody changes it."""
    title = default_title(now, child)
    assert is_default_title(title)
    assert not is_default_title(title + "!")
    assert not is_default_title(fork_title(title))


@pytest.mark.parametrize("title", ["", "New session", "New session - today", "My plan"])
def test_other_titles_are_not_default(title: str) -> None:
    """A title of the user's own is never taken for a default one."""
    assert not is_default_title(title)


@pytest.mark.parametrize(
    ("title", "forked"),
    [
        ("T", "T (fork #1)"),
        ("T (fork #1)", "T (fork #2)"),
        ("T (fork #9)", "T (fork #10)"),
        ("a\nb (fork #1)", "a\nb (fork #2)"),
        ("T (fork #x)", "T (fork #x) (fork #1)"),
        ("T (fork #1) b", "T (fork #1) b (fork #1)"),
        ("", " (fork #1)"),
    ],
)
def test_fork_titles(title: str, forked: str) -> None:
    """Forks are numbered, and the fork of a fork counts on."""
    assert fork_title(title) == forked
