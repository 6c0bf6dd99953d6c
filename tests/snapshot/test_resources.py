"""Unfinished plans: written down before files are touched, put in order by whoever comes next."""

import os
from pathlib import Path

import pytest

from kedge.snapshot import Outcome, Snapshots
from kedge.snapshot.files.steps import is_own_name
from kedge.snapshot.files.writer import Writer


def opened(root: Path) -> Snapshots:
    """The snapshots of a root, their data beside it."""
    return Snapshots.open(root, data=root.parent / "data", project="prj")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A worktree with one file."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("one\n")
    return root


class Blow(BaseException):
    """As if the process had been killed."""


def test_a_restore_that_died_is_put_in_order(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next snapshot finds the plan, and leaves neither it nor temporary files behind."""
    with opened(root) as snapshots:
        one = snapshots.track()
        (root / "a").write_text("two\n")

        def dies(self: Writer, *_: object) -> None:
            raise Blow

        with monkeypatch.context() as patched:
            patched.setattr(Writer, "_commit", dies)
            with pytest.raises(Blow):
                snapshots.restore(one)
        assert snapshots._opened.plans.are_there()
    with opened(root) as snapshots:
        snapshots.track()
        assert not snapshots._opened.plans.are_there()
        assert not any(map(is_own_name, os.listdir(os.fsencode(root))))
        assert [result.outcome for result in snapshots.restore(one)] == [Outcome.RESTORED]


def test_a_damaged_plan_is_no_obstacle(root: Path) -> None:
    """What cannot be understood is kept and said, and everything else goes on."""
    with opened(root) as snapshots:
        one = snapshots.track()
        folder = snapshots._opened.plans._folder
        folder.mkdir(parents=True)
        (folder / "abc.plan").write_bytes(b"garbage")
        assert snapshots.track() == one
        assert "abc" in snapshots.status().trouble
        assert snapshots.restore(one) == []
        assert [path.name for path in folder.iterdir()] == ["abc.damaged"]
