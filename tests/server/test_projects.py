"""Projects over HTTP."""

import subprocess

import pytest

from tests.agent.world import World
from tests.server.world import Served, serve


async def test_the_project_of_a_directory(served: Served) -> None:
    """Each directory has its own; all that were asked for are listed, with their checkouts."""
    other = served.world.root / "other"
    other.mkdir()
    here = (await served.get("/project/current")).json
    assert (here["worktree"], here["vcs"]) == (str(served.world.folder), "git")
    there = (await served.get(f"/project/current?directory={other}")).json
    assert (there["worktree"], "vcs" in there) == (str(other), False)
    listed = (await served.get("/project")).json
    assert sorted(each["id"] for each in listed) == sorted([here["id"], there["id"]])
    directories = await served.get(f"/project/{there['id']}/directories")
    assert directories.json == [{"directory": str(other)}]
    assert (await served.get("/project/nobody/directories")).json == []


@pytest.fixture
def cloned(world: World) -> World:
    """The world with a commit, and a clone of it beside it."""
    name = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    empty = ("commit", "--quiet", "--allow-empty", "--message=one")
    subprocess.run(["git", *name, *empty], cwd=world.folder, check=True)
    clone = str(world.root / "clone")
    subprocess.run(["git", "clone", "--quiet", str(world.folder), clone], check=True)
    return world


async def test_two_checkouts_are_directories_of_one_project(cloned: World) -> None:
    """The second is listed after the first."""
    clone = str(cloned.root / "clone")
    async with serve(cloned) as served:
        there = (await served.get(f"/project/current?directory={clone}")).json
        here = (await served.get("/project/current")).json
        assert here == there
        found = (await served.get(f"/project/{here['id']}/directories")).json
        assert [each["directory"] for each in found] == [str(cloned.folder), clone]


async def test_people_name_and_draw_a_project(served: Served) -> None:
    """What is said is kept, what is not said stays, and a project that there is not is told."""
    project = (await served.get("/project/current")).json
    route = f"/project/{project['id']}"
    icon, commands = {"color": "blue"}, {"start": "make"}
    changed = await served.patch(route, {"name": "One", "icon": icon, "commands": commands})
    assert changed.status == 200
    assert {key: changed.json[key] for key in ("name", "icon", "commands")} == {
        "name": "One",
        "icon": icon,
        "commands": commands,
    }
    again = (await served.patch(route, {"name": "Two"})).json
    assert (again["name"], again["icon"]) == ("Two", icon)
    assert (await served.get("/project/current")).json == again
    unknown = await served.patch("/project/nobody", {"name": "x"})
    assert (unknown.status, unknown.json) == (
        404,
        {
            "_tag": "ProjectNotFoundError",
            "projectID": "nobody",
            "message": "Project not found: nobody",
        },
    )


async def test_what_is_said_of_a_project_is_bounded(served: Served) -> None:
    """Every client gets it in an event."""
    project = (await served.get("/project/current")).json
    reply = await served.patch(f"/project/{project['id']}", {"name": "x" * 300_000})
    assert reply.status == 413
    assert (await served.patch("/project/a%00b", {"name": "x"})).status == 404
    wrong = await served.patch(f"/project/{project['id']}", {"name": 1})
    assert (wrong.status, wrong.json["data"]["kind"]) == (400, "Payload")


async def test_projects_outside_of_the_root_are_not_for_clients(world: World) -> None:
    """A server that works in one folder only does not tell of others."""
    (world.root / "other").mkdir()
    async with serve(world) as served:
        other = (await served.get(f"/project/current?directory={world.root}/other")).json
    async with serve(world, root=str(world.folder)) as served:
        listed = (await served.get("/project")).json
        assert [each["worktree"] for each in listed] == [str(world.folder)]
        route = f"/project/{other['id']}"
        assert (await served.get(f"{route}/directories")).json == []
        assert (await served.patch(route, {"name": "x"})).status == 403
        refused = await served.get(f"/config?directory={world.root}/other")
        assert refused.status == 403
