"""The agents and tools that clients are told of."""

from tests.server.world import Served


async def test_the_default_agent_comes_first(served: Served) -> None:
    """Terminal UIs begin with the first."""
    agents = (await served.get("/agent")).json
    assert [(each["name"], each["mode"]) for each in agents] == [
        ("build", "primary"),
        ("compaction", "primary"),
        ("explore", "subagent"),
        ("general", "subagent"),
        ("plan", "primary"),
        ("summary", "primary"),
        ("title", "primary"),
    ]
    shown = [each["name"] for each in agents if not each.get("hidden")]
    assert shown == ["build", "explore", "general", "plan"]
    assert all({"permission", "options", "native"} <= set(each) for each in agents)
    served.world.configure(default_agent="plan", agent={"plan": {"model": "kedge/offline"}})
    first = (await served.get("/agent")).json[0]
    assert first["name"] == "plan"
    assert first["model"] == {"providerID": "kedge", "modelID": "offline"}


async def test_tools_are_listed_with_their_arguments(served: Served) -> None:
    """Names alone, and for a model with the schema that it is shown."""
    ids = (await served.get("/experimental/tool/ids")).json
    assert {"read", "write", "edit", "bash", "apply_patch", "todowrite", "question"} <= set(ids)
    tools = (await served.get("/experimental/tool?provider=kedge&model=offline")).json
    assert [each["id"] for each in tools] == ids
    bash = next(each for each in tools if each["id"] == "bash")
    assert "command" in bash["parameters"]["properties"]


async def test_tools_are_those_that_the_model_is_offered(served: Served) -> None:
    """Some models change files by patches, others by edits; of unknown ones nothing is left out."""
    models: dict[str, object] = {"gpt-6": {}, "claude-9": {}}
    provider = {"options": {"baseURL": "http://127.0.0.1:1/v1"}, "models": models}
    served.world.configure(provider={"lab": provider})

    async def names(model: str) -> set[str]:
        listed = (await served.get(f"/experimental/tool?provider=lab&model={model}")).json
        return {each["id"] for each in listed} & {"edit", "write", "apply_patch"}

    assert await names("gpt-6") == {"apply_patch"}
    assert await names("claude-9") == {"edit", "write"}
    assert await names("none") == {"edit", "write", "apply_patch"}


async def test_tools_of_nobody_are_a_bad_request(served: Served) -> None:
    """The provider and the model have to be said, as to OpenCode."""
    reply = await served.get("/experimental/tool")
    assert (reply.status, reply.json["data"]["kind"]) == (400, "Query")


async def test_commands_and_skills_are_listed(served: Served) -> None:
    """kedge's own first, then those of the configuration, then skills that no command hides."""
    skill = served.world.config / "opencode" / "skills" / "pdf" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: pdf\ndescription: Reads PDFs\n---\nUse $ARGUMENTS.")
    served.world.configure(
        command={"hello": {"template": "say $2 $1", "description": "d", "agent": "plan"}}
    )
    commands = (await served.get("/command")).json
    assert [(each["name"], each["source"]) for each in commands] == [
        ("init", "command"),
        ("review", "command"),
        ("hello", "command"),
        ("pdf", "skill"),
    ]
    assert commands[0]["hints"] == ["$ARGUMENTS"]
    assert commands[1]["subtask"] is True
    assert commands[2] == {
        "name": "hello",
        "description": "d",
        "agent": "plan",
        "source": "command",
        "template": "say $2 $1",
        "hints": ["$1", "$2"],
    }
    assert commands[3]["template"].startswith("Use $ARGUMENTS.\n\nThe folder of this skill is ")
    (listed,) = (await served.get("/skill")).json
    assert listed == {
        "name": "pdf",
        "description": "Reads PDFs",
        "location": str(skill),
        "content": "Use $ARGUMENTS.",
    }
