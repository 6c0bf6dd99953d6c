"""Which folders have no snapshots at all."""

import pytest

from kedge.snapshot.protection import why_refused


def test_what_is_no_worktree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Home, what holds it, `/`, the inside of git and kedge's own data have no snapshots."""
    monkeypatch.setenv("HOME", "/home/me")
    own = {b"/work/x/gitstuff"}
    for root in (b"/", b"/home", b"/home/me", b"/work/.git", b"/work/x/gitstuff/refs"):
        assert why_refused(root, own)
    for root in (b"/home/me/project", b"/home/m", b"/work/x", b"/work/x/gitstuff2"):
        assert why_refused(root, own) is None
