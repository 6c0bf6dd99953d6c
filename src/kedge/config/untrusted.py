"""Decides which parts of a project's configuration count before a user has trusted it.

This is a list of what may be set, not of what may not: a key that is added later is left out by
default. Permissions are kept separately, as rules that can only restrict.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kedge.config.instructions import stays_inside
from kedge.config.jsonc import KeyPath
from kedge.config.values import ToolOutputConfig
from kedge.domain.agents import BUILT_IN, HIDDEN, SUBAGENTS

Json = dict[str, Any]

_SHOWN_ONLY = {"$schema", "theme", "keybinds", "tui", "layout", "logLevel", "autoupdate"}
_FREE = {"model", "small_model", "username", *_SHOWN_ONLY}
_FREE_OF_AGENTS = {"model", "variant", "prompt", "temperature", "top_p", "description", "color"}
_FREE_OF_MODELS = {
    *("name", "family", "release_date", "limit", "modalities", "status"),
    *("reasoning", "attachment", "tool_call", "temperature", "interleaved"),
}
_MOST_INSTRUCTIONS = 50
_SHARING = ("auto", "manual", "disabled")
"""From the least to the most restrictive."""


@dataclass(slots=True)
class AllowedConfig:
    """What counts of an untrusted file, and what does not."""

    kept: Json = field(default_factory=dict)
    permission: Json = field(default_factory=dict)
    agents: dict[str, Json] = field(default_factory=dict)
    """The permissions of its agents."""
    ignored: list[KeyPath] = field(default_factory=list)
    allowing: list[KeyPath] = field(default_factory=list)
    """Rules that would allow; they only make exceptions from the file's own rules."""
    asking: list[KeyPath] = field(default_factory=list)
    """Rules that would ask, also where something was denied before."""
    odd: list[KeyPath] = field(default_factory=list)
    """Keys with a value that kedge does not know."""


def limited(value: Json, trusted: Mapping[str, Any], reach: str) -> AllowedConfig:
    """What counts of an untrusted file in normal form, given what trusted files say."""
    return _Limiting(trusted, reach).file(value)


class _Limiting:
    def __init__(self, trusted: Mapping[str, Any], reach: str) -> None:
        self.trusted = trusted
        self.reach = reach
        self.made = AllowedConfig()

    def file(self, value: Json) -> AllowedConfig:
        special: dict[str, Callable[[Any], None]] = {
            "agent": self.agents,
            "provider": self.providers,
            "instructions": self.instructions,
            "permission": self.permissions,
            "tools": self.tools,
            "tool_output": self.tool_output,
            "share": self.share,
            "default_agent": self.default_agent,
        }
        for key, item in value.items():
            if key in special:
                special[key](item)
            elif key in _FREE:
                self.made.kept[key] = item
            else:
                self.ignore_all(item, key)
        return self.made

    def ignore(self, *path: str) -> None:
        self.made.ignored.append(path)

    def ignore_all(self, value: object, *path: str) -> None:
        """Ignore a value; an object is reported by its keys."""
        for inner in value if isinstance(value, dict) and value else [None]:
            self.ignore(*path, *([] if inner is None else [inner]))

    def agents(self, value: dict[str, Json]) -> None:
        known = {*BUILT_IN, *self.trusted.get("agent", {})}
        for name, agent in value.items():
            # A new agent would have the permissions that hold for all agents, and other agents
            # could give it tasks: that can be more than the user lets the others do.
            free = _FREE_OF_AGENTS if name in known else set()
            later = {"permission", "tools", "steps"} if name in known else set()
            kept = self.free(agent, free, later, "agent", name)
            if name not in known:
                if not agent:
                    self.ignore("agent", name)
                continue
            own = self.trusted.get("agent", {}).get(name, {})
            if "steps" in agent:
                # A limit that the user chose is not raised.
                if agent["steps"] <= own.get("steps", agent["steps"]):
                    kept["steps"] = agent["steps"]
                else:
                    self.ignore("agent", name, "steps")
            if "permission" in agent:
                self.made.agents[name] = agent["permission"]
                self.loosening(agent["permission"], "agent", name, "permission")
            if kept:
                self.made.kept.setdefault("agent", {})[name] = kept

    def providers(self, value: dict[str, Json]) -> None:
        for name, provider in value.items():
            kept = self.free(provider, {"name"}, {"models"}, "provider", name)
            for id, model in provider.get("models", {}).items():
                left = self.free(model, _FREE_OF_MODELS, set(), "provider", name, "models", id)
                kept.setdefault("models", {})[id] = left
            if kept:
                self.made.kept.setdefault("provider", {})[name] = kept

    def free(self, value: Json, free: set[str], later: set[str], *path: str) -> Json:
        """The keys that an untrusted file may set; those in `later` are handled elsewhere."""
        kept = {}
        for key, item in value.items():
            if key in free:
                kept[key] = item
            elif key not in later:
                self.ignore_all(item, *path, key)
        return kept

    def instructions(self, value: list[str]) -> None:
        kept: list[str] = []
        for item in value:
            if len(kept) < _MOST_INSTRUCTIONS and stays_inside(item, self.reach):
                kept.append(item)
            else:
                self.ignore("instructions", item)
        self.made.kept["instructions"] = kept

    def permissions(self, value: Json) -> None:
        self.made.permission = value
        self.loosening(value, "permission")

    def loosening(self, value: Json, *path: str) -> None:
        """Record the rules that would permit more if the file were trusted."""
        lists = {"allow": self.made.allowing, "ask": self.made.asking}
        for name, given in value.items():
            for key, action in (given if isinstance(given, dict) else {None: given}).items():
                if action in lists:
                    lists[action].append((*path, name) if key is None else (*path, name, key))

    def tools(self, value: dict[str, bool]) -> None:
        # They are already among the permissions, where the ones that are on are reported.
        self.made.kept["tools"] = {name: on for name, on in value.items() if not on}

    def tool_output(self, value: Json) -> None:
        own = {**msgspec.structs.asdict(ToolOutputConfig()), **self.trusted.get("tool_output", {})}
        kept = {}
        for key, item in value.items():
            # A larger limit would cost money of anyone who opens the project.
            if key in own and item <= own[key]:
                kept[key] = item
            else:
                self.ignore("tool_output", key)
        self.made.kept["tool_output"] = kept

    def share(self, value: str) -> None:
        own = self.trusted.get("share", "manual")
        if _SHARING.index(value) >= _SHARING.index(own):
            self.made.kept["share"] = value
        else:
            self.ignore("share")

    def default_agent(self, value: str) -> None:
        # The user's own choice may be an agent with fewer permissions.
        if "default_agent" in self.trusted:
            self.ignore("default_agent")
        elif not self.may_be_default(value):
            # Otherwise a user who opens the project could not prompt any agent.
            self.made.odd.append(("default_agent",))
        else:
            self.made.kept["default_agent"] = value

    def may_be_default(self, name: str) -> bool:
        """Whether trusted files leave an agent of this name that answers prompts."""
        agents = self.trusted.get("agent", {})
        if name not in BUILT_IN and name not in agents:
            return False
        agent = agents.get(name, {})
        mode = agent.get("mode", "subagent" if name in SUBAGENTS else "primary")
        is_hidden = agent.get("hidden", name in HIDDEN)
        return mode != "subagent" and not is_hidden and not agent.get("disable")
