"""What clients see of the configuration."""

import json
import os
import shutil
from typing import Any

from tests.server.world import Served


async def test_an_empty_configuration_has_what_clients_look_for(served: Served) -> None:
    """Keys that OpenCode always sends are there without any file."""
    reply = await served.get("/config")
    assert reply.status == 200
    assert reply.json == {
        "$schema": "https://opencode.ai/config.json",
        "command": {},
        "plugin": [],
        "username": "unknown",
        "mode": {},
        "agent": {},
    }
    assert (await served.get("/global/config")).json == {
        "$schema": "https://opencode.ai/config.json"
    }


async def test_a_changed_file_counts_at_once(served: Served) -> None:
    """The user's own configuration is in both answers, a project's only in its directory's."""
    served.world.configure(username="ada", model="kedge/offline", share="disabled")
    served.world.put("opencode.json", json.dumps({"username": "bob", "small_model": "a/b"}))
    here = (await served.get("/config")).json
    assert (here["username"], here["share"], here["small_model"]) == ("bob", "disabled", "a/b")
    own = (await served.get("/global/config")).json
    assert (own["username"], own["model"]) == ("ada", "kedge/offline")
    assert "small_model" not in own


async def test_no_secret_is_shown(served: Served) -> None:
    """Keys, headers, logins in addresses and variables are hidden in everything that is sent."""
    options: dict[str, Any] = {
        "baseURL": "http://me:SECRET@127.0.0.1:1/v1",
        "apiKey": "SECRET",
        "odd": "SECRET",
    }
    options |= {"headers": {"x": "SECRET"}}
    model = {"headers": {"authorization": "SECRET"}, "options": {"apiKey": "SECRET"}}
    served.world.configure(
        provider={"monkey": {"options": options, "models": {"one": model}}},
        agent={"build": {"options": {"token": "SECRET"}}},
        mcp={
            "tools": {"type": "local", "command": ["x", "SECRET"], "environment": {"A": "SECRET"}}
        },
    )
    for route in ("/config", "/global/config", "/config/providers", "/provider", "/agent", "/mcp"):
        reply = await served.get(route)
        assert (reply.status, b"SECRET" in reply.body) == (200, False), route
    for route in ("/api/agent", "/api/provider", "/api/model", "/api/integration"):
        reply = await served.get(route)
        assert (reply.status, b"SECRET" in reply.body) == (200, False), route
    shown = (await served.get("/config/providers")).json["providers"][0]
    assert (shown["id"], shown["models"]["one"]["name"]) == ("monkey", "one")


async def test_a_broken_file_does_not_keep_clients_from_starting(served: Served) -> None:
    """What can be read counts, a notice tells of the rest, and a prompt is refused with it."""
    served.world.configure(username="ada")
    served.world.put("opencode.json", '{"model": }')
    for route in ("/config/providers", "/provider", "/agent", "/global/config", "/mcp"):
        assert (await served.get(route)).status == 200, route
    shown = (await served.get("/config")).json
    assert shown["username"] == "ada"
    (notice,) = shown["notices"]
    assert "opencode.json" in notice
    session = (await served.post("/session", {})).json
    parts = [{"type": "text", "text": "hello"}]
    refused = await served.post(f"/session/{session['id']}/message", {"parts": parts})
    assert refused.status >= 400
    assert "opencode.json" in refused.json["data"]["message"]


async def test_a_directory_that_is_gone_is_answered_for(served: Served) -> None:
    """Whoever left a client open in a folder that was removed can still look around."""
    folder = served.world.root / "gone"
    folder.mkdir()
    known = await served.get(f"/project/current?directory={folder}")
    shutil.rmtree(folder)
    for route in ("/config", "/config/providers", "/provider", "/agent", "/path", "/api/location"):
        reply = await served.get(f"{route}?directory={folder}")
        assert reply.status == 200, route
    assert (await served.get(f"/project/current?directory={folder}")).json == known.json
    never = served.world.root / "never" / "there"
    place = (await served.get(f"/path?directory={never}")).json
    assert (place["directory"], place["worktree"]) == (str(never), str(never))
    project = (await served.get(f"/project/current?directory={never}")).json
    assert (project["worktree"], "vcs" in project) == (str(never), False)
    inside = (await served.get(f"/path?directory={served.world.folder}/not/there")).json
    assert inside["worktree"] == str(served.world.folder)


async def test_a_pipe_in_the_place_of_a_file_stops_nobody(served: Served) -> None:
    """Prompts are answered, and clients are told that it does not count."""
    os.mkfifo(served.world.folder / "opencode.json")
    session = (await served.post("/session", {})).json["id"]
    body = {"parts": [{"type": "text", "text": "say done"}]}
    reply = await served.post(f"/session/{session}/message", body)
    assert (reply.status, reply.json["info"]["finish"]) == (200, "stop")
    notices = (await served.get("/config")).json["notices"]
    assert any("opencode.json is ignored: it is not a regular file" in each for each in notices)
