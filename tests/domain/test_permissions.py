"""What patterns mean, and which rule decides."""

import re
from fnmatch import translate
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kedge.domain.permissions import (
    PermissionAction,
    PermissionRule,
    Rulebook,
    Rules,
    allows_all,
    decide,
    is_off,
    matches,
    matching,
    restrict,
)

STRICTNESS = ("allow", "ask", "deny")

patterns = st.text(alphabet="ab *?\n/", max_size=8)
texts = st.text(alphabet="ab /\n", max_size=8)
names = st.sampled_from(["*", "bash", "edit", "e*", "b?sh"])
rules = st.builds(
    PermissionRule,
    permission=names,
    pattern=patterns,
    action=st.sampled_from(get_args(PermissionAction)),
)
rulesets = st.lists(rules, max_size=6)


def rule(permission: str, pattern: str, action: PermissionAction) -> PermissionRule:
    """A rule."""
    return PermissionRule(permission=permission, pattern=pattern, action=action)


def naive(pattern: str, text: str) -> bool:
    """Every way in which a star could be taken is tried."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return naive(pattern[1:], text) or (text != "" and naive(pattern, text[1:]))
    return text != "" and pattern[0] in ("?", text[0]) and naive(pattern[1:], text[1:])


@given(patterns, texts)
@example("*a*a", "aba")
@example("a*a", "a")
@example("?*?", "a")
def test_a_pattern_means_what_every_way_to_read_it_says(pattern: str, text: str) -> None:
    """Except that arguments may be left out at its end."""
    bare = pattern.endswith(" *") and naive(pattern[:-2], text)
    assert matches(pattern, text) == (bare or naive(pattern, text))


@given(st.text(alphabet="ab*?.[]()\\^$", max_size=8), st.text(max_size=8))
def test_only_stars_and_question_marks_are_special(pattern: str, text: str) -> None:
    """Characters that mean something to regular expressions, or to shells, mean themselves."""
    escaped = pattern.replace("[", "[[]")
    assert matches(pattern, text) == (re.match(translate(escaped), text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("git *", "git", True),
        ("git *", "git status", True),
        ("git *", "git status\nrm -rf /", True),
        ("git *", "gitk", False),
        ("git * x", "git", False),
        ("*.env", "a/b/.env", True),
        ("*.env", "a/.env.example", False),
        ("*.env.*", ".env.local", True),
        ("/tmp/x/*", "/tmp/x/y/z", True),
        ("/tmp/x/*", "/tmp/xy", False),
        ("", "", True),
        ("", "a", False),
        ("**", "", True),
        ("a?c", "a\nc", True),
        ("Ls", "ls", False),
    ],
)
def test_examples(pattern: str, text: str, expected: bool) -> None:
    """What people write into configurations."""
    assert matches(pattern, text) is expected


@pytest.mark.parametrize("pattern", ["*a" * 2000 + "b", "*?a" * 500 + "b", "*" * 100_000 + "b"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """Patterns that ruin a regular expression are told not to match, however long the text."""
    assert not matches(pattern, "a" * 20_000)


@given(st.lists(rulesets, max_size=3), st.sampled_from(["bash", "edit"]), texts)
def test_the_last_rule_that_matches_decides(given: list[Rules], permission: str, text: str) -> None:
    """Over all rulesets as if they were one; without any, somebody is asked."""
    decided = decide(permission, text, *given)
    fitting = [
        each
        for ruleset in given
        for each in ruleset
        if matches(each.permission, permission) and matches(each.pattern, text)
    ]
    assert decided == (fitting[-1] if fitting else rule(permission, "*", "ask"))


@given(rulesets, st.lists(rulesets, max_size=3), st.sampled_from(["bash", "edit"]), texts)
def test_restrictions_never_loosen(
    trusted: Rules, untrusted: list[Rules], permission: str, text: str
) -> None:
    """Whatever they are and in whatever order; the strictest of them holds."""
    before = decide(permission, text, trusted)
    after = restrict(before, permission, text, *untrusted)
    found = [matching(permission, text, each) for each in untrusted]
    actions = [before.action, *(each.action for each in found if each is not None)]
    assert after.action == max(actions, key=STRICTNESS.index)
    assert Rulebook((trusted,), tuple(untrusted)).decide(permission, text) == after


@given(rulesets, rulesets, rulesets, st.sampled_from(["bash", "edit"]), texts)
def test_what_is_off_is_denied(
    first: Rules, second: Rules, untrusted: Rules, permission: str, text: str
) -> None:
    """A tool that is not offered could not have been used for anything."""
    book = Rulebook((first,)).plus(second, restrictions=[untrusted])
    if book.is_off(permission):
        assert book.decide(permission, text).action == "deny"


def test_a_tool_is_off_only_when_all_of_it_is_denied() -> None:
    """An exception after the denial, or a denial of some things only, leaves it on."""
    deny, some = rule("edit", "*", "deny"), rule("edit", "*.env", "deny")
    allow = rule("edit", "notes/*", "allow")
    assert is_off("edit", [deny])
    assert Rulebook(([allow], [deny])).is_off("edit")
    assert Rulebook(([allow],), ([deny],)).is_off("edit")
    assert is_off("edit", [rule("*", "**", "deny")])
    assert not is_off("edit", [deny, allow])
    assert not Rulebook(([deny], [rule("edit", "*", "ask")])).is_off("edit")
    assert not is_off("edit", [some])
    assert not is_off("bash", [deny])
    assert not Rulebook().is_off("edit")


def test_the_rules_about_a_permission_are_told() -> None:
    """Those that name it, by a wildcard too, from all rulesets."""
    any_, edit, bash = rule("*", "*", "ask"), rule("edit", "a", "deny"), rule("bash", "*", "deny")
    assert Rulebook(([any_, bash],), ([edit],)).about("edit") == [any_, edit]


def test_all_has_to_be_allowed() -> None:
    """One thing that is not is enough to be asked for."""
    allowed = [rule("bash", "echo *", "allow")]
    assert allows_all("bash", ["echo a", "echo"], allowed)
    assert not allows_all("bash", ["echo a", "rm a"], allowed)
    assert not allows_all("edit", ["echo a"], allowed)
    assert not allows_all("bash", [], allowed)
