"""Lists of sessions over HTTP: which, in which order, page by page."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest

from tests.agent.world import World
from tests.server.world import Served, serve


async def made(served: Served, *titles: str, parent: str | None = None) -> list[str]:
    """New sessions; their ids, the newest first."""
    ids = [
        (await served.post("/session", {"title": each, "parentID": parent})).json["id"]
        for each in titles
    ]
    return ids[::-1]


async def listed(served: Served, query: str = "", *, header: str | None = None) -> list[str]:
    """The ids of a list."""
    reply = await served.get(
        f"/session{query}", headers={"x-opencode-directory": header} if header else None
    )
    assert reply.status == 200, reply
    return ids_of(reply.json)


def ids_of(sessions: Sequence[dict[str, Any]]) -> list[str]:
    """The ids of sessions."""
    return [each["id"] for each in sessions]


async def test_a_list_is_filtered_as_opencode_does(served: Served) -> None:
    """What is no number is passed over, an empty path filters nothing, unknown keys are ignored."""
    everything = await made(served, "one", "two", "three")
    child = (await made(served, "child", parent=everything[0]))[0]
    everything = [child, *everything]
    newest = (await served.get(f"/session/{child}")).json["time"]["updated"]
    for query in ("", "?limit=-1", "?limit=abc", "?start=x", "?roots=false", "?scope=project"):
        assert set(await listed(served, query)) == set(everything), query
    for query in ("?path=", "?unknown=1", "?search=", "?limit=1e9", "?limit=100000"):
        assert set(await listed(served, query)) == set(everything), query
    assert await listed(served, "?limit=0") == []
    assert set(await listed(served, "?roots=true")) == set(everything) - {child}
    assert await listed(served, f"?start={newest + 1}") == []
    assert child in await listed(served, f"?start={newest}")
    assert await listed(served, "?path=sub") == []
    assert await listed(served, "?search=TW") == [everything[2]]
    assert await listed(served, "?search=WO") == [everything[2]]
    assert await listed(served, "?search=%25") == await listed(served, "?search=_") == []


@pytest.mark.parametrize("query", ["roots=1", "roots=", "scope=bogus", "limit=1.5", "cursor=x"])
async def test_a_list_that_makes_no_sense_is_refused(served: Served, query: str) -> None:
    """With 400, where OpenCode takes a fraction for its own fault."""
    reply = await served.get(f"/session?{query}")
    assert (reply.status, reply.json["name"]) == (400, "BadRequest")


async def test_a_list_goes_on_page_by_page(served: Served) -> None:
    """The one changed last first; each page says where the next one begins."""
    everything = await made(served, *"abcde")
    whole = await listed(served)
    assert set(whole) == set(everything)
    seen: list[str] = []
    target = "/session?limit=2"
    while True:
        reply = await served.get(target)
        seen += ids_of(reply.json)
        if "x-next-cursor" not in reply.headers:
            break
        target = f"/session?limit=2&cursor={reply.headers['x-next-cursor']}"
    assert seen == whole


async def test_directories_choose_sessions(served: Served) -> None:
    """The header only picks the project, the query one directory, a path what is below it."""
    root = served.world.folder
    for name in ("sub", "other"):
        (root / name).mkdir()
    outside = served.world.root / "outside"
    outside.mkdir()
    at = {}
    for name in ("", "sub", "other"):
        reply = await served.post(f"/session?directory={root / name}")
        at[name] = reply.json["id"]
    far = (await served.post(f"/session?directory={outside}")).json["id"]
    header = quote(str(root / "sub"))
    assert set(await listed(served, header=header)) == set(at.values())
    assert await listed(served, f"?directory={root}/sub/") == [at["sub"]]
    assert await listed(served, f"?directory={root}", header=header) == [at[""]]
    assert await listed(served, "?path=sub") == [at["sub"]]
    assert set(await listed(served, f"?directory={root}/sub&scope=project")) == set(at.values())
    assert await listed(served, f"?directory={root}/other&path=sub") == [at["sub"]]
    assert await listed(served, f"?directory={outside}") == [far]
    assert await listed(served, header=str(outside)) == [far]
    assert await listed(served, "?directory=/does/not/exist") == []
    outside.rmdir()
    assert await listed(served, f"?directory={outside}&path=") == [far]


async def test_sessions_of_all_projects(served: Served) -> None:
    """Each with its project; the archive only if it is asked for; a time says where to go on."""
    outside = served.world.root / "outside"
    outside.mkdir()
    here = (await made(served, "here"))[0]
    away = (await made(served, "away"))[0]
    await served.patch(f"/session/{away}", {"time": {"archived": 1}})
    far = (await served.post(f"/session?directory={outside}", {"title": "far"})).json["id"]
    url = "/experimental/session"
    found = (await served.get(url)).json
    assert set(ids_of(found)) == {here, far}
    projects = {each["id"]: each["project"] for each in found}
    assert projects[here]["worktree"] == str(served.world.folder)
    assert projects[far] == {"id": found[0]["projectID"], "worktree": str(outside)}
    assert set(ids_of((await served.get(f"{url}?archived=true")).json)) == {here, away, far}
    assert ids_of((await served.get(f"{url}?directory={outside}&roots=true")).json) == [far]
    assert ids_of((await served.get(f"{url}?search=he")).json) == [here]
    first = await served.get(f"{url}?limit=1&archived=true")
    rest = await served.get(f"{url}?archived=true&cursor={first.headers['x-next-cursor']}")
    newest = first.json[0]["time"]["updated"]
    assert all(each["time"]["updated"] < newest for each in rest.json)


async def test_a_server_with_a_root_shows_nothing_else(world: World) -> None:
    """Sessions outside of it are neither listed, found, read nor restored."""
    inside = world.folder / "inside"
    inside.mkdir()
    async with serve(world) as served:
        shown = (await served.post(f"/session?directory={inside}", {"title": "reef"})).json["id"]
        hidden = (await served.post("/session", {"title": "reef"})).json["id"]
        await served.post("/session", {"title": "reef", "parentID": shown})
        removed = (await served.post("/session")).json["id"]
        await served.delete(f"/session/{removed}")
    async with serve(world, root=str(inside)) as served:
        at = f"directory={inside}"
        for target in (f"/session?limit=1&scope=project&{at}", f"/session?{at}"):
            assert ids_of((await served.get(target)).json) == [shown], target
        assert ids_of((await served.get("/experimental/session")).json) == [shown]
        hits = (await served.get(f"/search?query=reef&scope=all&{at}")).json
        assert [each["session"]["id"] for each in hits] == [shown]
        assert (await served.get(f"/session/{shown}/children")).json == []
        assert (await served.get("/session/deleted")).json == []
        assert (await served.post(f"/session/{removed}/restore")).status == 403
        for target in ("", "/message", "/children", "/todo", "/diff"):
            assert (await served.get(f"/session/{hidden}{target}")).status == 403
        assert (await served.delete(f"/session/{hidden}")).status == 403
        assert (await served.get(f"/session?directory={world.folder}")).status == 403
        assert (await served.post("/session?directory=/")).status == 403


async def test_a_server_with_a_root_knows_no_parents_outside(world: World) -> None:
    """A subtask of a session outside would be removed with it, and would tell of it."""
    inside = world.folder / "inside"
    inside.mkdir()
    async with serve(world) as served:
        outer = (await served.post("/session")).json["id"]
        inner = (await served.post(f"/session?directory={inside}")).json["id"]
    async with serve(world, root=str(inside)) as served:
        target = f"/session?directory={inside}"
        reply = await served.post(target, {"parentID": outer})
        assert (reply.status, reply.json["name"]) == (403, "PathRefused")
        none = "ses_" + "0" * 26
        assert (await served.post(target, {"parentID": none})).status == 404
        made = await served.post(target, {"parentID": inner})
        assert (made.status, made.json["parentID"]) == (200, inner)
    async with serve(world) as served:
        assert (await served.get(f"/session/{outer}/children")).json == []


async def test_a_server_with_a_root_removes_nothing_outside(world: World) -> None:
    """Not even as the subtask of a subtask of a session that is inside."""
    inside = world.folder / "inside"
    inside.mkdir()
    async with serve(world) as served:
        top = (await served.post(f"/session?directory={inside}")).json["id"]
        below = {"parentID": top}
        middle = (await served.post(f"/session?directory={inside}", below)).json["id"]
        outer = (await served.post("/session", {"parentID": middle})).json["id"]
    async with serve(world, root=str(inside)) as served:
        assert (await served.delete(f"/session/{top}")).status == 403
    async with serve(world) as served:
        for id in (top, middle, outer):
            assert (await served.get(f"/session/{id}")).status == 200
        assert (await served.delete(f"/session/{top}")).json is True
