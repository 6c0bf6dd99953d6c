"""What newer clients ask under `/api`."""

from urllib.parse import quote

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
    for name in ("agent", "model", "provider", "integration", "reference", "command", "skill"):
        reply = await served.get(f"/api/{name}?{query}", headers=headers)
        assert (reply.status, reply.json["location"]) == (200, location), name


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
