"""The available agents: those that come with kedge, and those of the configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kedge.config.values import AgentConfig, Config
from kedge.domain.agents import (
    BUILD,
    COMPACTION,
    EXPLORE,
    GENERAL,
    PLAN,
    SUMMARY,
    TITLE,
    AgentInfo,
    AgentMode,
)
from kedge.domain.errors import AgentNotFound, ConfigInvalid
from kedge.domain.messages import MessageModel
from kedge.domain.permissions import PermissionAction, PermissionRule, Rulebook, Rules, matches
from kedge.engine.saved_output import output_folder

_EDITING = {"write", "edit", "apply_patch"}
"""Tools that change files, which rules treat as one."""


def _rule(permission: str, pattern: str, action: PermissionAction) -> PermissionRule:
    return PermissionRule(permission=permission, pattern=pattern, action=action)


_SECRETS = (
    _rule("read", "*.env", "ask"),
    _rule("read", "*.env.*", "ask"),
    _rule("read", "*.env.example", "allow"),
)


def default_rules() -> list[PermissionRule]:
    """The rules that hold without any configuration."""
    return [
        _rule("*", "*", "allow"),
        _rule("doom_loop", "*", "ask"),
        _rule("external_directory", "*", "ask"),
        # Agents that answer a person may ask them; those that run a task may not.
        *(_rule(each, "*", "deny") for each in ("question", "plan_enter", "plan_exit")),
        *_SECRETS,
    ]


def own_outputs(data: Path, session: str) -> list[PermissionRule]:
    """The files outside its worktree that a session may read without asking: its own saved
    outputs."""
    pattern = str(output_folder(data.resolve(), session) / "*")
    # As a pattern, a folder with such a name would match others too.
    is_plain = not set("*?") & set(pattern[:-1])
    return [_rule("external_directory", pattern, "allow")] if is_plain else []


_EXPLORE_PROMPT = """\
You find things in a code base for another agent, which sees nothing of your work but your last \
message. Change nothing: write no files and run no command that changes anything.

- Begin with glob and grep, then read what matters. Look in several places at once, and under \
the other names that a thing may have.
- Search as widely as the task says. Stop when you know the answer.
- Answer with what was asked for: where it is, as `path:line`, and what it does in a sentence or \
two. Say what you looked for and did not find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _BuiltIn:
    """An agent that comes with kedge."""

    description: str
    mode: AgentMode = "primary"
    is_hidden: bool = False
    rules: Rules = ()
    """Before the configuration's rules for all agents."""
    lasting: Rules = ()
    """After these: a user who allows everything there means the agents that work."""
    prompt: str | None = None
    temperature: float | None = None


_LOOKING = ("grep", "glob", "list", "bash", "webfetch", "websearch", "read")
_NOTHING = (_rule("*", "*", "deny"),)

_BUILT_IN = {
    BUILD: _BuiltIn(
        description="Does the work: reads, writes and runs what its permissions allow.",
        rules=(_rule("question", "*", "allow"), _rule("plan_enter", "*", "allow")),
    ),
    PLAN: _BuiltIn(
        description="Looks at everything and changes nothing; answers with a plan.",
        rules=(_rule("question", "*", "allow"), _rule("plan_exit", "*", "allow")),
        # A shell writes files as well as an editor does, and so does another agent.
        lasting=(
            _rule("edit", "*", "deny"),
            _rule("bash", "*", "ask"),
            _rule("task", "*", "ask"),
            _rule("task", EXPLORE, "allow"),
            _rule("task", GENERAL, "deny"),
        ),
    ),
    GENERAL: _BuiltIn(
        description=(
            "Works on a task of several steps by itself, reading and changing files. Use several"
            " of them for tasks that do not depend on each other."
        ),
        mode="subagent",
        rules=(_rule("todowrite", "*", "deny"),),
    ),
    EXPLORE: _BuiltIn(
        description=(
            "Finds things in the code base and changes nothing: files by name, code by what it"
            " says, how something works. Tell it what to find and how thoroughly to look."
        ),
        mode="subagent",
        rules=(
            *_NOTHING,
            *(_rule(each, "*", "allow") for each in _LOOKING),
            _rule("external_directory", "*", "ask"),
            *_SECRETS,
        ),
        # Otherwise `plan` could write through it.
        lasting=(
            _rule("edit", "*", "deny"),
            _rule("task", "*", "deny"),
            _rule("bash", "*", "ask"),
        ),
        prompt=_EXPLORE_PROMPT,
    ),
    COMPACTION: _BuiltIn(
        description="Summarizes a long conversation.", is_hidden=True, lasting=_NOTHING
    ),
    TITLE: _BuiltIn(
        description="Names a session.", is_hidden=True, lasting=_NOTHING, temperature=0.5
    ),
    SUMMARY: _BuiltIn(description="Summarizes what was done.", is_hidden=True, lasting=_NOTHING),
}


FIRM: Mapping[str, tuple[str, ...]] = {PLAN: ("bash", "task"), EXPLORE: ("bash",)}
"""What an agent asks for each time: permissions that were allowed for good are meant for the agents
that work."""


def tool_switches(tools: Mapping[str, bool]) -> list[PermissionRule]:
    """The tool switches of a prompt, as rules that can only restrict: switching on changes nothing.

    A switch for one tool takes precedence over one for many.
    """
    ordered = sorted(tools.items(), key=lambda item: not set("*?") & set(item[0]))
    return [
        _rule("edit" if name in _EDITING else name, "*", "allow" if on else "deny")
        for name, on in ordered
    ]


class Agents:
    """The agents of one configuration."""

    def __init__(self, config: Config, data: Path) -> None:
        self._config = config
        self._data = data
        self._agents = {
            name: self._made(name)
            for name in dict.fromkeys([*_BUILT_IN, *config.agent])
            if not self._of(name).disable and (name in _BUILT_IN or _is_defined(self._of(name)))
        }

    def list(self) -> list[AgentInfo]:
        """All agents, the default one first."""
        first = self._config.default_agent or self._first()
        return sorted(self._agents.values(), key=lambda each: (each.name != first, each.name))

    def get(self, name: str | None = None) -> AgentInfo:
        """An agent by its name; without one, the default agent."""
        if name is None:
            return self._default()
        if name not in self._agents:
            raise AgentNotFound(name, self._visible())
        return self._agents[name]

    def can_hand_over(self, name: str) -> bool:
        """Whether an agent plans for another that is there to carry the plan out."""
        return name == PLAN and BUILD in self._agents

    def rulebook(self, name: str | None = None, *, session: str | None = None) -> Rulebook:
        """What an agent may do in a session of this id, with the restrictions of untrusted project
        files."""
        agent = self.get(name)
        restrictions = (*self._config.restrictions, *self._of(agent.name).restrictions)
        # The users' rules come after those that are built in, and so take precedence.
        built_in = len(_first_rules(agent.name))
        own = [] if session is None else own_outputs(self._data, session)
        return Rulebook(
            (agent.permission[:built_in], own, agent.permission[built_in:]), restrictions
        )

    def _default(self) -> AgentInfo:
        name = self._config.default_agent
        if name is None:
            name = self._first()
        if name is None or name not in self._agents:
            raise AgentNotFound(name or BUILD, self._visible())
        agent = self._agents[name]
        if not _answers(agent):
            why = (
                f"{name!r} is for tasks of other agents"
                if not agent.hidden
                else f"{name!r} is hidden"
            )
            raise ConfigInvalid(
                "the configuration", f"{why}; name another agent", key="default_agent"
            )
        return agent

    def _first(self) -> str | None:
        return next((agent.name for agent in self._agents.values() if _answers(agent)), None)

    def _visible(self) -> Sequence[str]:
        return sorted(agent.name for agent in self._agents.values() if not agent.hidden)

    def _of(self, name: str) -> AgentConfig:
        return self._config.agent.get(name) or AgentConfig()

    def _made(self, name: str) -> AgentInfo:
        given, known = self._of(name), _BUILT_IN.get(name)
        base = known or _BuiltIn(description="", mode="all")
        of_all = self._config.permission
        lasting = [*base.lasting, *_still_denied(of_all, base.lasting)]
        rules = [*_first_rules(name), *of_all, *lasting, *given.permission]
        return AgentInfo(
            name=name,
            description=given.description or base.description or None,
            mode=given.mode or base.mode,
            native=known is not None,
            hidden=given.hidden if given.hidden is not None else base.is_hidden or None,
            topP=given.top_p,
            temperature=base.temperature if given.temperature is None else given.temperature,
            color=given.color,
            permission=rules,
            model=None if given.model is None else _model(name, given.model),
            variant=given.variant,
            prompt=given.prompt or base.prompt,
            options=given.options,
            steps=given.steps,
        )


def _first_rules(name: str) -> list[PermissionRule]:
    """The rules of an agent before those of the configuration."""
    known = _BUILT_IN.get(name)
    return [*default_rules(), *(known.rules if known else ())]


def _still_denied(of_all: Rules, lasting: Rules) -> list[PermissionRule]:
    """The user's rules for all agents, where an agent asks each time: what they deny stays denied,
    and what they allow is asked."""
    asked = [rule.permission for rule in lasting if rule.action == "ask"]
    return [
        _rule(permission, rule.pattern, "deny" if rule.action == "deny" else "ask")
        for permission in asked
        for rule in of_all
        if matches(rule.permission, permission)
    ]


def _is_defined(agent: AgentConfig) -> bool:
    """Whether trusted files say anything of an agent: restrictions alone do not make one."""
    return msgspec.structs.replace(agent, restrictions=()) != AgentConfig()


def _answers(agent: AgentInfo) -> bool:
    """Whether people choose the agent for a session."""
    return agent.mode != "subagent" and not agent.hidden


def _model(agent: str, text: str) -> MessageModel:
    provider, slash, model = text.partition("/")
    if not (provider and slash and model):
        why = f"expected provider/model, got {text!r}"
        raise ConfigInvalid("the configuration", why, key=f"agent.{agent}.model")
    return MessageModel(providerID=provider, modelID=model)
