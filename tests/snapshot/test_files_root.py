"""Folders below a root: reached without following a symlink, and locked without leaving a trace."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.domain.errors import PathRefused, RootBusy
from kedge.snapshot.files.root import (
    FolderAbsent,
    FolderBlocked,
    Root,
    components,
    writable_components,
)


def _root(path: Path) -> Root:
    return Root(os.fsencode(path))


def test_a_folder_is_reached_by_its_path(tmp_path: Path) -> None:
    """The descriptor is that of the folder named, also if the name is not UTF-8."""
    deep = os.fsencode(tmp_path) + b"/a/\xff"
    os.makedirs(deep)
    with _root(tmp_path) as root, root.folder(b"a/\xff") as fd:
        assert os.fstat(fd).st_ino == os.stat(deep).st_ino


def test_the_empty_path_is_the_root_itself(tmp_path: Path) -> None:
    """Closing the folder leaves the root open."""
    with _root(tmp_path) as root:
        for _ in range(2):
            with root.folder(b"") as fd:
                assert os.fstat(fd).st_ino == tmp_path.stat().st_ino


@pytest.mark.parametrize("path", [b"link", b"link/below", b"dangling", b"file", b"file/below"])
def test_a_symlink_or_a_file_on_the_way_is_in_the_way(path: bytes, tmp_path: Path) -> None:
    """Neither is followed, and both are told apart from nothing being there."""
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_bytes(b"")
    with _root(tmp_path) as root, pytest.raises(FolderBlocked), root.folder(path):
        raise AssertionError("opened")


@pytest.mark.parametrize("path", [b"none", b"none/below", b"real/none"])
def test_a_missing_folder_is_absent(path: bytes, tmp_path: Path) -> None:
    """At whatever depth it is missing."""
    (tmp_path / "real").mkdir()
    with _root(tmp_path) as root, pytest.raises(FolderAbsent), root.folder(path):
        raise AssertionError("opened")


def test_no_descriptor_is_leaked(tmp_path: Path) -> None:
    """Neither by success nor by failure, however deep."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "link").symlink_to("/")
    with _root(tmp_path) as root:
        before = len(os.listdir("/dev/fd"))
        with root.folder(b"a/b"):
            pass
        for path in (b"a/b/link", b"a/b/none", b"a/../b"):
            with pytest.raises((OSError, PathRefused)):
                root.open_folder(path)
        assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize(
    "path", [b"..", b"a/../b", b".", b"a/./b", b"/a", b"a/", b"a//b", b"", b"a\0b"]
)
def test_paths_that_could_lead_elsewhere_are_refused(path: bytes) -> None:
    """They are refused before anything is opened."""
    with pytest.raises(PathRefused):
        components(path)


@given(st.lists(st.binary(min_size=1).filter(lambda name: not set(name) & {0, 47}), min_size=1))
def test_a_path_of_plain_names_is_taken_as_it_is(names: list[bytes]) -> None:
    """Whatever the bytes of its names."""
    names = [name for name in names if name not in (b".", b"..")] or [b"..."]
    assert components(b"/".join(names)) == names


@pytest.mark.parametrize("path", [b".git", b".git/config", b"nested/.git/hooks/x", b"a/.GIT"])
def test_the_inside_of_git_is_never_written(path: bytes) -> None:
    """It can be read as any other path."""
    assert components(path)
    with pytest.raises(PathRefused, match=r"inside of \.git"):
        writable_components(path)
    assert writable_components(b".gitignore")


def test_a_moved_root_is_not_the_same(tmp_path: Path) -> None:
    """The descriptor goes along with the folder; the path may lead to another one, or none."""
    path = tmp_path / "root"
    path.mkdir()
    with _root(path) as root:
        assert root.is_same()
        path.rename(tmp_path / "elsewhere")
        assert not root.is_same()
        path.mkdir()
        assert not root.is_same()


def test_two_in_one_process_exclude_each_other(tmp_path: Path) -> None:
    """Even through one root; and the lock is free again afterwards."""
    with _root(tmp_path) as root:
        with root.lock(1), pytest.raises(RootBusy), root.lock(0.01):
            raise AssertionError("both hold it")
        with root.lock(0):
            pass
    assert os.listdir(tmp_path) == []


def test_the_lock_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    """It excludes other processes while they live, and nothing needs to be cleaned up after."""
    code = (
        "import os, sys; from kedge.snapshot.files.root import Root\n"
        "with Root(os.fsencode(sys.argv[1])).lock(1): print('held', flush=True); input()"
    )
    with (
        _root(tmp_path) as root,
        subprocess.Popen(
            [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(RootBusy), root.lock(0.01):
            raise AssertionError("both hold it")
        child.kill()
        child.wait()
        with root.lock(1):
            pass


def test_an_inherited_descriptor_does_not_prolong_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process forked while the lock is held does not hold it on."""
    inherited: list[int] = []
    flock = fcntl.flock

    def inheriting(fd: int, how: int) -> None:
        inherited.append(os.dup(fd))
        flock(fd, how)

    with _root(tmp_path) as root:
        with monkeypatch.context() as patch:
            patch.setattr("kedge.snapshot.files.root.fcntl.flock", inheriting)
            with root.lock(1):
                pass
        with root.lock(0):
            pass
    for fd in inherited:
        os.close(fd)


def test_a_waiting_user_gets_the_lock_when_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is not over before the time is, nor spent spinning."""
    naps: list[float] = []
    with _root(tmp_path) as root:
        holder = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(holder, fcntl.LOCK_EX)

        def nap(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 9:
                fcntl.flock(holder, fcntl.LOCK_UN)

        monkeypatch.setattr("kedge.snapshot.files.root.time.sleep", nap)
        with root.lock(60):
            os.close(holder)
    assert naps == sorted(naps)
    assert naps[0] == 0.001
    assert naps[-1] == 0.05
