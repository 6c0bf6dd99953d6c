"""Which permission rule decides; asking people where one says so is done elsewhere.

A rule names permissions and things by patterns. Of all rules that match, the last one decides, so
that later and nearer ones refine earlier ones. Where none matches, somebody is asked.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from kedge.domain.permissions import PermissionAction, PermissionRule

Rules: TypeAlias = Sequence[PermissionRule]

_STRICTNESS: dict[PermissionAction, int] = {"allow": 0, "ask": 1, "deny": 2}
_ANY_ARGUMENTS = " *"

UNCERTAIN = "(not understood) "
"""Stands before what could do anything: it is allowed only where nothing is asked for or denied."""


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern means a text: `*` is any run of characters, `?` any one.

    Nothing is special about slashes and line ends. A pattern that ends in " *" also means a command
    without arguments: `ls *` is `ls` and `ls -l`, but not `lsof`.
    """
    if pattern.endswith(_ANY_ARGUMENTS) and _matches(pattern.removesuffix(_ANY_ARGUMENTS), text):
        return True
    return _matches(pattern, text)


def _matches(pattern: str, text: str) -> bool:
    # Each piece between two stars is taken where it is first found: no choice has to be taken back,
    # so no pattern can make this slow as a regular expression could.
    first, *rest = pattern.split("*")
    if not rest:
        return len(text) == len(first) and _begins(text, first)
    *between, last = rest
    end = len(text) - len(last)
    if end < len(first) or not _begins(text, first) or not _begins(text[end:], last):
        return False
    at = len(first)
    for piece in between:
        found = _find(text, piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _begins(text: str, piece: str) -> bool:
    if "?" not in piece:
        return text.startswith(piece)
    return _expression(piece).match(text) is not None


def _find(text: str, piece: str, start: int, end: int) -> int:
    # Any characters at its beginning only move the place; left to the search, they would slow it.
    rest = piece.lstrip("?")
    skipped = len(piece) - len(rest)
    if start + len(piece) > end:
        return -1
    if "?" not in rest:
        found = text.find(rest, start + skipped, end)
    else:
        match = _expression(rest).search(text, start + skipped, end)
        found = -1 if match is None else match.start()
    return -1 if found < 0 else found - skipped


@lru_cache(maxsize=256)
def _expression(piece: str) -> re.Pattern[str]:
    return re.compile(re.escape(piece).replace(r"\?", "."), re.DOTALL)


def matching(permission: str, text: str, rules: Iterable[PermissionRule]) -> PermissionRule | None:
    """The last rule about this permission that means the text."""
    found = None
    for rule in rules:
        if matches(rule.permission, permission) and matches(rule.pattern, text):
            found = rule
    return found


def decide(permission: str, text: str, *rulesets: Rules) -> PermissionRule:
    """The rule that decides, over all rulesets in their order; asks where nothing matches."""
    every = [rule for rules in rulesets for rule in rules]
    found = matching(permission, text, every)
    asks = PermissionRule(permission=permission, pattern="*", action="ask")
    if found is None or (found.action == "allow" and _could_be_barred(permission, text, every)):
        return asks
    return found


def _could_be_barred(permission: str, text: str, rules: Iterable[PermissionRule]) -> bool:
    """Whether a text could mean something that is asked for or denied, because nobody knows."""
    barred = False
    for rule in rules:
        if text.startswith(UNCERTAIN) and matches(rule.permission, permission):
            # A rule for everything takes back those before it.
            is_for_all = set(rule.pattern) == {"*"}
            barred = rule.action != "allow" if is_for_all else barred or rule.action != "allow"
    return barred


def restrict(
    decided: PermissionRule, permission: str, text: str, *restrictions: Rules
) -> PermissionRule:
    """The strictest of what was decided and of what rulesets say that nobody has to trust.

    They cannot loosen anything, in whatever order they stand and whatever they match.
    """
    for rules in restrictions:
        found = matching(permission, text, rules)
        if found is not None and _STRICTNESS[found.action] > _STRICTNESS[decided.action]:
            decided = found
    return decided


def is_off(permission: str, rules: Rules) -> bool:
    """Whether a permission is denied whatever it is used for."""
    about = [rule for rule in rules if matches(rule.permission, permission)]
    return bool(about) and about[-1].action == "deny" and set(about[-1].pattern) == {"*"}


def allows_all(permission: str, texts: Sequence[str], rules: Rules) -> bool:
    """Whether the rules alone allow every one of the texts, of which there must be some."""
    return bool(texts) and all(decide(permission, text, rules).action == "allow" for text in texts)


@dataclass(frozen=True, slots=True)
class Rulebook:
    """All rules that hold somewhere: those of people, and those that can only restrict them."""

    rulesets: tuple[Rules, ...] = ()
    restrictions: tuple[Rules, ...] = ()

    def plus(self, *rulesets: Rules, restrictions: Iterable[Rules] = ()) -> "Rulebook":
        """The same with more rules after these."""
        return Rulebook((*self.rulesets, *rulesets), (*self.restrictions, *restrictions))

    def decide(self, permission: str, text: str) -> PermissionRule:
        """The rule that decides."""
        decided = decide(permission, text, *self.rulesets)
        if decided.action == "allow" and any(
            _could_be_barred(permission, text, rules) for rules in self.restrictions
        ):
            decided = PermissionRule(permission=permission, pattern="*", action="ask")
        return restrict(decided, permission, text, *self.restrictions)

    def is_off(self, permission: str) -> bool:
        """Whether a permission is denied whatever it is used for, so that no model need hear of
        the tools that need it."""
        every = [rule for rules in self.rulesets for rule in rules]
        return any(is_off(permission, rules) for rules in (every, *self.restrictions))

    def about(self, permission: str) -> list[PermissionRule]:
        """Every rule about a permission, whatever it is used for."""
        sets = (*self.rulesets, *self.restrictions)
        return [rule for rules in sets for rule in rules if matches(rule.permission, permission)]
