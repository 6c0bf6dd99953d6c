"""The agents that there are: `build`, which works, and `plan`, which only looks."""

from collections.abc import Mapping
from pathlib import Path

from kedge.config.values import AgentConfig, Config
from kedge.domain.agents import BUILD, PLAN, AgentInfo
from kedge.domain.errors import AgentNotFound, ConfigInvalid
from kedge.domain.messages import MessageModel
from kedge.domain.permissions import PermissionAction, PermissionRule, Rulebook, Rules
from kedge.engine.saved_output import output_folder

_EDITING = {"write", "edit", "apply_patch"}
"""Tools that change files, which rules name as one."""
_DESCRIPTIONS = {
    BUILD: "Does the work: reads, writes and runs what its permissions allow.",
    PLAN: "Looks at everything and changes nothing; answers with a plan.",
}


def default_rules() -> list[PermissionRule]:
    """What holds before anybody said anything."""
    return [
        _rule("*", "*", "allow"),
        _rule("doom_loop", "*", "ask"),
        _rule("external_directory", "*", "ask"),
        _rule("read", "*.env", "ask"),
        _rule("read", "*.env.*", "ask"),
        _rule("read", "*.env.example", "allow"),
    ]


def own_outputs(data: Path, session: str) -> list[PermissionRule]:
    """What a session may read unasked beside its worktree: outputs of which it was shown a part."""
    pattern = str(output_folder(data.resolve(), session) / "*")
    # As a pattern, a folder with such a name would mean others too.
    is_plain = not set("*?") & set(pattern[:-1])
    return [_rule("external_directory", pattern, "allow")] if is_plain else []


def _rule(permission: str, pattern: str, action: PermissionAction) -> PermissionRule:
    return PermissionRule(permission=permission, pattern=pattern, action=action)


# After what the configuration says of all agents: whoever allows everything means those that work.
_BUILT_IN = {
    BUILD: (),
    # A shell writes files as well as an editor does.
    PLAN: (_rule("edit", "*", "deny"), _rule("bash", "*", "ask")),
}


FIRM: Mapping[str, tuple[str, ...]] = {PLAN: ("bash",)}
"""What an agent asks for each time: what was allowed for good was allowed to one that works."""


def tool_switches(tools: Mapping[str, bool]) -> list[PermissionRule]:
    """What a prompt says of tools, as rules that can only restrict: on changes nothing.

    What is said of one tool counts before what is said of many.
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
        """An agent by its name; without one, the one that answers when nobody is named."""
        wanted = name or self._config.default_agent
        if wanted is None:
            wanted = BUILD if BUILD in self._agents else PLAN
        if wanted not in self._agents:
            raise AgentNotFound(wanted, sorted(self._agents))
        return self._agents[wanted]

    def rulebook(self, name: str | None = None, *, session: str | None = None) -> Rulebook:
        """What an agent may do, in a session of this id, with what untrusted files of the project
        say against it."""
        agent = self.get(name)
        restrictions = (*self._config.restrictions, *self._of(agent.name).restrictions)
        # What people said comes after what kedge says, and so counts more.
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
