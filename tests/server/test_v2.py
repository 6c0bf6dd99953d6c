"""What newer clients ask under `/api`."""

from urllib.parse import quote, unquote

from tests.server.world import Served


async def test_every_answer_says_where_it_is_about(served: Served) -> None:
    """The location is the one of the query in the newer form, which beats the header."""
    other = served.world.root / "other"
    other.mkdir()
    query = f"{quote('location[directory]')}={quote(str(other))}"
    headers = {"x-opencode-directory": str(served.world.folder)}
    project = (await served.get(f"/project/current?directory={other}")).json
    location = {
        "directory": str(other),
        "project": {"id": project["id"], "directory": str(other)},
    }
    assert (await served.get(f"/api/location?{query}", headers=headers)).json == location
    names = ("agent", "model", "provider", "integration", "reference", "command", "skill")
    for name in (*names, "provider/kedge", "integration/openai", "fs/list"):
        reply = await served.get(f"/api/{name}?{query}", headers=headers)
        assert (reply.status, reply.json["location"]) == (200, location), name


async def test_the_newer_form_of_a_directory_beats_the_older(served: Served) -> None:
    """A client of the SDK adds its own directory to a request that names another."""
    other = served.world.root / "other"
    other.mkdir()
    said = quote("location[directory]")
    for order in (f"{said}={other}&directory=.", f"directory=.&{said}={other}"):
        assert (await served.get(f"/api/location?{order}")).json["directory"] == str(other)


async def test_models_and_agents_are_those_of_the_older_routes(served: Served) -> None:
    """In the words of the newer ones."""
    (model,) = (await served.get("/api/model")).json["data"]
    assert (model["providerID"], model["id"], model["enabled"]) == ("kedge", "offline", True)
    assert model["capabilities"] == {
        "tools": True,
        "input": ["text", "image", "pdf"],
        "output": ["text"],
    }
    assert model["time"] == {"released": 0}
    (provider,) = (await served.get("/api/provider")).json["data"]
    assert provider["id"] == "kedge"
    agents = (await served.get("/api/agent")).json["data"]
    assert [each["id"] for each in agents][:2] == ["build", "compaction"]
    assert {"action": "*", "resource": "*", "effect": "allow"} in agents[0]["permissions"]


async def test_one_provider_is_that_of_the_list(served: Served) -> None:
    """And so is what it needs; one that cannot be used is not there."""
    for kind, name in (("provider", "kedge"), ("integration", "anthropic")):
        listed = (await served.get(f"/api/{kind}")).json["data"]
        one = (await served.get(f"/api/{kind}/{name}")).json["data"]
        assert one == next(each for each in listed if each["id"] == name)
    for path in ("provider/anthropic", "provider/no%20such", "integration/kedge"):
        reply = await served.get(f"/api/{path}")
        assert reply.status == 404, path
        assert reply.json["_tag"] == "ProviderNotFoundError"
        assert reply.json["providerID"] == unquote(path.partition("/")[2])


async def test_commands_and_skills_are_those_of_the_older_routes(served: Served) -> None:
    """A skill is listed once, with whether it can be run as a command."""
    for name in ("pdf", "review"):
        served.world.put(
            f"../home/config/opencode/skills/{name}/SKILL.md",
            f"---\nname: {name}\ndescription: Does it\n---\nUse it.",
        )
    served.world.configure(command={"mine": {"template": "do $1", "model": "kedge/offline"}})
    older = {each["name"]: each for each in (await served.get("/command")).json}
    commands = {each["name"]: each for each in (await served.get("/api/command")).json["data"]}
    assert commands.keys() == older.keys() - {"pdf"}
    assert commands["mine"] == {
        "name": "mine",
        "template": "do $1",
        "model": {"id": "offline", "providerID": "kedge"},
    }
    for name, each in commands.items():
        same = ("template", "description", "agent", "subtask")
        assert [each.get(key) for key in same] == [older[name].get(key) for key in same]
    skills = (await served.get("/api/skill")).json["data"]
    listed = (await served.get("/skill")).json
    assert [{**each, "slash": each["name"] == "pdf"} for each in listed] == skills
    assert [each["name"] for each in skills] == ["pdf", "review"]


async def test_folders_are_listed_as_by_the_older_route(served: Served) -> None:
    """That of the location itself, unless a path is named; never one outside of it."""
    for name in ("deep/apple.txt", "deep/inner/x", "pear.txt"):
        served.world.put(name, "x")
    for path in ("", "deep", "deep/inner/"):
        older = (await served.get(f"/file?path={path or '.'}")).json
        entries = (await served.get(f"/api/fs/list?path={path}")).json["data"]
        assert entries == [{"path": each["path"], "type": each["type"]} for each in older]
    assert (await served.get("/api/fs/list")).json == (await served.get("/api/fs/list?path=")).json
    for path, status in (("../..", 403), ("none", 404), ("pear.txt", 400), ("a%00", 400)):
        assert (await served.get(f"/api/fs/list?path={path}")).status == status, path


async def test_files_are_found_by_name(served: Served) -> None:
    """Folders too, unless only files are wanted; as terminal UIs ask when a prompt names a file."""
    served.world.put("deep/apple.txt", "x")
    found = (await served.get("/api/fs/find?query=apple")).json["data"]
    assert found == [{"path": "deep/apple.txt", "type": "file"}]
    folders = (await served.get("/api/fs/find?query=deep&type=directory")).json["data"]
    assert folders == [{"path": "deep/", "type": "directory"}]
    assert len((await served.get("/api/fs/find?query=&limit=1")).json["data"]) == 1
    assert (await served.get("/api/fs/find?query=a&limit=-1")).json["data"] == []


async def test_a_search_for_nothing_is_a_bad_request(served: Served) -> None:
    """What to find has to be said, and how much of it in a number."""
    for query in ("", "query=a&limit=x", "query=a&type=socket"):
        reply = await served.get(f"/api/fs/find?{query}")
        assert (reply.status, reply.json["data"]["kind"]) == (400, "Query"), query
