"""The built-in agents: what they may do, and what a configuration makes of them."""

from pathlib import Path

import pytest

from kedge.agent.agents import FIRM, Agents, tool_switches
from kedge.config.values import AgentConfig, Config
from kedge.domain import wire
from kedge.domain.agents import AgentInfo
from kedge.domain.errors import AgentNotFound, ConfigInvalid
from kedge.domain.messages import MessageModel
from kedge.domain.permissions import PermissionAction, PermissionRule


def rule(permission: str, pattern: str, action: PermissionAction) -> PermissionRule:
    """A rule."""
    return PermissionRule(permission=permission, pattern=pattern, action=action)


def action(agents: Agents, name: str, permission: str, text: str) -> str:
    """What an agent's rules say."""
    return agents.rulebook(name).decide(permission, text).action


def test_build_works_and_asks_about_little(tmp_path: Path) -> None:
    """Secrets, folders outside of the worktree, and going in circles."""
    agents = Agents(Config(), tmp_path)
    expected = {
        ("edit", "a.txt"): "allow",
        ("bash", "rm -rf x"): "allow",
        ("read", "a.txt"): "allow",
        ("read", "conf/.env"): "ask",
        ("read", ".env.local"): "ask",
        ("read", ".env.example"): "allow",
        ("external_directory", "/etc/*"): "ask",
        ("external_directory", f"{tmp_path.resolve()}/tool-output/ses_1/*"): "ask",
        ("doom_loop", "bash"): "ask",
        ("question", "*"): "allow",
    }
    found = {key: action(agents, "build", *key) for key in expected}
    assert found == expected


def test_a_session_reads_its_own_outputs_unasked(tmp_path: Path) -> None:
    """And no other's, unless people say otherwise; a folder that reads as a pattern means none."""
    outputs = f"{tmp_path.resolve()}/tool-output"
    rulebook = Agents(Config(), tmp_path).rulebook("build", session="ses_1")
    assert rulebook.decide("external_directory", f"{outputs}/ses_1/*").action == "allow"
    assert rulebook.decide("external_directory", f"{outputs}/ses_12/*").action == "ask"
    assert rulebook.decide("external_directory", f"{outputs}/*").action == "ask"
    denies = Config(permission=(rule("external_directory", "*", "deny"),))
    denied = Agents(denies, tmp_path).rulebook("build", session="ses_1")
    assert denied.decide("external_directory", f"{outputs}/ses_1/*").action == "deny"
    odd = Agents(Config(), tmp_path / "a*").rulebook("build", session="ses_1")
    assert odd.decide("external_directory", f"{tmp_path}/ab/tool-output/ses_1/*").action == "ask"


def test_plan_changes_nothing(tmp_path: Path) -> None:
    """It has no tool that writes and asks before each command, whatever is allowed to all."""
    for config in (Config(), Config(permission=(rule("*", "*", "allow"),))):
        agents = Agents(config, tmp_path)
        assert agents.rulebook("plan").is_off("edit")
        assert not agents.rulebook("build").is_off("edit")
        assert action(agents, "plan", "bash", "touch x") == "ask"
        assert action(agents, "plan", "read", "a.txt") == "allow"


def test_the_configuration_of_an_agent_comes_after_that_of_all(tmp_path: Path) -> None:
    """And after what is built in, so that a person may let plan write notes."""
    config = Config(
        permission=(rule("bash", "*", "ask"), rule("edit", "*", "ask")),
        agent={
            "build": AgentConfig(permission=(rule("bash", "git *", "allow"),)),
            "plan": AgentConfig(permission=(rule("edit", "notes/*", "allow"),)),
        },
    )
    agents = Agents(config, tmp_path)
    assert action(agents, "build", "bash", "git status") == "allow"
    assert action(agents, "build", "bash", "make") == "ask"
    assert action(agents, "plan", "edit", "notes/a.md") == "allow"
    assert action(agents, "plan", "edit", "src/a.py") == "deny"
    assert not agents.rulebook("plan").is_off("edit")


def test_untrusted_files_only_restrict(tmp_path: Path) -> None:
    """Those about all agents, and those about one."""
    config = Config(
        restrictions=((rule("*", "*", "allow"), rule("bash", "curl *", "deny")),),
        agent={
            "build": AgentConfig(restrictions=((rule("edit", "*", "ask"),),)),
            "plan": AgentConfig(restrictions=((rule("*", "*", "allow"),),)),
        },
    )
    agents = Agents(config, tmp_path)
    assert action(agents, "build", "bash", "curl x") == "deny"
    assert action(agents, "build", "edit", "a") == "ask"
    assert action(agents, "build", "read", ".env") == "ask"
    assert action(agents, "plan", "edit", "a") == "deny"


def test_an_agent_is_as_configured(tmp_path: Path) -> None:
    """Model, prompt, limits; and it reads on the wire as clients know agents."""
    config = Config(
        agent={
            "build": AgentConfig(
                model="local/some/model", prompt="Be brief.", steps=7, top_p=0.5, temperature=0.1
            )
        }
    )
    agent = Agents(config, tmp_path).get("build")
    assert agent.model == MessageModel(providerID="local", modelID="some/model")
    assert (agent.prompt, agent.steps, agent.topP, agent.temperature) == ("Be brief.", 7, 0.5, 0.1)
    assert wire.decode(wire.encode(agent), AgentInfo) == agent
    sent = wire.decode(wire.encode(Agents(Config(), tmp_path).get("plan")), dict)
    assert sent.keys() == {"name", "description", "mode", "native", "permission", "options"}
    assert (sent["mode"], sent["native"], sent["options"]) == ("primary", True, {})
    assert sent["permission"][0] == {"permission": "*", "pattern": "*", "action": "allow"}


def test_who_answers_when_nobody_is_named(tmp_path: Path) -> None:
    """Build, or whoever the configuration says, who is listed first too."""
    agents = Agents(Config(), tmp_path)
    assert agents.get().name == "build"
    names = ["build", "compaction", "explore", "general", "plan", "summary", "title"]
    assert [each.name for each in agents.list()] == names
    agents = Agents(Config(default_agent="plan"), tmp_path)
    assert agents.get().name == "plan"
    assert [each.name for each in agents.list()][:2] == ["plan", "build"]
    assert agents.get("build").name == "build"


def test_the_default_agent_answers_people(tmp_path: Path) -> None:
    """One for tasks, or a hidden one, is refused; without a choice such agents are passed over."""
    for name, why in (("explore", "for tasks"), ("title", "is hidden"), ("x", "for tasks")):
        config = Config(default_agent=name, agent={"x": AgentConfig(mode="subagent")})
        with pytest.raises(ConfigInvalid, match=why):
            Agents(config, tmp_path).get()
        assert Agents(config, tmp_path).list()[0].name == name
    off = {name: AgentConfig(disable=True) for name in ("build", "plan")}
    agents = Agents(Config(agent={**off, "mine": AgentConfig(prompt="x")}), tmp_path)
    assert agents.get().name == agents.list()[0].name == "mine"
    with pytest.raises(AgentNotFound):
        Agents(Config(agent=off), tmp_path).get()


def test_agents_for_tasks(tmp_path: Path) -> None:
    """They ask people nothing. `general` works, and `explore` changes nothing."""
    for config in (Config(), Config(permission=(rule("*", "*", "allow"),))):
        agents = Agents(config, tmp_path)
        for name in ("general", "explore"):
            assert agents.get(name).mode == "subagent"
        assert action(agents, "general", "edit", "a.txt") == "allow"
        assert agents.rulebook("explore").is_off("edit")
        assert agents.rulebook("explore").is_off("task")
        assert action(agents, "explore", "bash", "ls") == "ask"
        assert action(agents, "explore", "grep", "x") == "allow"
    agents = Agents(Config(), tmp_path)
    assert agents.rulebook("general").is_off("question")
    assert agents.rulebook("general").is_off("todowrite")
    assert agents.rulebook("explore").is_off("skill")
    expected = {".env": "ask", "a.py": "allow", ".env.example": "allow"}
    assert {name: action(agents, "explore", "read", name) for name in expected} == expected
    assert action(agents, "explore", "external_directory", "/etc/*") == "ask"


def test_what_kedge_does_by_itself_has_no_tools(tmp_path: Path) -> None:
    """The agents for that are in no menu."""
    agents = Agents(Config(permission=(rule("*", "*", "allow"),)), tmp_path)
    for name in ("compaction", "title", "summary"):
        assert agents.get(name).hidden
        assert agents.rulebook(name).is_off("read")
    assert agents.get("title").temperature == 0.5
    assert not any(agents.get(name).hidden for name in ("build", "plan", "general", "explore"))


def test_plan_does_not_write_through_another_agent(tmp_path: Path) -> None:
    """`explore` asks for each command as `plan` does; agents that write are asked for."""
    for config in (Config(), Config(permission=(rule("*", "*", "allow"),))):
        agents = Agents(config, tmp_path)
        assert action(agents, "plan", "task", "general") in ("deny", "ask")
        assert action(agents, "plan", "task", "mine") == "ask"
        assert action(agents, "build", "task", "general") == "allow"
    assert action(Agents(Config(), tmp_path), "plan", "task", "explore") == "allow"
    assert set(FIRM["plan"]) == {"bash", "task"}


@pytest.mark.parametrize("name", ["plan", "explore"])
def test_what_is_denied_to_all_is_not_asked(tmp_path: Path, name: str) -> None:
    """An agent that asks before each command does not loosen what the user denies."""
    config = Config(permission=(rule("bash", "*", "deny"), rule("bash", "git *", "allow")))
    agents = Agents(config, tmp_path)
    assert action(agents, name, "bash", "rm x") == "deny"
    assert action(agents, name, "bash", "git log") == "ask"
    assert (
        Agents(Config(permission=(rule("*", "*", "deny"),)), tmp_path).rulebook(name).is_off("bash")
    )


def test_an_agent_of_the_configuration(tmp_path: Path) -> None:
    """An unknown name makes one, with the rules for all; a built-in one may get another mode."""
    config = Config(
        permission=(rule("bash", "*", "ask"),),
        agent={
            "mine": AgentConfig(
                prompt="Be mine.",
                color="#aabbcc",
                hidden=True,
                permission=(rule("edit", "*", "deny"),),
            ),
            "general": AgentConfig(mode="all"),
            "ghost": AgentConfig(restrictions=((rule("edit", "*", "deny"),),)),
        },
    )
    agents = Agents(config, tmp_path)
    mine = agents.get("mine")
    assert (mine.mode, mine.native, mine.hidden, mine.color) == ("all", False, True, "#aabbcc")
    assert (mine.prompt, mine.description) == ("Be mine.", None)
    assert action(agents, "mine", "bash", "ls") == "ask"
    assert agents.rulebook("mine").is_off("edit")
    assert (agents.get("general").mode, agents.get("general").native) == ("all", True)
    with pytest.raises(AgentNotFound):
        agents.get("ghost")


def test_an_agent_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With those that are; one that was switched off is not there."""
    off = Agents(Config(agent={"build": AgentConfig(disable=True)}), tmp_path)
    assert off.get().name == "plan"
    with pytest.raises(AgentNotFound, match="Agent not found: build: there are explore, general"):
        off.get("build")
    with pytest.raises(AgentNotFound, match="there are build, explore, general, plan"):
        Agents(Config(default_agent="nobody"), tmp_path).get()
    with pytest.raises(AgentNotFound):
        Agents(Config(), tmp_path).rulebook("chef")


@pytest.mark.parametrize("model", ["gpt", "/x", "x/", ""])
def test_a_model_without_a_provider_is_refused(tmp_path: Path, model: str) -> None:
    """The key is named."""
    config = Config(agent={"plan": AgentConfig(model=model)})
    with pytest.raises(ConfigInvalid, match=r"agent\.plan\.model: expected provider/model"):
        Agents(config, tmp_path)


def test_switches_of_one_tool_count_before_those_of_many() -> None:
    """In whatever order they are given; the tools that change files are one permission."""
    assert tool_switches({"read": True, "*": False, "write": False}) == [
        rule("*", "*", "deny"),
        rule("read", "*", "allow"),
        rule("edit", "*", "deny"),
    ]
