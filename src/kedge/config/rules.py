"""Turns permissions as they are written into rules; deciding by them is the agent's concern."""

from collections.abc import Mapping
from typing import Any

from kedge.config.values import Ruleset
from kedge.domain.permissions import PermissionRule


def rules(permission: Mapping[str, Any], home: str) -> Ruleset:
    """The rules in the order they count: the last that matches wins.

    They stand as in the file, but names with wildcards come first: what is said of one permission
    wins over what is said of many, in whichever file it stands.
    """
    ordered = sorted(permission.items(), key=lambda item: not set("*?") & set(item[0]))
    return tuple(
        PermissionRule(permission=name, pattern=_expand(pattern, home), action=action)
        for name, given in ordered
        for pattern, action in (given if isinstance(given, dict) else {"*": given}).items()
    )


def _expand(pattern: str, home: str) -> str:
    """The pattern with the home directory written out, if it begins with it."""
    for short in ("~", "$HOME"):
        if pattern == short or pattern.startswith(f"{short}/"):
            return home + pattern.removeprefix(short)
    return pattern
