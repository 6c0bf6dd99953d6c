"""Permission rules and requests as on the wire, and how rules decide.

A rule matches permissions and their subjects by patterns. The last rule that matches decides, so
that later and closer rules refine earlier ones. Where none matches, the user is asked.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from kedge.domain.values import Value

PermissionAction = Literal["allow", "deny", "ask"]
PermissionReply = Literal["once", "always", "reject"]


class PermissionRule(Value, frozen=True, kw_only=True):
    """The action for a permission on everything that matches a pattern."""

    permission: str
    pattern: str
    action: PermissionAction


class AllowedPermission(Value, frozen=True, kw_only=True):
    """A permission that a user gave in a project with the reply `always`."""

    id: str
    permission: str
    pattern: str
    lasting: bool
    """Whether it lasts until it is revoked, instead of until the server that received it stops."""
    time: int
    """When it was allowed, in milliseconds."""

    @property
    def rule(self) -> PermissionRule:
        """The equivalent rule."""
        return PermissionRule(permission=self.permission, pattern=self.pattern, action="allow")


class ToolCallRef(Value, frozen=True, kw_only=True):
    """The tool call that asks for a permission."""

    messageID: str
    callID: str


class PermissionRequest(Value, frozen=True, kw_only=True):
    """A tool call's request for a permission, which waits for the user's reply."""

    id: str
    sessionID: str
    permission: str
    patterns: list[str]
    metadata: dict[str, Any]
    always: list[str]
    """The patterns that the reply `always` would allow."""
    tool: ToolCallRef | None = None


Rules: TypeAlias = Sequence[PermissionRule]

_STRICTNESS: dict[PermissionAction, int] = {"allow": 0, "ask": 1, "deny": 2}
_ANY_ARGUMENTS = " *"

UNCERTAIN = "(not understood) "
"""Prefix for a text that could do anything: it is allowed only if no rule asks for or denies
anything."""
DOES_MORE = "(does more) "
"""Prefix for a command that does more than its name says: one that runs other programs, or code in
another language. A catch-all rule allows it only if no rule asks for or denies anything, and it is
never allowed for good by a pattern for other commands."""
IN_GIT = "(inside of .git) "
"""Prefix for a path that belongs to git itself: only the user's own reply allows to write there."""
EXACTLY = "(exactly) "
"""Prefix for a pattern in which `*` and `?` are literal."""
_COULD_ALSO: Mapping[str, tuple[str, ...]] = {"bash": ("edit", "external_directory")}
"""The other permissions that a command that was not understood could need."""


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches a text: `*` is any run of characters, `?` any one.

    Slashes and line ends are ordinary characters. A pattern that ends in " *" also matches a
    command without arguments: `ls *` matches `ls` and `ls -l`, but not `lsof`. One that begins with
    "(exactly) " matches the literal text after that prefix.
    """
    if pattern.startswith(EXACTLY):
        return text == pattern.removeprefix(EXACTLY)
    if pattern.endswith(_ANY_ARGUMENTS) and _matches(pattern.removesuffix(_ANY_ARGUMENTS), text):
        return True
    return _matches(pattern, text)


def _matches(pattern: str, text: str) -> bool:
    # Each piece between two stars is taken where it is first found. No backtracking is needed, so
    # no pattern can make this slow, as a regular expression could be.
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
    # Leading "?" only shift the position; as part of the search, they would slow it down.
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
    """The last rule about this permission that matches the text."""
    found = None
    for rule in rules:
        if matches(rule.permission, permission) and matches(rule.pattern, text):
            found = rule
    return found


def decide(permission: str, text: str, *rulesets: Rules) -> PermissionRule:
    """The rule that decides, over all rulesets in order; asks if none matches."""
    every = [rule for rules in rulesets for rule in rules]
    found = matching(permission, _meant(text), every)
    if found is None or (found.action == "allow" and _is_doubtful(found, permission, text, every)):
        return _ask(permission)
    return found


def _ask(permission: str) -> PermissionRule:
    return PermissionRule(permission=permission, pattern="*", action="ask")


def _meant(text: str) -> str:
    """The text that rules match: without kedge's prefixes."""
    return text.removeprefix(DOES_MORE).removeprefix(IN_GIT)


def _is_doubtful(allowing: PermissionRule, permission: str, text: str, rules: Rules) -> bool:
    """Whether a rule that allows something cannot have been meant for this text."""
    if text.startswith(IN_GIT):
        return True
    is_named = text.startswith(DOES_MORE) and not _is_for_all(allowing)
    return not is_named and _could_be_barred(permission, text, rules)


def _is_for_all(rule: PermissionRule) -> bool:
    return set(rule.pattern) == {"*"}


def _could_be_barred(permission: str, text: str, rules: Rules) -> bool:
    """Whether a text that was not understood could do something that rules ask for or deny."""
    if not text.startswith((UNCERTAIN, DOES_MORE)):
        return False
    others = _COULD_ALSO.get(permission, ()) if text.startswith(UNCERTAIN) else ()
    return _is_barred(permission, rules, {"ask", "deny"}) or any(
        _is_denied_throughout(other, rules) for other in others
    )


def _is_denied_throughout(permission: str, rules: Rules) -> bool:
    """Whether a permission is denied except for some exceptions. If only some subjects are denied,
    a command that was not understood hardly concerns these: what a command surely writes is checked
    separately."""
    about = [rule for rule in rules if matches(rule.permission, permission)]
    wide = [rule for rule in about if set(rule.pattern) <= {"*", "/"}]
    return bool(wide) and wide[-1].action == "deny"


def _is_barred(permission: str, rules: Rules, actions: Collection[PermissionAction]) -> bool:
    """Whether rules still apply one of these actions to any part of the permission."""
    barred = False
    for rule in rules:
        if matches(rule.permission, permission):
            # A catch-all rule overrides those before it.
            barred = rule.action in actions or (barred and not _is_for_all(rule))
    return barred


def remembered(permission: str, text: str, allowed: Rules) -> bool:
    """Whether the user's `always` replies allow a text."""
    if text.startswith(IN_GIT):
        return False
    found = matching(permission, _meant(text), allowed)
    if found is None or not text.startswith(DOES_MORE):
        return found is not None
    exact = (_meant(text), EXACTLY + _meant(text))
    return any(rule.pattern in exact for rule in allowed if rule.permission == permission)


def restrict(
    decided: PermissionRule, permission: str, text: str, *restrictions: Rules
) -> PermissionRule:
    """The strictest of a decision and of the results of untrusted rulesets.

    Those can never loosen anything, with any order and any patterns.
    """
    for rules in restrictions:
        found = matching(permission, _meant(text), rules)
        if found is not None and _STRICTNESS[found.action] > _STRICTNESS[decided.action]:
            decided = found
    return decided


def is_off(permission: str, rules: Rules) -> bool:
    """Whether a permission is denied for everything."""
    about = [rule for rule in rules if matches(rule.permission, permission)]
    return bool(about) and about[-1].action == "deny" and set(about[-1].pattern) == {"*"}


def allows_all(permission: str, texts: Sequence[str], rules: Rules) -> bool:
    """Whether the user's `always` replies allow all of the texts, of which there must be at least
    one."""
    return bool(texts) and all(remembered(permission, text, rules) for text in texts)


@dataclass(frozen=True, slots=True)
class Rulebook:
    """All rules that apply somewhere: the users' rules, and untrusted ones that can only
    restrict."""

    rulesets: tuple[Rules, ...] = ()
    restrictions: tuple[Rules, ...] = ()

    def plus(self, *rulesets: Rules, restrictions: Iterable[Rules] = ()) -> "Rulebook":
        """A copy with more rules after these."""
        return Rulebook((*self.rulesets, *rulesets), (*self.restrictions, *restrictions))

    def decide(self, permission: str, text: str) -> PermissionRule:
        """The rule that decides."""
        decided = decide(permission, text, *self.rulesets)
        if decided.action == "allow" and any(
            _could_be_barred(permission, text, rules) for rules in self.restrictions
        ):
            decided = _ask(permission)
        return restrict(decided, permission, text, *self.restrictions)

    def could_deny(self, permission: str, text: str) -> bool:
        """Whether a text that was not understood could be one that a rule denies."""
        every = [rule for rules in self.rulesets for rule in rules]
        return text.startswith(UNCERTAIN) and any(
            _is_barred(permission, rules, {"deny"}) for rules in (every, *self.restrictions)
        )

    def is_off(self, permission: str) -> bool:
        """Whether a permission is denied for everything, so that the tools that need it need not be
        offered to a model."""
        every = [rule for rules in self.rulesets for rule in rules]
        return any(is_off(permission, rules) for rules in (every, *self.restrictions))

    def about(self, permission: str) -> list[PermissionRule]:
        """Every rule about a permission, with any pattern."""
        sets = (*self.rulesets, *self.restrictions)
        return [rule for rules in sets for rule in rules if matches(rule.permission, permission)]
