"""Paths as clients write them: found in the worktree, or refused."""

import pytest

from kedge.engine.worktree_paths import find_path
from kedge.errors import InvalidInput, PathRefused


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", b"sub"),
        (".", b"sub"),
        ("a", b"sub/a"),
        ("a//b/./c/", b"sub/a/b/c"),
        ("../b", b"b"),
        ("..", b""),
        ("x/../../y", b"y"),
        ("/srv/work/a", b"a"),
        ("/srv/work", b""),
        ("//srv/work/a", b"a"),
        ("/srv/work/../work/a", b"a"),
        (b"\xff", b"sub/\xff"),
        ("\udcff", b"sub/\xff"),
        ("-a\n'\":", b"sub/-a\n'\":"),
        ("..a", b"sub/..a"),
    ],
)
def test_a_path_inside(path: str | bytes, found: bytes) -> None:
    """It is relative to the directory or absolute, and may go up as far as the root."""
    assert find_path(path, directory="/srv/work/sub", root="/srv/work") == found


@pytest.mark.parametrize(
    "path",
    ["../..", "../../x", "/", "/srv", "/srv/workx", "/srv/work/../x", "/etc/passwd", b"../../\xff"],
)
def test_a_path_outside(path: str | bytes) -> None:
    """It is refused, and so is a folder whose name only begins like the root's."""
    with pytest.raises(PathRefused, match="outside of /srv/work"):
        find_path(path, directory="/srv/work/sub", root="/srv/work")


@pytest.mark.parametrize("path", [None, 1, ["a"], "a\0b", b"\0", "\ud800"])
def test_what_is_no_path(path: object) -> None:
    """It is named as such."""
    with pytest.raises(InvalidInput, match="path") as caught:
        find_path(path, directory="/srv/work", root="/srv/work")
    assert not isinstance(caught.value, PathRefused)


def test_the_whole_disk_as_a_root() -> None:
    """Every path lies in it."""
    assert find_path("../../x", directory="/srv", root="/") == b"x"
    assert find_path("/", directory="/srv", root="/") == b""
