"""Whatever a repository, a worktree or the environment holds: snapshots run nothing of it, wait for
nothing in it, read nothing outside of it and change nothing but what a restore is asked for.

The baits are commands that leave a line in a file when anything runs them.
"""

import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kedge.domain.errors import InvalidInput, SnapshotRefused
from kedge.snapshot import Absent, Outcome, Patch, Snapshots
from tests.snapshot import hostile_contents
from tests.snapshot.conformance.scene import Scene, environment
from tests.snapshot.hostile_worktree import (
    GOOD,
    SECRET,
    HostileWorktree,
    assert_as_on_disk,
    contents,
    files_of,
    seen,
    stored,
    take_hostage,
    use_everything,
)
from tests.snapshot.test_conformance import opener

Trap = Callable[[HostileWorktree], Mapping[str, str] | None]
TRAPS: dict[str, Trap] = {
    name: found
    for name, found in vars(hostile_contents).items()
    if inspect.isfunction(found)
    and found.__module__ == hostile_contents.__name__
    and name[0] != "_"
}
HANGS: dict[Trap, str] = {
    hostile_contents.an_included_pipe: "kedge.snapshot.repository.config._GIT_PATIENCE",
    hostile_contents.settings_in_a_pipe: "kedge.snapshot.repository.config._GIT_PATIENCE",
    hostile_contents.packs_that_are_pipes: "kedge.snapshot.objects.user_packs._PATIENCE",
}
"""Where git never answers, and how long that is waited for."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No crash is to be survived here."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


@pytest.fixture
def worktree(tmp_path: Path) -> HostileWorktree:
    """A worktree that attacks can change."""
    return take_hostage(Scene(tmp_path, opener("inotify")))


@pytest.mark.parametrize("name", TRAPS)
def test_nothing_is_run_read_or_changed(
    name: str, worktree: HostileWorktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything works under attack, and nothing that the attack is after happens."""
    variables = TRAPS[name](worktree) or {}
    if patience := HANGS.get(TRAPS[name]):
        monkeypatch.setattr(patience, 0.5)
    monkeypatch.chdir(worktree.root)
    with environment(**variables):
        use_everything(worktree)


def test_git_itself_takes_the_bait(worktree: HostileWorktree) -> None:
    """The attacks are real: plain git runs what snapshots leave alone."""
    hostile_contents.commands_in_the_configuration(worktree)
    for words in (["status"], ["diff", "--ext-diff"], ["add", "-A"]):
        # With `required` filters that give nothing git fails in the end, having run them.
        subprocess.run(["git", *words], cwd=worktree.root, capture_output=True, check=False)
    told = worktree.ran.read_text()
    assert "core.fsmonitor" in told
    assert "filter.bait" in told


def test_a_first_snapshot_is_seeded_here(worktree: HostileWorktree) -> None:
    """The attacks hit what matters: the worktree's own packs are copied from."""
    with worktree.scene.snapshots() as snapshots:
        snapshots.track()
        assert snapshots.status().seeded > 0


def test_a_folder_that_became_a_link_is_not_written_through(worktree: HostileWorktree) -> None:
    """What a link in the place of a folder leads to stays as it is; the folder comes back."""
    (worktree.outside / "folder/deep").write_bytes(b"somebody else's\n")
    around = seen(worktree.outside)
    with worktree.scene.snapshots() as snapshots:
        one = snapshots.track()
        worktree.scene.at("folder").rename(worktree.scene.folder / "away")
        worktree.scene.link("folder", "../outside/folder")
        patch = snapshots.patch(one.id)
        assert SECRET not in snapshots.diff(one.id).encode()
        assert {each.outcome for each in snapshots.restore(one)} <= GOOD
        assert_as_on_disk(snapshots, one.id, worktree.root)
        assert {each.outcome for each in snapshots.revert([patch])} <= GOOD
    assert worktree.scene.at("folder/deep").read_bytes() == b"one\nfolder/deep"
    assert seen(worktree.outside) == around
    assert SECRET not in stored(worktree.store)


def test_a_name_outside_is_not_written_through(worktree: HostileWorktree) -> None:
    """A file that has a second name outside is replaced, not overwritten."""
    os.link(worktree.outside / "folder/secret", worktree.root / "shared")
    with worktree.scene.snapshots() as snapshots:
        one = snapshots.track()
        (worktree.outside / "folder/secret").write_bytes(b"written through the other name\n")
        around = contents(seen(worktree.outside))
        assert [each.path for each in snapshots.restore(one)] == [b"shared"]
    assert worktree.scene.at("shared").read_bytes() == SECRET
    assert contents(seen(worktree.outside)) == around


def test_repositories_that_come_and_go_inside(worktree: HostileWorktree) -> None:
    """The files of a nested repository are restored like others, its `.git` stays as it is."""
    for name in ("gone", "new"):
        worktree.scene.at(name).unlink(missing_ok=True)
    worktree.scene.repository("gone")
    worktree.scene.write("gone/file", b"one\n")
    worktree.scene.commit("gone")
    with worktree.scene.snapshots() as snapshots:
        one = snapshots.track()
        shutil.rmtree(worktree.scene.at("gone"))
        worktree.scene.repository("new")
        worktree.scene.write("new/file", b"two\n")
        worktree.scene.commit("new")
        before = seen(worktree.scene.at("new/.git"))
        snapshots.restore(one)
        assert worktree.scene.at("gone/file").read_bytes() == b"one\n"
        assert seen(worktree.scene.at("new/.git")) == before
        assert os.listdir(worktree.scene.at("new")) == [".git"]


def test_paths_that_lead_out_are_refused(worktree: HostileWorktree) -> None:
    """Neither capturing nor undoing a patch can be talked into leaving the worktree."""
    with worktree.scene.snapshots() as snapshots:
        one = snapshots.track()
        for path in (b"../outside/secret", b"/etc/passwd", b"folder/../../outside/secret", b""):
            with pytest.raises(InvalidInput):
                snapshots.capture([path])
        assert snapshots.capture([b"linked-folder/secret"]) == {b"linked-folder/secret": Absent()}
        files = (
            "/etc/passwd",
            f"{worktree.outside}/secret",
            f"{worktree.root}/linked-folder/secret",
        )
        inside = (f"{worktree.root}/.git/config", f"{worktree.root}/folder/../.git/HEAD")
        before, around = seen(worktree.root), seen(worktree.outside)
        for file in (*files, *inside):
            try:
                results = snapshots.revert([Patch(one.id, (file,))])
            except InvalidInput:
                continue
            assert {each.outcome for each in results} <= {Outcome.SKIPPED, Outcome.UNCHANGED}, file
        assert (seen(worktree.root), seen(worktree.outside)) == (before, around)
    assert SECRET not in stored(worktree.store)


# Without the privileges of root, whom no permission bits stop.
_CLOSED = """
import sys
from kedge.snapshot import Snapshots
with Snapshots.open(sys.argv[1], data=sys.argv[2], project="prj") as snapshots:
    one = snapshots.track(session="ses_one")
    open(sys.argv[1] + "/edited", "w").write("two")
    two = snapshots.track()
    print([(each.path, each.outcome.value) for each in snapshots.restore(one)])
    assert snapshots.verify() == []
"""


def test_closed_files_and_folders_are_left_alone(worktree: HostileWorktree) -> None:
    """What may not be read is nobody's: it fails nothing and is neither written nor deleted."""
    for name in ("closed/file", "closed-file", "theirs/file"):
        worktree.scene.write(name)
    worktree.scene.at("closed-file").chmod(0)
    worktree.scene.at("closed").chmod(0)
    command = [
        sys.executable,
        "-c",
        _CLOSED,
        str(worktree.root),
        str(worktree.scene.folder / "data"),
    ]
    if os.geteuid() == 0:
        os.chown(worktree.scene.at("theirs"), 65534, 65534)
        worktree.scene.at("theirs").chmod(0o700)
        bounds = "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown"
        command = ["setpriv", bounds, *command]
    before = contents(seen(worktree.root))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[(b'edited', 'restored')]\n"
    assert contents(seen(worktree.root)) == before


def _named_by_a_file(worktree: HostileWorktree, moved: Path) -> None:
    worktree.git_folder.write_text(f"gitdir: {moved.name}\n")


def _named_by_a_link(worktree: HostileWorktree, moved: Path) -> None:
    worktree.git_folder.symlink_to(moved.name)


def _shared_by_worktrees(worktree: HostileWorktree, moved: Path) -> None:
    own = moved / "worktrees/own"
    own.mkdir(parents=True)
    for name in ("HEAD", "index"):
        shutil.copy2(moved / name, own / name)
    (own / "commondir").write_text("../..\n")
    (own / "gitdir").write_text(f"{worktree.git_folder}\n")
    worktree.git_folder.write_text("gitdir: moved/worktrees/own\n")


@pytest.mark.parametrize("name", [_named_by_a_file, _named_by_a_link, _shared_by_worktrees])
def test_a_git_folder_inside_is_left_alone(
    name: Callable[[HostileWorktree, Path], None], worktree: HostileWorktree
) -> None:
    """A repository that is in the worktree under another name than `.git` is nobody's to undo."""
    moved = worktree.git_folder.rename(worktree.root / "moved")
    name(worktree, moved)
    with worktree.scene.snapshots() as snapshots:
        one = snapshots.track()
        worktree.scene.write("kept", b"committed since\n")
        worktree.scene.commit()
        after = seen(moved)
        patch = snapshots.patch(one.id)
        assert patch.files == (str(worktree.root / "kept"),)
        assert [each.path for each in snapshots.restore(one)] == [b"kept"]
        inside = Patch(one.id, (f"{moved}/HEAD", f"{moved}/index", f"{moved}/objects/new"))
        assert {each.outcome for each in snapshots.revert([inside])} == {Outcome.SKIPPED}
    assert seen(moved) == after


def test_a_data_folder_inside_is_left_alone(worktree: HostileWorktree) -> None:
    """Where snapshots are kept is in no snapshot, even if it is in the worktree."""
    data = worktree.root / "data"
    with Snapshots.open(worktree.root, data=data, project="prj") as snapshots:
        one = snapshots.track(session="ses_one")
        assert [path for path in files_of(snapshots, one.id) if path.startswith(b"data")] == []
        worktree.scene.write("kept", b"two\n")
        two = snapshots.track(session="ses_one")
        assert [each.path for each in snapshots.restore(one)] == [b"kept"]
    with Snapshots.open(worktree.root, data=data, project="prj") as snapshots:
        assert [each.path for each in snapshots.restore(two.id)] == [b"kept"]


def test_a_worktree_that_is_its_own_git_folder_is_refused(worktree: HostileWorktree) -> None:
    """Where the files of the worktree are git's own, a restore could only do harm."""
    worktree.git_folder.rename(worktree.root.parent / "git")
    worktree.git_folder.write_text("gitdir: .\n")
    worktree.scene.write("HEAD", b"ref: refs/heads/main\n")
    with worktree.scene.snapshots() as snapshots, pytest.raises(SnapshotRefused, match="inside"):
        snapshots.track()
