"""What git says of a checkout whose index is in two files."""

from pathlib import Path

from kedge.engine.checkout import changes
from tests.engine.repositories import commit, git, repository


def test_a_split_index_is_read_whole(tmp_path: Path) -> None:
    """The half that several indexes share is a file of its own, and is borrowed too."""
    repository(tmp_path)
    (tmp_path / "old").write_text("1\n")
    git(tmp_path, "add", "old")
    commit(tmp_path)
    git(tmp_path, "update-index", "--split-index")
    assert list((tmp_path / ".git").glob("sharedindex.*"))
    (tmp_path / "old").write_text("22\n")
    (tmp_path / "new").write_text("1\n")
    found = {each.file: each.status for each in changes(str(tmp_path))}
    assert found == {"new": "added", "old": "modified"}
