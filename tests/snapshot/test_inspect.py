"""What is at many paths now: every kind of thing that can be there, and nothing is followed."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.snapshot import Absent, Outcome, Present, Snapshots, SnapshotSettings
from kedge.snapshot.files.reader import Blocked, Folder, Obstacle
from kedge.snapshot.objects.formats import blob_id

ODD_NAMES = [b"new\nline", b"-rf", b"a:b", b"it's", b'"quoted"', b"\xff\xfe", b" ", b"*", b"\\"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty worktree."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture
def snapshots(root: Path) -> Iterator[Snapshots]:
    """Its snapshots; a file may have a mebibyte."""
    settings = SnapshotSettings(file_size=1 << 20)
    data = root.parent / "data"
    with Snapshots.open(root, data=data, project="p", settings=settings) as snapshots:
        yield snapshots


def test_files_and_links_are_told_and_stored(root: Path, snapshots: Snapshots) -> None:
    """Ignored or not, with all permission bits, and without following a link."""
    (root / ".gitignore").write_text("*\n")
    (root / "secret").write_bytes(b"key\n")
    (root / "secret").chmod(0o600)
    os.link(root / "secret", root / "twin")
    (root / "link").symlink_to("/etc/passwd")
    found = snapshots.look([b"secret", b"link", b"twin", b"nothing", b"no/thing"], session="ses_1")
    assert found == {
        b"secret": Present(blob_id(b"key\n").hex(), 0o100600),
        b"twin": Present(blob_id(b"key\n").hex(), 0o100600),
        b"link": Present(blob_id(b"/etc/passwd").hex(), 0o120777),
        b"nothing": Absent(),
        b"no/thing": Absent(),
    }
    (root / "secret").unlink()
    assert snapshots.read(blob_id(b"key\n").hex()) == b"key\n"


def test_what_was_seen_can_be_recovered_later(root: Path) -> None:
    """The bytes are held for the session, in any process, until it is released."""
    (root / "a").write_bytes(b"precious\n")
    data = root.parent / "data"
    blob = blob_id(b"precious\n").hex()
    with Snapshots.open(root, data=data, project="p") as snapshots:
        snapshots.look([b"a"], session="ses_1")
    with Snapshots.open(root, data=data, project="p") as snapshots:
        snapshots._store.collect(keep_taken_for=0)
        assert snapshots.read(blob) == b"precious\n"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_names(root: Path, snapshots: Snapshots, name: bytes) -> None:
    """Whatever bytes the file system takes for a name can be looked at, also as a folder's."""
    folder = os.path.join(os.fsencode(root), b"d" + name)
    os.mkdir(folder)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(b"x")
    path = b"d" + name + b"/" + name
    assert snapshots.look([path, b"d" + name]) == {
        path: Present(blob_id(b"x").hex(), 0o100644),
        b"d" + name: Folder(frozenset({path})),
    }


def test_folders_say_all_that_is_below(root: Path, snapshots: Snapshots) -> None:
    """Files, links and special files however deep, but no folders."""
    (root / "f/deep/er").mkdir(parents=True)
    (root / "f/empty").mkdir()
    (root / "f/deep/er/file").write_text("x")
    (root / "f/link").symlink_to("/")
    os.mkfifo(root / "f/pipe")
    entries = {b"f/deep/er/file", b"f/link", b"f/pipe"}
    assert snapshots.look([b"f", b"f/empty"]) == {
        b"f": Folder(frozenset(entries)),
        b"f/empty": Folder(frozenset()),
    }


def test_a_folder_with_too_much_in_it_is_an_obstacle(
    root: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for a list that nobody needs; folders count as well."""
    monkeypatch.setattr("kedge.snapshot.inspect.MOST_ENTRIES", 3)
    for number in range(2):
        (root / "f" / str(number)).mkdir(parents=True)
    assert isinstance(snapshots.look([b"f"])[b"f"], Folder)
    (root / "f" / "file").write_text("x")
    found = snapshots.look([b"f"])[b"f"]
    assert isinstance(found, Obstacle)
    assert found.outcome is Outcome.CONFLICT


def test_what_is_in_the_way_of_a_folder_is_named(root: Path, snapshots: Snapshots) -> None:
    """A file or a link where a folder should be, however far up, is named and not followed."""
    outside = root.parent / "outside/b"
    outside.mkdir(parents=True)
    (outside / "c").write_text("not ours")
    (root / "x").mkdir()
    (root / "x/a").symlink_to(outside.parent)
    (root / "file").write_text("x")
    assert snapshots.look([b"x/a/b/c", b"x/a/b", b"file/b", b"x/a"]) == {
        b"x/a/b/c": Blocked(b"x/a"),
        b"x/a/b": Blocked(b"x/a"),
        b"file/b": Blocked(b"file"),
        b"x/a": Present(blob_id(os.fsencode(outside.parent)).hex(), 0o120777),
    }


def test_what_no_snapshot_holds_is_an_obstacle(root: Path, snapshots: Snapshots) -> None:
    """Sockets, large files, refused paths: each with a reason, and nothing is opened or read."""
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
    with (root / "large").open("wb") as file:
        file.truncate((1 << 20) + 1)
    (root / ".git").mkdir()
    (root / ".git/config").write_text("x")
    found = snapshots.look(
        [b"pipe", b"socket", b"large", b".git/config", b"../outside", b"", b"/etc", b"a//b", b"\0"]
    )
    outcomes = {path: disk.outcome for path, disk in found.items() if isinstance(disk, Obstacle)}
    assert outcomes == {
        path: Outcome.CONFLICT if path in (b"pipe", b"socket") else Outcome.SKIPPED
        for path in found
    }
    assert found[b"large"] == Obstacle(Outcome.SKIPPED, "it is larger than 1 MiB")


def test_what_may_not_be_read_is_skipped(
    root: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a folder on the way, a folder below: each says that it cannot be read."""
    (root / "closed folder/below").mkdir(parents=True)
    (root / "closed file").write_text("x")
    (root / "open/closed folder").mkdir(parents=True)
    really_open = os.open

    def guarded(path: bytes, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        # The one who runs the tests may be allowed to read everything.
        if os.path.basename(os.fsencode(path)).startswith(b"closed"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return really_open(path, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", guarded)
    found = snapshots.look([b"closed file", b"closed folder/a", b"closed folder/b/c", b"open"])
    assert {type(disk) for disk in found.values()} == {Obstacle}
    assert {disk.outcome for disk in found.values() if isinstance(disk, Obstacle)} == {
        Outcome.SKIPPED
    }


def test_names_that_cannot_exist_are_absent(root: Path, snapshots: Snapshots) -> None:
    """No file system holds a name of 300 bytes: there is nothing there."""
    long = b"n" * 300
    assert set(snapshots.look([long, long + b"/x"]).values()) == {Absent()}


def test_a_folder_swapped_for_a_link_while_it_is_looked_at(
    root: Path, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is put in the place of a folder in the middle of it leads nowhere."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("not ours")
    (root / "f").mkdir()
    scandir = os.scandir

    def swapping(fd: int) -> object:
        (root / "f").rename(root.parent / "old")
        (root / "f").symlink_to(outside)
        return scandir(fd)

    monkeypatch.setattr("kedge.snapshot.inspect.os.scandir", swapping)
    assert snapshots.look([b"f"]) == {b"f": Folder(frozenset())}
    monkeypatch.undo()
    assert snapshots.look([b"f/file"]) == {b"f/file": Blocked(b"f")}
