"""Which project a folder belongs to, with real repositories, odd ones and hostile ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.domain.errors import DirectoryNotFound, InvalidInput
from kedge.engine.worktrees import find_directory, find_worktree, folder_identity, real_path
from tests.engine.engine_factory import EngineFactory
from tests.engine.repositories import commit, git, repository


def identity(folder: Path) -> str:
    """Who a folder says it is."""
    return find_worktree(str(folder)).identity()


def test_a_repository_is_named_by_its_first_commit(tmp_path: Path) -> None:
    """The root commit is the identity, from every folder below the root."""
    root = repository(tmp_path / "r", 3)
    below = tmp_path / "r" / "a" / "b"
    below.mkdir(parents=True)
    for folder in (tmp_path / "r", below):
        found = find_worktree(str(folder))
        assert (found.root, found.identity(), found.vcs) == (str(tmp_path / "r"), root, "git")


def test_a_folder_without_git_is_named_by_its_path(tmp_path: Path) -> None:
    """A plain folder is its own worktree, and its name is stable."""
    found = find_worktree(str(tmp_path))
    assert (found.root, found.identity(), found.vcs) == (
        str(tmp_path),
        folder_identity(str(tmp_path)),
        None,
    )
    assert found.identity().startswith("dir_")


def test_clones_and_linked_worktrees_are_one_project(tmp_path: Path) -> None:
    """Whoever shares the first commit shares the identity, each with a root of its own."""
    root = repository(tmp_path / "r")
    git(tmp_path, "clone", "-q", str(tmp_path / "r"), "clone")
    git(tmp_path / "r", "worktree", "add", "-q", str(tmp_path / "linked"))
    for name in ("clone", "linked"):
        found = find_worktree(str(tmp_path / name))
        assert (found.root, found.identity()) == (str(tmp_path / name), root)


def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    """A `.git` file with a relative path is followed to the submodule's own history."""
    inner = repository(tmp_path / "inner")
    outer = repository(tmp_path / "outer")
    allow = ("-c", "protocol.file.allow=always")
    git(tmp_path / "outer", *allow, "submodule", "--quiet", "add", str(tmp_path / "inner"), "sub")
    assert (tmp_path / "outer" / "sub" / ".git").is_file()
    assert identity(tmp_path / "outer" / "sub") == inner != outer


def test_several_roots_give_one_stable_name(tmp_path: Path) -> None:
    """With unrelated histories merged, one of the root commits is chosen, always the same."""
    first = repository(tmp_path / "r")
    git(tmp_path / "r", "checkout", "-q", "--orphan", "other")
    second = commit(tmp_path / "r", "other root")
    git(tmp_path / "r", "merge", "-q", "--allow-unrelated-histories", "-m", "m", "main")
    assert identity(tmp_path / "r") == min(first, second)


@pytest.mark.parametrize("odd", ["empty", "no commits", "broken head", "dangling file", "text"])
def test_an_odd_repository_is_named_by_its_path(tmp_path: Path, odd: str) -> None:
    """A `.git` that leads nowhere is no error: the folder has a name all the same."""
    folder = tmp_path / "r"
    folder.mkdir()
    match odd:
        case "empty":
            (folder / ".git").mkdir()
        case "no commits":
            repository(folder, 0)
        case "broken head":
            repository(folder)
            (folder / ".git" / "HEAD").write_bytes(b"\xff\x00 nonsense")
        case "dangling file":
            (folder / ".git").write_text(f"gitdir: {tmp_path}/nowhere\n")
        case "text":
            (folder / ".git").write_bytes(b"gitdir: \x00\xff" * 1000)
    assert identity(folder) == folder_identity(str(folder))


def test_a_bare_repository_is_a_folder(tmp_path: Path) -> None:
    """Inside of a bare repository there is no worktree, so it counts as a plain folder."""
    git(tmp_path, "init", "-q", "--bare", "bare")
    assert find_worktree(str(tmp_path / "bare")).vcs is None


HOSTILE = {
    "fsmonitor": ("config", "core.fsmonitor", "{program}"),
    "alias": ("config", "alias.rev-list", "!{program}"),
    "pager": ("config", "core.pager", "{program}"),
    "hooks": ("config", "core.hooksPath", "{folder}"),
    "ssh": ("config", "core.sshCommand", "{program}"),
    "include": ("config", "include.path", "{folder}/included"),
}


@pytest.mark.parametrize("trick", sorted(HOSTILE))
def test_a_hostile_configuration_does_not_run(tmp_path: Path, trick: str) -> None:
    """Nothing that a repository configures is carried out by looking at it."""
    trap = tmp_path / "trap"
    trap.mkdir()
    program = _program(trap / "program", tmp_path / "ran")
    for hook in ("reference-transaction", "post-index-change", "fsmonitor-watchman"):
        shutil.copy(program, trap / hook)
    (trap / "included").write_text(f"[core]\n\tfsmonitor = {program}\n")
    root = repository(tmp_path / "r")
    values = {"program": str(program), "folder": str(trap)}
    git(tmp_path / "r", *(word.format(**values) for word in HOSTILE[trick]))
    assert identity(tmp_path / "r") == root
    assert not (tmp_path / "ran").exists()


def test_a_partial_clone_does_not_fetch(tmp_path: Path) -> None:
    """Commits that are missing are not fetched, so no program of a configured remote is run."""
    program = _program(tmp_path / "program", tmp_path / "ran")
    repository(tmp_path / "r", 2)
    missing = git(tmp_path / "r", "rev-parse", "HEAD~1")
    (tmp_path / "r" / ".git" / "objects" / missing[:2] / missing[2:]).unlink()
    for key, value in {
        "remote.origin.url": f"file://{tmp_path}/elsewhere",
        "remote.origin.uploadpack": str(program),
        "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "tree:0",
        "extensions.partialClone": "origin",
        "core.repositoryFormatVersion": "1",
    }.items():
        git(tmp_path / "r", "config", key, value)
    assert identity(tmp_path / "r") == folder_identity(str(tmp_path / "r"))
    assert not (tmp_path / "ran").exists()


def test_the_environment_does_not_lead_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that tell git where to look are the caller's business, not kedge's."""
    here, there = repository(tmp_path / "here"), repository(tmp_path / "there")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "there" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "there"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "there" / ".git" / "objects"))
    assert identity(tmp_path / "here") == here != there


def test_without_git_folders_still_have_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without git a repository is named by its path for now."""
    repository(tmp_path / "r")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_worktree(str(tmp_path / "r"))
    assert (found.identity(), found.vcs) == (folder_identity(str(tmp_path / "r")), "git")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_repository_that_cannot_be_read_is_named_by_its_path(tmp_path: Path) -> None:
    """Someone else's closed `.git` is no error, and does not make the folder part of one above."""
    repository(tmp_path)
    repository(tmp_path / "r")
    (tmp_path / "r" / ".git").chmod(0)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    code = (
        "import os, sys; os.setgid(65534); os.setuid(65534)\n"
        "from kedge.engine.worktrees import find_worktree\n"
        "found = find_worktree(sys.argv[1]); print(found.root, found.identity())"
    )
    prelude = "import kedge.engine.worktrees, subprocess\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + code, str(tmp_path / "r")],
        capture_output=True,
        text=True,
        check=True,
    )
    root = str(tmp_path / "r")
    assert done.stdout.split() == [root, folder_identity(root)]


def test_a_directory_is_known_by_its_real_path(tmp_path: Path) -> None:
    """A link, a trailing slash and a detour all lead to one and the same directory."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real = str(tmp_path / "real")
    for spelled in (f"{tmp_path}/link", f"{tmp_path}/real/", f"{tmp_path}/real/../link/."):
        assert find_directory(spelled) == real
    assert find_directory(tmp_path / "link") == real


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    """A missing folder and a file are named in the error."""
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        with pytest.raises(DirectoryNotFound, match=name):
            find_directory(tmp_path / name)


@pytest.mark.parametrize("path", ["a\0b", "x" * 3000, "\ud800", os.fsdecode(b"\xff"), b"bytes", 5])
def test_a_path_that_cannot_be_kept_is_refused(path: object) -> None:
    """What is no path, or cannot be stored or sent, is one typed error."""
    with pytest.raises(InvalidInput):
        real_path(path)  # type: ignore[arg-type]


async def test_a_name_that_is_not_utf_8_is_refused(place: EngineFactory, tmp_path: Path) -> None:
    """A folder whose name cannot be sent is refused with words that say what to do."""
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    async with place.open() as engine:
        with pytest.raises(InvalidInput, match="not UTF-8"):
            await engine.sessions.create(directory=os.fsdecode(odd))


def _program(path: Path, trace: Path) -> Path:
    path.write_text(f"#!/bin/sh\ntouch {trace}\n")
    path.chmod(0o755)
    return path
