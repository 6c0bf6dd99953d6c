"""Brings files into one form and lays them over each other; later ones win."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

_EDITING = ("write", "edit", "patch", "multiedit", "apply_patch")


def normal(value: Json) -> Json:
    """A file in the form that is in use now: older spellings are rewritten."""
    made = dict(value)
    if modes := made.pop("mode", None):
        made["agent"] = merge(modes, made.get("agent", {}))
    if made.pop("autoshare", False) and "share" not in made:
        made["share"] = "auto"
    if "agent" in made:
        made["agent"] = {name: _normal_agent(agent) for name, agent in made["agent"].items()}
    return _with_tools(made)


def _normal_agent(value: Json) -> Json:
    made = dict(value)
    if (steps := made.pop("maxSteps", None)) is not None:
        made.setdefault("steps", steps)
    return _with_tools(made)


def _with_tools(value: Json) -> Json:
    """Tools that are switched on or off are permissions; those that are written out win."""
    if "tools" not in value and "permission" not in value:
        return value
    switched = {
        "edit" if tool in _EDITING else tool: "allow" if on else "deny"
        for tool, on in value.get("tools", {}).items()
    }
    written = value.get("permission", {})
    if isinstance(written, str):
        written = {"*": written}
    return {**value, "permission": merge(switched, written)}


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Json:
    """Objects are merged key by key, `instructions` are added up; all else is replaced."""
    made = dict(under)
    for key, value in over.items():
        below = made.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            made[key] = merge(below, value)
        elif key == "instructions" and isinstance(below, list) and isinstance(value, list):
            made[key] = list(dict.fromkeys([*below, *value]))
        else:
            made[key] = value
    return made
