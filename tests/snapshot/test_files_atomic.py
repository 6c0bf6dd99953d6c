"""Swapping two names and taking a free one, with and without the system calls for it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.snapshot.files import atomic
from kedge.snapshot.files.atomic import SwapUnsupported, exists, place, swap
from tests.snapshot.files_world import file_system


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """The descriptor of a folder with a file, a symlink and a folder."""
    (tmp_path / "file").write_bytes(b"file")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("other", [b"link", b"folder"])
def test_two_names_are_swapped_whatever_they_are(other: bytes, tmp_path: Path, folder: int) -> None:
    """Swapping twice is as if nothing had happened."""
    swap(folder, b"file", other)
    assert (tmp_path / os.fsdecode(other)).read_bytes() == b"file"
    swap(folder, b"file", other)
    assert (tmp_path / "file").read_bytes() == b"file"


def test_swapping_needs_both_names(folder: int) -> None:
    """Nothing is moved to a name that does not exist."""
    with pytest.raises(FileNotFoundError):
        swap(folder, b"file", b"none")
    assert exists(folder, b"file")


def test_a_machine_that_cannot_swap_says_so(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it lacks the call, or the file system refuses it."""
    monkeypatch.setattr(atomic, "_system_call", lambda: None)
    with pytest.raises(SwapUnsupported):
        swap(folder, b"file", b"link")


@pytest.mark.parametrize("kind", ["swapping", "linking", "plain"])
@pytest.mark.parametrize("name", [b"file", b"link", b"folder"])
def test_a_free_name_is_taken(kind: str, name: bytes, folder: int) -> None:
    """What is moved is the same thing afterwards, a symlink still a symlink."""
    before = os.lstat(name, dir_fd=folder)
    with file_system(kind):
        place(folder, name, b"new")
    assert not exists(folder, name)
    after = os.lstat(b"new", dir_fd=folder)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("kind", ["swapping", "linking", "plain"])
@pytest.mark.parametrize("taken", [b"link", b"folder", b"file2"])
def test_a_taken_name_is_not_taken_over(
    kind: str, taken: bytes, tmp_path: Path, folder: int
) -> None:
    """Not even that of a dangling symlink; both stay as they are."""
    (tmp_path / "file2").write_bytes(b"other")
    before = sorted((entry.name, entry.inode()) for entry in os.scandir(tmp_path))
    with file_system(kind), pytest.raises(FileExistsError):
        place(folder, b"file", taken)
    assert sorted((entry.name, entry.inode()) for entry in os.scandir(tmp_path)) == before
