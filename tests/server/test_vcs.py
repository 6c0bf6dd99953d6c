"""Version control over HTTP: what changed, and that a hostile repository runs nothing."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kedge.engine.files import git_status
from kedge.server.app import AT_ONCE
from tests.agent.world import World
from tests.server.world import Served
from tests.support.timeouts import PATIENCE

WHO = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgSign=false"]


def git(folder: Path, *words: str) -> str:
    """Run git as a person would."""
    done = subprocess.run(
        ["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def folder(world: World) -> Path:
    """A repository with a commit, and every kind of change since then."""
    folder = world.folder
    world.put("sub/gone.py", "x = 1\n")
    world.put(".gitignore", "*.log\n")
    git(folder, "checkout", "--quiet", "-b", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "one")
    world.put("a.txt", "changed\n")
    world.put("new é.txt", "1\n2\n")
    world.put("y.log", "ignored\n")
    (folder / "bin").write_bytes(b"\0\1")
    (folder / "sub" / "gone.py").unlink()
    (folder / "link").symlink_to("/etc/passwd")
    return folder


STATUS = [
    {"file": "a.txt", "additions": 1, "deletions": 1, "status": "modified"},
    {"file": "bin", "additions": 0, "deletions": 0, "status": "added"},
    {"file": "link", "additions": 1, "deletions": 0, "status": "added"},
    {"file": "new é.txt", "additions": 2, "deletions": 0, "status": "added"},
    {"file": "sub/gone.py", "additions": 0, "deletions": 1, "status": "deleted"},
]


async def test_the_branch(folder: Path, served: Served) -> None:
    """Also from a folder below; none where there is no repository."""
    both = {"branch": "main", "default_branch": "main"}
    assert (await served.get("/vcs")).json == both
    assert (await served.get(f"/vcs?directory={folder}/sub")).json == both
    outside = (await served.get(f"/vcs?directory={folder.parent}")).json
    assert outside == {"branch": None, "default_branch": None}
    git(folder, "checkout", "--quiet", "-b", "topic/one")
    assert (await served.get("/vcs")).json == {"branch": "topic/one", "default_branch": "main"}
    git(folder, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(folder, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    git(folder, "checkout", "--quiet", "--detach")
    assert (await served.get("/vcs")).json == {"branch": None, "default_branch": "trunk"}


async def test_what_changed(folder: Path, served: Served) -> None:
    """Changed, new and deleted files, of the directory alone, under either name."""
    assert (await served.get("/vcs/status")).json == STATUS
    below = (await served.get(f"/vcs/status?directory={folder}/sub")).json
    assert below == STATUS[-1:]
    files = (await served.get("/file/status")).json
    assert files[0] == {"path": "a.txt", "added": 1, "removed": 1, "status": "modified"}
    assert (await served.get(f"/vcs/status?directory={folder.parent}")).json == []


async def test_patches(folder: Path, served: Served) -> None:
    """One for each file, with as many lines around as were asked for; and all of them as text."""
    diffs = (await served.get("/vcs/diff?mode=git&context=0")).json
    assert [{k: v for k, v in each.items() if k != "patch"} for each in diffs] == STATUS
    patches = {each["file"]: each["patch"] for each in diffs}
    assert patches["a.txt"].endswith("@@ -1 +1 @@\n-one\n+changed\n")
    assert patches["link"].endswith("+/etc/passwd\n\\ No newline at end of file\n")
    assert "Binary files" in patches["bin"]
    assert patches["new é.txt"].startswith("diff --git a/new é.txt b/new é.txt\n")
    raw = await served.get("/vcs/diff/raw")
    assert raw.headers["content-type"] == "text/x-diff; charset=utf-8"
    git(folder, "stash", "--quiet", "--include-untracked")
    (folder.parent / "patch").write_bytes(raw.body)
    git(folder, "apply", "../patch")
    assert (await served.get("/vcs/status")).json == STATUS


async def test_a_branch_is_compared_with_its_beginning(folder: Path, served: Served) -> None:
    """What was committed on it counts too; the default branch has no beginning."""
    assert (await served.get("/vcs/diff?mode=branch")).json == []
    git(folder, "checkout", "--quiet", "-b", "topic")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "two")
    assert (await served.get("/vcs/diff?mode=git")).json == []
    diffs = (await served.get("/vcs/diff?mode=branch")).json
    assert [each["file"] for each in diffs] == [each["file"] for each in STATUS]
    for wrong in ("mode=other", "context=1", "mode=git&context=-1"):
        assert (await served.get(f"/vcs/diff?{wrong}")).status == 400


async def test_before_the_first_commit_all_is_new(world: World, served: Served) -> None:
    """A repository that has just been made."""
    found = (await served.get("/vcs/status")).json
    assert [(each["file"], each["status"]) for each in found] == [
        ("a.txt", "added"),
        ("b.txt", "added"),
    ]


async def test_the_repository_is_left_alone(folder: Path, served: Served) -> None:
    """Asking changes neither the index nor the objects."""
    before = git(folder, "count-objects", "--verbose"), (folder / ".git/index").read_bytes()
    for target in ("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff/raw"):
        assert (await served.get(target)).status == 200
    assert (
        git(folder, "count-objects", "--verbose"),
        (folder / ".git/index").read_bytes(),
    ) == before


async def test_a_hostile_repository_runs_nothing(folder: Path, served: Served) -> None:
    """Whatever it, or one inside of it, configures: monitors, filters, diff programs, hooks."""
    trap = folder.parent / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {folder.parent}/sprung\ncat\n')
    trap.chmod(0o755)
    inner = folder / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "file").write_text("1\n")
    git(inner, "add", "--all")
    git(inner, "commit", "--quiet", "--message", "inner")
    git(folder, "add", "inner")
    git(folder, "commit", "--quiet", "--message", "with inner")
    (inner / "file").write_text("2\n")
    (folder / ".gitattributes").write_text("* filter=trap diff=trap\n")
    (folder / "b.txt").write_text("touched\n")
    for each in (folder, inner):
        for key in (
            *("core.fsmonitor", "core.pager", "core.sshCommand", "diff.external"),
            *("filter.trap.clean", "filter.trap.smudge", "filter.trap.process"),
            *("diff.trap.textconv", "diff.trap.command", "core.alternateRefsCommand"),
        ):
            git(each, "config", key, str(trap))
        hooks = each / ".git" / "hooks"
        hooks.mkdir(exist_ok=True)
        for name in ("post-index-change", "pre-auto-gc", "reference-transaction"):
            (hooks / name).unlink(missing_ok=True)
            (hooks / name).symlink_to(trap)
    (folder.parent / "sprung").unlink(missing_ok=True)
    for target in (
        *("/vcs", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff?mode=branch", "/vcs/diff/raw"),
        *("/file/status", "/file?path=", "/find?pattern=x", "/find/file?query=x"),
    ):
        assert (await served.get(target)).status == 200, target
    assert not (folder.parent / "sprung").exists()
    git(folder, "status")
    assert (folder.parent / "sprung").exists(), "the trap works"


async def test_a_broken_repository_is_an_answer(folder: Path, served: Served) -> None:
    """With what is wrong, not with an error of ours that nobody understands."""
    (folder / ".git" / "index").write_bytes(b"nonsense")
    reply = await served.get("/vcs/status")
    assert reply.status == 503
    assert "git" in reply.json["data"]["message"]
    assert (await served.get("/vcs")).status == 200


async def test_a_repository_that_keeps_git_waiting_keeps_nobody_else(
    folder: Path, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests find a thread, however many wait for git."""
    monkeypatch.setattr(git_status, "_PATIENCE", PATIENCE)
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "git"
    waiting = f"echo >>'{folder}/y.log'; until [ -e '{tmp_path}/go' ]; do sleep 0.05; done"
    slow.write_text(f'#!/bin/sh\n{waiting}\nexec {shutil.which("git")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}{os.pathsep}{os.environ['PATH']}")
    asked = [asyncio.create_task(served.get("/vcs")) for _ in range(40)]
    try:
        await served.world.until("y.log", lambda text: text.count("\n") > AT_ONCE)
        assert (await served.get("/global/config")).status == 200
        assert not any(task.done() for task in asked)
    finally:
        (tmp_path / "go").touch()
        replies = await asyncio.gather(*asked)
    assert {reply.status for reply in replies} == {200}


async def test_a_huge_index_is_not_copied(folder: Path, served: Served) -> None:
    """A file without content can claim any size, and the copy would have it."""
    os.truncate(folder / ".git" / "index", 1 << 30)
    assert (await served.get("/vcs/status")).status == 503


async def test_a_missing_content_costs_its_own_file_alone(folder: Path, served: Served) -> None:
    """It is marked, a header says so, and all other files are as they were."""
    lost = git(folder, "rev-parse", "HEAD:a.txt")
    (folder / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    served.world.put(os.fsdecode(b"z\xff"), "1\n")
    first = {**STATUS[0], "additions": 0, "deletions": 0, "uncounted": "missing"}
    last = {"file": "z\ufffd", "additions": 1, "deletions": 0, "status": "added"}
    last["pathBase64"] = "ev8="
    status = await served.get("/vcs/status")
    assert status.json == [first, *STATUS[1:], last]
    files = await served.get("/file/status")
    assert files.json[0] == {
        "path": "a.txt",
        "added": 0,
        "removed": 0,
        "status": "modified",
        "uncounted": "missing",
    }
    assert files.json[-1]["pathBase64"] == "ev8="
    diffs = await served.get("/vcs/diff?mode=git")
    assert [each["file"] for each in diffs.json if "patch" not in each] == ["a.txt"]
    raw = await served.get("/vcs/diff/raw")
    assert raw.body.count(b"diff --git ") == len(STATUS)
    for reply in (status, files, diffs, raw):
        assert (reply.status, reply.headers["x-incomplete"]) == (200, "true")
    below = await served.get(f"/vcs/status?directory={folder}/sub")
    assert "x-incomplete" not in below.headers


@pytest.mark.parametrize("name", ["config", "config.worktree", "packed-refs"])
async def test_git_is_not_asked_to_read_a_pipe(folder: Path, served: Served, name: str) -> None:
    """What it cannot tell is left out, at once."""
    (folder / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(folder / ".git" / name)
    assert (await served.get("/vcs")).json == {"branch": "main", "default_branch": None}
    assert (await served.get("/vcs/status")).json == STATUS


async def test_excludes_that_are_a_pipe_are_none(folder: Path, served: Served) -> None:
    """A repository may name any file as its excludes; git is not made to wait for it."""
    os.mkfifo(folder.parent / "pipe")
    git(folder, "config", "core.excludesFile", str(folder.parent / "pipe"))
    assert (await served.get("/vcs/status")).json == STATUS
    (folder.parent / "rules").write_text("bin\n")
    git(folder, "config", "core.excludesFile", str(folder.parent / "rules"))
    found = (await served.get("/vcs/status")).json
    assert found == [each for each in STATUS if each["file"] != "bin"]


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", "sub/.gitignore"])
async def test_rules_that_are_a_pipe(
    folder: Path, served: Served, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """git reads those of folders itself: it is not asked, or killed, and the client is told."""
    monkeypatch.setattr(git_status, "_PATIENCE", 0.5 if "/" in name else 1000)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    (folder / name).with_name("beside").touch()
    reply = await served.get("/vcs/status")
    assert reply.status == 503
    told = "not within" if "/" in name else f"{name} is not a regular file"
    assert told in reply.json["data"]["message"]
