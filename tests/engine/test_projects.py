"""Projects over time: sessions stay in their lists whatever happens to the folder they belong
to."""

import shutil
from pathlib import Path

import pytest

from kedge.domain.errors import ProjectNotFound, TooLarge
from kedge.domain.projects import ProjectCommands, ProjectIcon
from kedge.engine.engine import Engine
from kedge.engine.worktrees import Worktree
from kedge.store.queries.projects import project_aliases
from tests.engine.engine_factory import EngineFactory
from tests.engine.repositories import commit, git, repository


async def listed(engine: Engine) -> list[str]:
    """The titles of the engine's project."""
    return sorted(each.title for each in (await engine.sessions.list()).sessions)


async def aliases(engine: Engine) -> list[str]:
    """Every identity of the engine's project."""
    return await engine.store.scan(lambda: project_aliases(engine.project.id))


async def test_two_clones_are_one_project(any_place: EngineFactory, tmp_path: Path) -> None:
    """Sessions of both clones stand in one list; each clone is a worktree of the project."""
    root = repository(any_place.folder)
    git(tmp_path, "clone", "-q", str(any_place.folder), "clone")
    async with (
        any_place.open() as one,
        EngineFactory(tmp_path / "clone", any_place.database).open() as two,
    ):
        await one.sessions.create("one")
        await two.sessions.create("two")
        assert one.project.id == two.project.id == root
        assert await listed(one) == await listed(two) == ["one", "two"]
        assert two.project.worktree == str(any_place.folder)
        assert two.project.sandboxes == [str(tmp_path / "clone")]


async def test_a_folder_becomes_a_repository(any_place: EngineFactory) -> None:
    """When a plain folder gets git and commits, its sessions are still listed in its project."""
    async with any_place.open() as engine:
        session = await engine.sessions.create("plain")
        plain = engine.project.id
    repository(any_place.folder, 0)
    async with any_place.open() as engine:
        assert await listed(engine) == ["plain"]
        assert engine.project.vcs == "git"
    root = commit(any_place.folder)
    async with any_place.open() as engine:
        await engine.sessions.create("committed")
        assert await listed(engine) == ["committed", "plain"]
        assert (await engine.sessions.get(session.id)).info.projectID == engine.project.id
        assert set(await aliases(engine)) == {plain, root}


async def test_a_history_that_was_rewritten_is_the_same_project(any_place: EngineFactory) -> None:
    """A new root commit is one more name of the folder's project."""
    old = repository(any_place.folder)
    async with any_place.open() as engine:
        await engine.sessions.create("old")
    git(any_place.folder, "checkout", "-q", "--orphan", "fresh")
    new = commit(any_place.folder, "new root")
    git(any_place.folder, "branch", "-q", "-D", "main")
    async with any_place.open() as engine:
        assert await listed(engine) == ["old"]
        assert set(await aliases(engine)) == {old, new}


async def test_a_shallow_clone_that_is_deepened_joins_its_project(
    any_place: EngineFactory, tmp_path: Path
) -> None:
    """When a clone learns its true root its sessions move to the project that has that name."""
    root = repository(any_place.folder, 3)
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{any_place.folder}", "shallow")
    shallow = EngineFactory(tmp_path / "shallow", any_place.database)
    async with shallow.open() as engine:
        session = await engine.sessions.create("shallow")
        assert engine.project.id != root
    async with any_place.open() as engine:
        await engine.sessions.create("full")
        assert await listed(engine) == ["full"]
    git(tmp_path / "shallow", "fetch", "-q", "--unshallow")
    async with shallow.open() as engine:
        assert engine.project.id == root
        assert await listed(engine) == ["full", "shallow"]
        assert (await engine.sessions.get(session.id)).info.projectID == root
    async with any_place.open() as engine:
        assert await listed(engine) == ["full", "shallow"]


async def test_a_folder_that_is_gone_keeps_its_sessions(
    any_place: EngineFactory, tmp_path: Path
) -> None:
    """Sessions of a deleted folder can be listed by its path, read and continued from elsewhere."""
    gone = tmp_path / "gone"
    gone.mkdir()
    async with any_place.open() as engine:
        session = await engine.sessions.create("left", directory=gone)
        shutil.rmtree(gone)
        found = (await engine.sessions.list(directory=gone)).sessions
        assert [each.id for each in found] == [session.id]
        assert (await engine.sessions.get(session.id)).info.directory == str(gone)


async def test_a_link_to_a_folder_is_the_folder(any_place: EngineFactory, tmp_path: Path) -> None:
    """An engine opened through a link sees the sessions of the real folder."""
    (tmp_path / "link").symlink_to(any_place.folder)
    async with EngineFactory(tmp_path / "link", any_place.database).open() as engine:
        session = await engine.sessions.create("linked")
        assert session.info.directory == str(any_place.folder)
        found = await engine.sessions.list(directory=tmp_path / "link")
        assert [each.id for each in found.sessions] == [session.id]


async def test_a_folder_below_the_root_has_a_path(any_place: EngineFactory) -> None:
    """A session of a sub-directory belongs to the worktree's project and says where it is."""
    root = repository(any_place.folder)
    below = any_place.folder / "a" / "b"
    below.mkdir(parents=True)
    async with EngineFactory(below, any_place.database).open() as engine:
        session = await engine.sessions.create("below")
        assert (session.info.path, session.info.projectID) == ("a/b", root)
        assert engine.place.worktree == str(any_place.folder)
        for path, count in {"": 1, "a": 1, "a/b": 1, "/a/b/": 1, "a/bc": 0, "b": 0}.items():
            assert len((await engine.sessions.list(path=path)).sessions) == count, path


async def test_an_open_engine_follows_its_folder_to_another_project(
    any_place: EngineFactory, tmp_path: Path
) -> None:
    """When another process finds that the folder is a clone, lists and new sessions go along."""
    known = repository(tmp_path / "known")
    async with any_place.open() as engine:
        await engine.sessions.create("before")
        async with EngineFactory(tmp_path / "known", any_place.database).open() as other:
            await other.sessions.create("elsewhere")
        git(any_place.folder, "init", "-q", "-b", "main")
        git(any_place.folder, "pull", "-q", str(tmp_path / "known"), "main")
        async with any_place.open() as other:
            assert other.project.id == known
        assert await listed(engine) == ["before", "elsewhere"]
        after = await engine.sessions.create("after")
        assert after.info.projectID == (await engine.here()).project.id == known
        assert (await after.fork()).info.projectID == known
        assert [hit.session.title for hit in (await engine.sessions.search("elsewh")).hits] == [
            "elsewhere"
        ]


async def test_a_folder_inside_a_new_repository_keeps_its_sessions(
    any_place: EngineFactory,
) -> None:
    """When a repository is made around a folder, or in one, the folder's sessions go along."""
    inner = any_place.folder / "inner"
    inner.mkdir()
    at_inner = EngineFactory(inner, any_place.database)
    async with at_inner.open() as engine:
        await engine.sessions.create("inner")
    repository(any_place.folder)
    async with at_inner.open() as engine:
        assert await listed(engine) == ["inner"]
        (session,) = (await engine.sessions.list()).sessions
        assert session.info.path == "inner"
        assert session.info.projectID == engine.project.id
    async with any_place.open() as engine:
        assert await listed(engine) == ["inner"]
    repository(inner)
    async with at_inner.open() as engine:
        assert await listed(engine) == ["inner"]
        assert (await engine.sessions.list()).sessions[0].info.path == ""


async def test_another_repository_in_the_same_place_is_another_project(
    any_place: EngineFactory, tmp_path: Path
) -> None:
    """A folder that was replaced takes its sessions along, but not the names of its old project."""
    first = repository(tmp_path / "first")
    second = repository(tmp_path / "second")
    git(tmp_path, "clone", "-q", "first", str(any_place.folder))
    async with any_place.open() as engine:
        await engine.sessions.create("of the first")
        assert engine.project.id == first
    shutil.rmtree(any_place.folder)
    git(tmp_path, "clone", "-q", "second", str(any_place.folder))
    async with any_place.open() as engine:
        assert engine.project.id == second
        assert await listed(engine) == ["of the first"]
    async with EngineFactory(tmp_path / "first", any_place.database).open() as engine:
        assert engine.project.id == first
        assert await listed(engine) == []


async def test_a_history_is_walked_once(
    place: EngineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a folder whose commits are known costs nothing that grows with them."""
    repository(place.folder, commits=2)
    async with place.open() as engine:
        known = engine.project.id
    monkeypatch.setattr(Worktree, "identity", lambda self: pytest.fail("walked again"))
    async with place.open() as engine:
        assert engine.project.id == known


async def test_a_place_is_looked_up_without_being_there(
    any_place: EngineFactory, tmp_path: Path
) -> None:
    """A folder that is new is located; one that is gone is what it was, or what it would be."""
    repository(any_place.folder)
    other = tmp_path / "other"
    other.mkdir()
    async with any_place.open() as engine:
        below = await engine.look_up(any_place.folder / "not" / "there")
        assert (below.worktree, below.project) == (str(any_place.folder), engine.project)
        assert below.path == "not/there"
        known = await engine.look_up(other)
        assert known == await engine.locate(other)
        other.rmdir()
        assert await engine.look_up(other) == known
        never = await engine.look_up(tmp_path / "never")
        assert (never.worktree, never.project.vcs) == (str(tmp_path / "never"), None)
        listed = {each.id for each in await engine.projects.list()}
        assert listed == {engine.project.id, known.project.id}


async def test_people_name_a_project(any_place: EngineFactory) -> None:
    """What is said is kept under every id of the project; what is not said stays."""
    async with any_place.open() as engine:
        plain = engine.project.id
    root = repository(any_place.folder)
    async with any_place.open() as engine:
        icon = ProjectIcon(color="blue")
        await engine.projects.update(root, name="One", icon=icon)
        named = await engine.projects.update(plain, commands=ProjectCommands(start="make"))
        assert (named.name, named.icon, named.commands) == (
            "One",
            icon,
            ProjectCommands(start="make"),
        )
        assert await engine.projects.get(root) == await engine.projects.get(plain) == named
        for id in ("nobody", "no\0body"):
            with pytest.raises(ProjectNotFound):
                await engine.projects.get(id)
            with pytest.raises(ProjectNotFound):
                await engine.projects.update(id, name="x")
        with pytest.raises(TooLarge):
            await engine.projects.update(plain, name="x" * 300_000)
