"""Checks of projects: which folder belongs to which project, under every name it ever had."""

from kedge.domain.projects import Project, ProjectIcon
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.projects import (
    all_projects,
    find_project,
    get_project,
    place_worktree,
    project_aliases,
    project_of,
    update_project,
)
from kedge.store.queries.session_lists import directory_place, path_place, session_page
from kedge.store.queries.sessions import (
    create_session,
    delete_session,
    get_session,
    restore_session,
)
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, opened


async def two_clones_are_one_project(database: Database) -> None:
    """The same identity in two folders gives one project with two worktrees."""
    async with opened(database) as scene:
        first = await _place(scene, "/one", "hash")
        second = await _place(scene, "/two", "hash")
        assert first.id == second.id == "hash"
        assert (second.worktree, second.sandboxes) == ("/one", ["/two"])
        assert await scene.read(project_of, "/two") == second
        assert await scene.read(project_of, "/three") is None
        assert await scene.read(get_project, "hash") == second


async def placing_again_says_nothing_new(database: Database) -> None:
    """An unchanged folder causes no event and keeps its times."""
    async with opened(database) as scene:
        first = await _place(scene, "/one", "hash")
        head = (await scene.events())[-1].seq
        scene.clock.advance(5)
        assert await _place(scene, "/one", "hash") == first
        assert await scene.events(head) == []


async def a_folder_that_becomes_a_repository_keeps_its_project(database: Database) -> None:
    """The hash is another name of the project, and leads other clones to it."""
    async with opened(database) as scene:
        before = await _place(scene, "/one", "dir_1", vcs=None)
        after = await _place(scene, "/one", "hash")
        assert (before.id, after.id) == ("dir_1", "dir_1")
        assert (before.vcs, after.vcs) == (None, "git")
        assert await scene.read(project_aliases, "dir_1") == ["dir_1", "hash"]
        assert (await _place(scene, "/two", "hash")).id == "dir_1"


async def sessions_follow_a_folder_that_changes_its_project(database: Database) -> None:
    """They are in the list of their directory before and after, and in the new project's lists."""
    async with opened(database) as scene:
        await _place(scene, "/one", "first")
        await _place(scene, "/two", "second")
        moved = await _session(scene, "first", "/one")
        stays = await _session(scene, "second", "/two")
        project = await _place(scene, "/one", "second")
        assert project.id == "second"
        assert set(project.sandboxes) | {project.worktree} == {
            "/one",
            "/two",
        }
        assert (await scene.read(get_session, moved.id)).projectID == "second"
        assert await _listed(scene, directory_place("/one")) == {moved.id}
        assert await _listed(scene, path_place("second", "")) == {moved.id, stays.id}
        assert await _listed(scene, path_place("first", "")) == set()


async def deleted_sessions_follow_unseen(database: Database) -> None:
    """They stay hidden, and when restored they are in the new project's lists."""
    async with opened(database) as scene:
        await _place(scene, "/one", "first")
        await _place(scene, "/two", "second")
        info = await _session(scene, "first", "/one")
        await scene.write(delete_session, info.id, START)
        head = (await scene.events())[-1].seq
        await _place(scene, "/one", "second")
        assert "session.updated" not in [each.type for each in await scene.events(head)]
        assert await _listed(scene, path_place("second", "")) == set()
        assert (await scene.write(restore_session, info.id)).projectID == "second"
        assert await _listed(scene, path_place("second", "")) == {info.id}


async def a_project_without_folders_hands_on_its_names(database: Database) -> None:
    """A folder that comes with one of them is placed in the project the last folder went to."""
    async with opened(database) as scene:
        await _place(scene, "/one", "first")
        await _place(scene, "/two", "second")
        await _place(scene, "/one", "second")
        assert await scene.read(project_aliases, "second") == ["first", "second"]
        assert await scene.read(project_aliases, "first") == []
        assert (await _place(scene, "/three", "first")).id == "second"


async def a_project_with_folders_left_keeps_its_names(database: Database) -> None:
    """It only loses the folder that went away, and another becomes its main one."""
    async with opened(database) as scene:
        for path in ("/one", "/two"):
            await _place(scene, path, "first")
        await _place(scene, "/other", "second")
        await _place(scene, "/one", "second")
        left = await scene.read(get_project, "first")
        assert (left.worktree, left.sandboxes) == ("/two", [])
        assert await scene.read(project_aliases, "first") == ["first"]


async def projects_are_listed_in_pages(database: Database) -> None:
    """By id, each once."""
    async with opened(database) as scene:
        ids = ["b", "B", "a", "dir_1", "0"]
        for id in ids:
            await _place(scene, f"/{id}", id)
        found: list[str] = []
        while page := await scene.read(all_projects, found[-1] if found else "", 2):
            found += [each.id for each in page]
        assert found == sorted(ids)


async def what_people_say_of_a_project_is_kept(database: Database) -> None:
    """Its name and looks can be changed by any of its names, with one event, and stay when it is
    placed."""
    async with opened(database) as scene:
        await _place(scene, "/one", "dir_1", vcs=None)
        await _place(scene, "/one", "hash")
        head = (await scene.events())[-1].seq
        scene.clock.advance(5)
        icon = ProjectIcon(color="blue")
        changed = await scene.write(
            update_project, "hash", scene.clock.now(), name="One", icon=icon, commands=None
        )
        assert changed is not None
        assert (changed.id, changed.name, changed.icon) == ("dir_1", "One", icon)
        assert changed.time.updated == changed.time.created + 5
        assert [event.type for event in await scene.events(head)] == ["project.updated"]
        assert await _place(scene, "/one", "hash") == changed
        assert await scene.read(find_project, "hash") == changed
        assert await scene.read(find_project, "nobody") is None
        assert await scene.write(update_project, "nobody", scene.clock.now(), name="x") is None


async def _place(scene: Scene, path: str, identity: str, vcs: str | None = "git") -> Project:
    return await scene.write(place_worktree, path, identity, vcs, scene.clock.now())


async def _session(scene: Scene, project: str, directory: str) -> SessionInfo:
    info = scene.session(projectID=project, directory=directory)
    await scene.write(create_session, info, directory)
    return info


async def _listed(scene: Scene, place: str) -> set[str]:
    page = await scene.read(
        session_page, place, roots=None, archived=None, start=0, after=None, limit=100
    )
    return {info.id for info in page.sessions}
