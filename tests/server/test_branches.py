"""Whoever listens hears which branch is checked out, whoever did it; with real git."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kedge.engine import branches
from kedge.snapshot.worktree.filesystems import Mounts
from tests.agent.world import World
from tests.server.event_recorder import EventRecorder, listening
from tests.server.test_vcs import git
from tests.server.world import Served, serve

UPDATED = "vcs.branch.updated"


@pytest.fixture
def folder(world: World) -> Path:
    """A repository with a commit, on `main`."""
    git(world.folder, "checkout", "--quiet", "-b", "main")
    git(world.folder, "add", "--all")
    git(world.folder, "commit", "--quiet", "--message", "one")
    return world.folder


@pytest.fixture(params=["told", "looked"])
async def way(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, folder: Path, world: World
) -> AsyncIterator[Served]:
    """A server that the kernel tells of changes, and one that has to look."""
    if request.param == "looked":
        monkeypatch.setattr(Mounts, "tells_of_names", lambda *_: False)
    elif not sys.platform.startswith("linux") or not Mounts().tells_of_names(os.fsencode(folder)):
        pytest.skip("the kernel does not tell here")
    async with serve(world) as served:
        yield served


async def branch_of(served: Served, directory: Path) -> str | None:
    """What a client is told that asks; of every other branch it is told from then on."""
    found: str | None = (await served.get(f"/vcs?directory={directory}")).json["branch"]
    return found


async def next_branch(recorder: EventRecorder) -> object:
    """What the next event of this kind says."""
    return (await recorder.until(UPDATED))[-1].properties


async def test_a_person_checks_something_out(way: Served, folder: Path) -> None:
    """Each branch is told once, to those who listen to the directory and to those who listen to
    all; of a commit that no branch names there is no name, as in OpenCode."""
    async with listening(way, "/event") as here, listening(way) as everywhere:
        assert await branch_of(way, folder) == "main"
        for words, told in (
            (("checkout", "--quiet", "-b", "topic/é"), {"branch": "topic/é"}),
            (("branch", "--move", "renamed"), {"branch": "renamed"}),
            (("checkout", "--quiet", "--detach"), {}),
            (("symbolic-ref", "HEAD", "refs/heads/unborn"), {"branch": "unborn"}),
        ):
            git(folder, *words)
            assert await next_branch(here) == told
            wide = (await everywhere.until(UPDATED))[-1]
            assert (wide.properties, wide.data["directory"]) == (told, str(folder))
            assert wide.data["project"] == way.running.backend.engine.project.id


async def test_what_leaves_the_branch_is_not_told(way: Served, folder: Path) -> None:
    """Neither a commit nor the same branch again."""
    async with listening(way, "/event") as recorder:
        assert await branch_of(way, folder) == "main"
        git(folder, "commit", "--quiet", "--allow-empty", "--message", "two")
        git(folder, "symbolic-ref", "HEAD", "refs/heads/main")
        git(folder, "reset", "--quiet", "--hard", "HEAD~1")
        git(folder, "checkout", "--quiet", "-b", "last")
        assert await next_branch(recorder) == {"branch": "last"}


async def test_a_command_of_the_agent(way: Served, folder: Path) -> None:
    """It is told as well, in a session of any directory, to whoever listens to all."""
    async with listening(way) as recorder:
        session = (await way.post(f"/session?directory={folder}", {})).json["id"]
        assert await branch_of(way, folder) == "main"
        command = {"agent": "build", "command": "git checkout -b made"}
        assert (await way.post(f"/session/{session}/shell", command)).status == 200
        assert await next_branch(recorder) == {"branch": "made"}


async def test_linked_worktrees_are_told_apart(way: Served, folder: Path) -> None:
    """Each has a HEAD of its own; folders of one have the same."""
    linked = folder.parent / "linked"
    git(folder, "worktree", "add", "--quiet", "-b", "first", str(linked))
    (linked / "below").mkdir()
    async with (
        listening(way, f"/event?directory={linked}/below") as below,
        listening(way, f"/event?directory={folder}") as main,
    ):
        assert await branch_of(way, linked / "below") == "first"
        assert await branch_of(way, folder) == "main"
        git(linked, "checkout", "--quiet", "-b", "second")
        assert await next_branch(below) == {"branch": "second"}
        git(folder, "checkout", "--quiet", "-b", "third")
        assert await next_branch(main) == {"branch": "third"}


async def test_refs_that_are_kept_in_tables(way: Served, tmp_path: Path) -> None:
    """There the file HEAD never changes."""
    folder = tmp_path / "tables"
    folder.mkdir()
    try:
        git(folder, "init", "--quiet", "--ref-format=reftable", "--initial-branch=main")
    except subprocess.CalledProcessError:
        pytest.skip("this git has no reftables")
    async with listening(way, f"/event?directory={folder}") as recorder:
        assert await branch_of(way, folder) == "main"
        git(folder, "symbolic-ref", "HEAD", "refs/heads/other")
        assert await next_branch(recorder) == {"branch": "other"}


async def test_a_repository_that_comes_and_goes(way: Served, folder: Path) -> None:
    """A folder without one has no branch; who asks after it was made hears of it."""
    async with listening(way, "/event") as recorder:
        assert await branch_of(way, folder) == "main"
        (folder / ".git").rename(folder.parent / "aside")
        assert await next_branch(recorder) == {}
        (folder.parent / "aside").rename(folder / ".git")
        assert await branch_of(way, folder) == "main"
        assert await next_branch(recorder) == {"branch": "main"}


async def test_too_many_directories(
    served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were cared for first are forgotten, and no watch is left of them."""
    monkeypatch.setattr(branches, "_MOST_DIRECTORIES", 3)
    watch = served.running.backend.streams.branches
    for number in range(6):
        other = folder.parent / f"other{number}"
        other.mkdir()
        git(other, "init", "--quiet", "--initial-branch=main")
        assert await branch_of(served, other) == "main"
    assert len(watch) == 3
    async with listening(served) as recorder:
        git(folder.parent / "other5", "symbolic-ref", "HEAD", "refs/heads/new")
        assert await next_branch(recorder) == {"branch": "new"}
