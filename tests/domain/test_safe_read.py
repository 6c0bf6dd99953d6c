"""Files that anybody may have put there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.domain.safe_read import NotRegular, read_up_to, regular_file


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """At once, also at the end of a link."""
    make(tmp_path / "odd")
    (tmp_path / "link").symlink_to("odd")
    for path in (tmp_path / "odd", tmp_path / "link", Path("/dev/zero")):
        with pytest.raises(NotRegular), regular_file(path):
            pass


def test_a_pipe_that_takes_the_place_of_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when that happens between the look and the opening; and no descriptor is left open."""
    path = tmp_path / "file"
    path.write_text("x")
    look = os.stat

    def exchanged(name: Path) -> os.stat_result:
        found = look(name)
        path.unlink()
        os.mkfifo(path)
        return found

    monkeypatch.setattr(os, "stat", exchanged)
    before = os.listdir("/dev/fd")
    with pytest.raises(NotRegular), regular_file(path):
        pass
    monkeypatch.undo()
    assert os.listdir("/dev/fd") == before


@pytest.mark.parametrize("expected", [0, 5, 10, 10_000])
def test_no_more_than_the_limit_and_a_byte_is_read(tmp_path: Path, expected: int) -> None:
    """Whatever size the file had when it was looked at."""
    path = tmp_path / "file"
    path.write_bytes(b"0123456789" * 1000)
    for limit, length in ((0, 1), (9, 10), (9_999, 10_000), (10_000, 10_000), (20_000, 10_000)):
        with regular_file(path) as (descriptor, found):
            assert found.st_size == 10_000
            assert len(read_up_to(descriptor, limit, expected=expected)) == length
