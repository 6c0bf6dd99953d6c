"""Worktrees that lie in one another."""

import pytest

from kedge.domain.worktrees import are_related, path_in


@pytest.mark.parametrize(
    ("one", "other", "related"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/a/b", "/a", True),
        ("/", "/a", True),
        ("/a", "/ab", False),
        ("/a/b", "/a/c", False),
    ],
)
def test_worktrees_are_related_if_one_holds_the_other(one: str, other: str, related: bool) -> None:
    """Whole names count: a longer one is another folder."""
    assert are_related(one, other) is related


@pytest.mark.parametrize(
    ("root", "worktree", "path", "found"),
    [
        ("/a", "/a", b"f", b"f"),
        ("/a", "/a/b", b"f", b"b/f"),
        ("/a/b", "/a", b"b/f", b"f"),
        ("/a/b", "/a", b"c/f", None),
        ("/a/b", "/a", b"bc", None),
        ("/", "/a", b"\xff", b"a/\xff"),
        ("/a", "/b", b"/a/f", b"f"),
    ],
)
def test_a_path_has_a_name_from_every_root_above_it(
    root: str, worktree: str, path: bytes, found: bytes | None
) -> None:
    """From elsewhere it has none."""
    assert path_in(root, worktree, path) == found
