"""One name of a folder read: what is returned was the file's state at one moment."""

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.snapshot.files import reader
from kedge.snapshot.files.reader import Content, ReadFailure, hash_file, read_file, stamp_of
from kedge.snapshot.objects.formats import blob_id

LIMIT = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """The descriptor of an empty folder."""
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def _read(folder: int, name: bytes = b"f") -> Content:
    found = read_file(folder, name, LIMIT)
    assert isinstance(found, Content)
    return found


@pytest.mark.parametrize("name", [b"plain", b"with space\n", b"\xff\xfe"])
@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600, 0o4711, 0])
def test_a_file_is_its_bytes_and_all_its_bits(
    name: bytes, mode: int, tmp_path: Path, folder: int
) -> None:
    """Type and permission bits come as `lstat` gives them, with its stamp and its links."""
    path = os.fsencode(tmp_path) + b"/" + name
    Path(os.fsdecode(path)).write_bytes(b"content")
    os.link(path, path + b"2")
    os.chmod(path, mode)
    if mode == 0 and os.geteuid() != 0:
        assert read_file(folder, name, LIMIT) is ReadFailure.UNREADABLE
        return
    found = _read(folder, name)
    assert (found.data, found.mode, found.links) == (b"content", stat.S_IFREG | mode, 2)
    assert found.stamp == stamp_of(os.lstat(path))
    assert hash_file(folder, name) == (stat.S_IFREG | mode, blob_id(b"content"))


def test_a_symlink_is_where_it_leads(tmp_path: Path, folder: int) -> None:
    """It is never followed, dangling or not."""
    (tmp_path / "target").write_bytes(b"secret")
    for name, target in ((b"f", b"target"), (b"g", b"no\xffwhere")):
        os.symlink(target, os.fsencode(tmp_path) + b"/" + name)
        found = _read(folder, name)
        assert found.data == target
        assert stat.S_ISLNK(found.mode)
        assert hash_file(folder, name) == (found.mode, blob_id(target))


def test_what_has_no_content_is_told_apart(tmp_path: Path, folder: int) -> None:
    """Absent, folder, pipe and socket; the pipe is not opened, which would hang."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/socket" if sys.platform == "linux" else "socket")
    expected = {
        b"none": ReadFailure.ABSENT,
        b"n" * 300: ReadFailure.ABSENT,
        b"folder": ReadFailure.FOLDER,
        b"pipe": ReadFailure.SPECIAL,
        b"socket": ReadFailure.SPECIAL,
    }
    assert {name: read_file(folder, name, LIMIT) for name in expected} == expected
    assert {name: hash_file(folder, name) for name in expected} == expected


def test_the_limit_is_the_largest_size_that_is_read(tmp_path: Path, folder: int) -> None:
    """A larger file is not opened, but it can be hashed."""
    (tmp_path / "f").write_bytes(bytes(LIMIT))
    assert len(_read(folder).data) == LIMIT
    (tmp_path / "f").write_bytes(bytes(LIMIT + 1))
    assert read_file(folder, b"f", LIMIT) is ReadFailure.TOO_LARGE
    assert hash_file(folder, b"f") == (0o100644, blob_id(bytes(LIMIT + 1)))


@given(st.binary(max_size=LIMIT), st.integers(1, 100))
def test_a_file_system_that_answers_in_pieces_is_read_whole(data: bytes, piece: int) -> None:
    """A short read is not the end of the file."""
    real = os.read
    with pytest.MonkeyPatch.context() as patch:
        read_end, write_end = os.pipe()
        patch.setattr(os, "read", lambda fd, size: real(fd, min(size, piece)))
        try:
            os.write(write_end, data)
            os.close(write_end)
            assert reader._read_all(read_end, len(data)) == data
        finally:
            os.close(read_end)


@pytest.mark.skipif(sys.platform != "linux", reason="needs files with a false size")
@pytest.mark.parametrize("path", ["/proc/self/status", "/sys/devices/system/cpu/online"])
def test_a_file_whose_size_is_not_its_length_is_unstable(path: str) -> None:
    """It is not known when such a file ends, nor whether it changed."""
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_RDONLY)
    try:
        assert read_file(fd, name.encode(), 10 * LIMIT) is ReadFailure.UNSTABLE
        assert hash_file(fd, name.encode()) is ReadFailure.UNSTABLE
    finally:
        os.close(fd)


@pytest.mark.skipif(not hasattr(os, "setresuid") or os.geteuid() != 0, reason="needs root")
def test_a_file_that_may_not_be_read_is_unreadable(tmp_path: Path) -> None:
    """Read as somebody without the permission to."""
    (tmp_path / "f").write_bytes(b"secret")
    (tmp_path / "f").chmod(0o600)
    code = (
        "import os, sys; from kedge.snapshot.files.reader import hash_file, read_file\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY); os.fchmod(fd, 0o755); os.setresuid(9, 9, 9)\n"
        "print(read_file(fd, b'f', 9).name, hash_file(fd, b'f').name)"
    )
    answer = subprocess.run([sys.executable, "-c", code, tmp_path], stdout=-1, check=True).stdout
    assert answer == b"UNREADABLE UNREADABLE\n"


def _interfere(patch: pytest.MonkeyPatch, call: str, times: int, act: Callable[[], object]) -> None:
    """Do something right before the first so many uses of a system call."""
    real, left = getattr(os, call), times

    def disturbed(*arguments: object, **options: object) -> object:
        nonlocal left
        if left:
            left -= 1
            act()
        return real(*arguments, **options)

    patch.setattr(os, call, disturbed)


def _replace_by(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


@pytest.mark.parametrize("call", ["open", "fstat", "read"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_file_written_during_the_read_is_read_again(
    call: str, times: int, tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice; then it is unstable. What is returned was all of the file at one moment."""
    path = tmp_path / "f"
    path.write_bytes(b"")

    def grow() -> None:
        with path.open("ab") as file:
            file.write(b"x")

    _interfere(monkeypatch, call, times, grow)
    found = read_file(folder, b"f", LIMIT)
    if times == 3:
        assert found is ReadFailure.UNSTABLE
        return
    assert isinstance(found, Content)
    assert found.data == path.read_bytes()
    assert found.stamp == stamp_of(path.lstat())


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (os.mkfifo, ReadFailure.SPECIAL),
        (Path.mkdir, ReadFailure.FOLDER),
        (lambda path: None, ReadFailure.ABSENT),
    ],
)
@pytest.mark.parametrize("call", ["open", "read"])
def test_a_file_that_becomes_something_else_is_that(
    call: str,
    make: Callable[[Path], object],
    expected: ReadFailure,
    tmp_path: Path,
    folder: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing that took its place is opened by mistake."""
    (tmp_path / "f").write_bytes(b"content")
    _interfere(monkeypatch, call, 1, lambda: _replace_by(tmp_path / "f", make))
    assert read_file(folder, b"f", LIMIT) is expected


def test_a_file_that_becomes_a_symlink_is_not_followed(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The symlink itself is read; and a symlink that becomes a file is read as the file."""
    (tmp_path / "f").write_bytes(b"content")
    with monkeypatch.context() as patch:
        make = lambda path: path.symlink_to("/etc/passwd")  # noqa: E731 - one use
        _interfere(patch, "open", 1, lambda: _replace_by(tmp_path / "f", make))
        assert _read(folder).data == b"/etc/passwd"
    _interfere(
        monkeypatch,
        "readlink",
        1,
        lambda: _replace_by(tmp_path / "f", lambda p: p.write_bytes(b"x")),
    )
    assert _read(folder).data == b"x"


def test_trouble_of_the_machine_is_raised(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lack of descriptors says nothing about the file."""
    (tmp_path / "f").write_bytes(b"")

    def none_left(*arguments: object, **options: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(OSError, match="Too many"):
        read_file(folder, b"f", LIMIT)


@pytest.mark.parametrize(("age", "racy"), [(19, True), (21, False), (-1000, True)])
def test_a_young_file_is_racy(
    age: int, racy: bool, tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Young is: changed less than the window before the read began, or after it."""
    (tmp_path / "f").write_bytes(b"")
    changed = os.lstat(tmp_path / "f").st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: changed + age * 1_000_000)
    assert _read(folder).racy is racy
    found = read_file(folder, b"f", LIMIT, window_ns=2_000_000_000)
    assert isinstance(found, Content)
    assert found.racy


def test_a_file_dated_in_the_future_is_racy(tmp_path: Path, folder: int) -> None:
    """Nothing tells when it was last written."""
    (tmp_path / "f").write_bytes(b"")
    os.utime(tmp_path / "f", (0, 2**33))
    assert _read(folder).racy
