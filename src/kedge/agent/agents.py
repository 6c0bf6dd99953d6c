"""The available agents: `build`, which works, and `plan`, which only reads."""

from collections.abc import Mapping
from pathlib import Path

from kedge.config.values import AgentConfig, Config
from kedge.domain.agents import BUILD, PLAN, AgentInfo
from kedge.domain.errors import AgentNotFound, ConfigInvalid
from kedge.domain.messages import MessageModel
from kedge.domain.permissions import PermissionAction, PermissionRule, Rulebook, Rules
from kedge.engine.saved_output import output_folder

_EDITING = {"write", "edit", "apply_patch"}
"""Tools that change files, which rules treat as one."""
_DESCRIPTIONS = {
    BUILD: "Does the work: reads, writes and runs what its permissions allow.",
    PLAN: "Looks at everything and changes nothing; answers with a plan.",
}


def default_rules() -> list[PermissionRule]:
    """The rules that hold without any configuration."""
    return [
        _rule("*", "*", "allow"),
        _rule("doom_loop", "*", "ask"),
        _rule("external_directory", "*", "ask"),
        _rule("read", "*.env", "ask"),
        _rule("read", "*.env.*", "ask"),
        _rule("read", "*.env.example", "allow"),
    ]


def own_outputs(data: Path, session: str) -> list[PermissionRule]:
    """The files outside its worktree that a session may read without asking: its own saved
    outputs."""
    pattern = str(output_folder(data.resolve(), session) / "*")
    # As a pattern, a folder with such a name would match others too.
    is_plain = not set("*?") & set(pattern[:-1])
    return [_rule("external_directory", pattern, "allow")] if is_plain else []


def _rule(permission: str, pattern: str, action: PermissionAction) -> PermissionRule:
    return PermissionRule(permission=permission, pattern=pattern, action=action)


# After the configuration's rules for all agents: a user who allows everything there means the
# agents that work.
_BUILT_IN = {
    BUILD: (),
    # A shell writes files as well as an editor does.
    PLAN: (_rule("edit", "*", "deny"), _rule("bash", "*", "ask")),
}


FIRM: Mapping[str, tuple[str, ...]] = {PLAN: ("bash",)}
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
        self._defaults = default_rules()
        self._agents = {
            name: self._made(name, [*self._defaults, *config.permission, *_BUILT_IN[name]])
            for name in _BUILT_IN
            if not self._of(name).disable
        }

    def list(self) -> list[AgentInfo]:
        """All agents, the default one first."""
        first = self._config.default_agent or BUILD
        return sorted(self._agents.values(), key=lambda each: (each.name != first, each.name))

    def get(self, name: str | None = None) -> AgentInfo:
        """An agent by its name; without one, the default agent."""
        wanted = name or self._config.default_agent
        if wanted is None:
            wanted = BUILD if BUILD in self._agents else PLAN
        if wanted not in self._agents:
            raise AgentNotFound(wanted, sorted(self._agents))
        return self._agents[wanted]

    def rulebook(self, name: str | None = None, *, session: str | None = None) -> Rulebook:
        """What an agent may do in a session of this id, with the restrictions of untrusted project
        files."""
        agent = self.get(name)
        restrictions = (*self._config.restrictions, *self._of(agent.name).restrictions)
        # The users' rules come after the defaults, and so take precedence.
        said = len(self._defaults)
        own = [] if session is None else own_outputs(self._data, session)
        return Rulebook((agent.permission[:said], own, agent.permission[said:]), restrictions)

    def _of(self, name: str) -> AgentConfig:
        return self._config.agent.get(name) or AgentConfig()

    def _made(self, name: str, rules: Rules) -> AgentInfo:
        given = self._of(name)
        return AgentInfo(
            name=name,
            description=given.description or _DESCRIPTIONS[name],
            mode="primary",
            native=True,
            topP=given.top_p,
            temperature=given.temperature,
            permission=[*rules, *given.permission],
            model=None if given.model is None else _model(name, given.model),
            variant=given.variant,
            prompt=given.prompt,
            options=given.options,
            steps=given.steps,
        )


def _model(agent: str, text: str) -> MessageModel:
    provider, slash, model = text.partition("/")
    if not (provider and slash and model):
        why = f"expected provider/model, got {text!r}"
        raise ConfigInvalid("the configuration", why, key=f"agent.{agent}.model")
    return MessageModel(providerID=provider, modelID=model)
