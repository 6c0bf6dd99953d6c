"""Permission rules and requests as on the wire, and which rule decides.

A rule names permissions and things by patterns. Of all rules that match, the last one decides, so
that later and nearer ones refine earlier ones. Where none matches, somebody is asked.
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
    """What to do about a permission for the things that match a pattern."""

    permission: str
    pattern: str
    action: PermissionAction


class AllowedPermission(Value, frozen=True, kw_only=True):
    """What somebody allowed in a project with the reply `always`."""

    id: str
    permission: str
    pattern: str
    lasting: bool
    """Whether it holds until it is taken back, and not only until the server ends that took it."""
    time: int
    """When it was allowed, in milliseconds."""

    @property
    def rule(self) -> PermissionRule:
        """The rule that it is."""
        return PermissionRule(permission=self.permission, pattern=self.pattern, action="allow")


class ToolCallRef(Value, frozen=True, kw_only=True):
    """The tool call that asks."""

    messageID: str
    callID: str


class PermissionRequest(Value, frozen=True, kw_only=True):
    """A tool call waits for somebody to allow it."""

    id: str
    sessionID: str
    permission: str
    patterns: list[str]
    metadata: dict[str, Any]
    always: list[str]
    """The patterns that the reply `always` would allow from then on."""
    tool: ToolCallRef | None = None


Rules: TypeAlias = Sequence[PermissionRule]

_STRICTNESS: dict[PermissionAction, int] = {"allow": 0, "ask": 1, "deny": 2}
_ANY_ARGUMENTS = " *"

UNCERTAIN = "(not understood) "
"""Stands before what could do anything: it is allowed only where nothing is asked for or denied."""
DOES_MORE = "(does more) "
"""Stands before a command that does more than its name tells: one that runs other programs, or code
in another language. A rule for everything allows it only where nothing is asked for or denied, and
nobody allows it for good with others."""
IN_GIT = "(inside of .git) "
"""Stands before a path that belongs to git itself: nothing but a person allows to write there."""
EXACTLY = "(exactly) "
"""Stands before a pattern whose `*` and `?` mean themselves."""
_COULD_ALSO: Mapping[str, tuple[str, ...]] = {"bash": ("edit", "external_directory")}
"""What a command that nobody understands could do besides."""


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern means a text: `*` is any run of characters, `?` any one.

    Nothing is special about slashes and line ends. A pattern that ends in " *" also means a command
    without arguments: `ls *` is `ls` and `ls -l`, but not `lsof`. One that begins with "(exactly) "
    means the text behind that.
    """
    if pattern.startswith(EXACTLY):
        return text == pattern.removeprefix(EXACTLY)
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
    found = matching(permission, _meant(text), every)
    if found is None or (found.action == "allow" and _is_doubtful(found, permission, text, every)):
        return _ask(permission)
    return found


def _ask(permission: str) -> PermissionRule:
    return PermissionRule(permission=permission, pattern="*", action="ask")


def _meant(text: str) -> str:
    """What rules name: the text without what kedge says of it."""
    return text.removeprefix(DOES_MORE).removeprefix(IN_GIT)


def _is_doubtful(allowing: PermissionRule, permission: str, text: str, rules: Rules) -> bool:
    """Whether a rule that allows something cannot have meant this."""
    if text.startswith(IN_GIT):
        return True
    is_named = text.startswith(DOES_MORE) and not _is_for_all(allowing)
    return not is_named and _could_be_barred(permission, text, rules)


def _is_for_all(rule: PermissionRule) -> bool:
    return set(rule.pattern) == {"*"}


def _could_be_barred(permission: str, text: str, rules: Rules) -> bool:
    """Whether a text could mean something that is asked for or denied, because nobody knows."""
    if not text.startswith((UNCERTAIN, DOES_MORE)):
        return False
    others = _COULD_ALSO.get(permission, ()) if text.startswith(UNCERTAIN) else ()
    return _is_barred(permission, rules, {"ask", "deny"}) or any(
        _is_denied_throughout(other, rules) for other in others
    )


def _is_denied_throughout(permission: str, rules: Rules) -> bool:
    """Whether a permission is denied but for some exceptions. If only some things are, what nobody
    understands is hardly about these: what a command surely writes is asked for besides."""
    about = [rule for rule in rules if matches(rule.permission, permission)]
    wide = [rule for rule in about if set(rule.pattern) <= {"*", "/"}]
    return bool(wide) and wide[-1].action == "deny"


def _is_barred(permission: str, rules: Rules, actions: Collection[PermissionAction]) -> bool:
    """Whether anything is left of the permission that rules do one of these things to."""
    barred = False
    for rule in rules:
        if matches(rule.permission, permission):
            # A rule for everything takes back those before it.
            barred = rule.action in actions or (barred and not _is_for_all(rule))
    return barred


def remembered(permission: str, text: str, allowed: Rules) -> bool:
    """Whether what people allowed for good allows a text."""
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
    """The strictest of what was decided and of what rulesets say that nobody has to trust.

    They cannot loosen anything, in whatever order they stand and whatever they match.
    """
    for rules in restrictions:
        found = matching(permission, _meant(text), rules)
        if found is not None and _STRICTNESS[found.action] > _STRICTNESS[decided.action]:
            decided = found
    return decided


def is_off(permission: str, rules: Rules) -> bool:
    """Whether a permission is denied whatever it is used for."""
    about = [rule for rule in rules if matches(rule.permission, permission)]
    return bool(about) and about[-1].action == "deny" and set(about[-1].pattern) == {"*"}


def allows_all(permission: str, texts: Sequence[str], rules: Rules) -> bool:
    """Whether what people allowed for good allows every one of the texts, of which there must be
    some."""
    return bool(texts) and all(remembered(permission, text, rules) for text in texts)


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
            decided = _ask(permission)
        return restrict(decided, permission, text, *self.restrictions)

    def could_deny(self, permission: str, text: str) -> bool:
        """Whether a text that nobody understands could be what a rule denies."""
        every = [rule for rules in self.rulesets for rule in rules]
        return text.startswith(UNCERTAIN) and any(
            _is_barred(permission, rules, {"deny"}) for rules in (every, *self.restrictions)
        )

    def is_off(self, permission: str) -> bool:
        """Whether a permission is denied whatever it is used for, so that no model need hear of
        the tools that need it."""
        every = [rule for rules in self.rulesets for rule in rules]
        return any(is_off(permission, rules) for rules in (every, *self.restrictions))

    def about(self, permission: str) -> list[PermissionRule]:
        """Every rule about a permission, whatever it is used for."""
        sets = (*self.rulesets, *self.restrictions)
        return [rule for rules in sets for rule in rules if matches(rule.permission, permission)]
