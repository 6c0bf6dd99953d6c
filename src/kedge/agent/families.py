"""Families of models, recognized by name: which instructions they get, and how they change
files."""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from kedge.agent.tools.apply_patch import apply_patch
from kedge.agent.tools.edit import edit
from kedge.agent.tools.tool import Tool
from kedge.agent.tools.write import write
from kedge.domain.providers import ModelInfo
from kedge.model.offline.commands import PROVIDER as OFFLINE

Family: TypeAlias = Literal["claude", "gpt", "gemini", "other"]

_NAMES: Mapping[Family, re.Pattern[str]] = {
    "claude": re.compile(r"\bclaude\b"),
    "gpt": re.compile(r"\b(chat)?gpt-|\bcodex\b|(^|[/:.])o[1-9](-|$)"),
    "gemini": re.compile(r"\bgemini\b"),
}
# Made before models learned to write patches, or trained on another format.
_WITHOUT_PATCHES = re.compile(r"gpt-(3|4|oss)")


def family_of(model: ModelInfo) -> Family:
    """The family of a model; the provider's name of the model takes precedence over the user's."""
    return _named(model)[0]


def edits_by_patch(model: ModelInfo) -> bool:
    """Whether a model has learned to change files by patches."""
    family, name = _named(model)
    return family == "gpt" and _WITHOUT_PATCHES.search(name) is None


def suited(tools: Mapping[str, Tool], model: ModelInfo) -> dict[str, Tool]:
    """The tools without those that a model should not change files with.

    Leaves out only tools of kedge itself, and only if others do the same work.
    """
    given = list(tools.values())
    without: tuple[Tool, ...] = ()
    # The offline model runs what it is told with any of them.
    if model.providerID != OFFLINE:
        if not edits_by_patch(model):
            without = (apply_patch,) if edit in given else ()
        elif apply_patch in given:
            without = (edit, write)
    return {name: tool for name, tool in tools.items() if tool not in without}


def _named(model: ModelInfo) -> tuple[Family, str]:
    """The family, and the name it was recognized by."""
    for name in _names(model):
        for family, pattern in _NAMES.items():
            if pattern.search(name):
                return family, name
    return "other", model.id


def _names(model: ModelInfo) -> Iterator[str]:
    return (name.lower() for name in (model.api.id, model.id, model.family) if name)
