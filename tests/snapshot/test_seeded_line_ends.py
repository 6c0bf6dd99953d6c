"""First snapshots of repositories in which git converts: always the bytes on disk."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.snapshot import Snapshots
from kedge.snapshot.values import Present
from kedge.snapshot.worktree import seeding
from tests.engine.repositories import commit, git, repository
from tests.snapshot.test_repository_seeding import wait_for_the_next_tick

LINES = [b"a\n", b"a\r\n", b"\r", b"\n", b"$Id$\n", b"$Id: 1 $\r\n", "\u00e9\n".encode(), b"\0"]
ATTRIBUTES = ["text=auto", "text", "eol=lf", "eol=crlf", "crlf", "ident", "-text"]
ATTRIBUTES += ["working-tree-encoding=ISO-8859-1", "text=auto eol=lf"]
CONTENTS = st.lists(st.sampled_from(LINES), max_size=4).map(b"".join)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a few files are taken from the index."""
    monkeypatch.setattr(seeding, "FEWEST_FILES", 0)


def packed(root: Path, attributes: str, contents: list[bytes]) -> dict[str, bytes]:
    """Make a repository of files as they are on disk, all known to its index and in a pack."""
    repository(root)
    (root / ".gitattributes").write_text(attributes)
    files = {f"f{number}": content for number, content in enumerate(contents)}
    for name, content in files.items():
        (root / name).write_bytes(content)
    wait_for_the_next_tick(root / ".gitattributes")
    for name in files:
        wait_for_the_next_tick(root / name)
    git(root, "add", ".")
    commit(root)
    git(root, "repack", "-q", "-a", "-d")
    return files


def check(root: Path, data: Path, files: dict[str, bytes]) -> int:
    """Hold the first snapshot against the disk; how many files were not read for it."""
    with Snapshots.open(root, data=data, project="one") as snapshots:
        taken = snapshots.track()
        for name, content in files.items():
            state = snapshots.state(taken, os.fsencode(name))
            assert isinstance(state, Present)
            assert snapshots.read(state.blob) == content, name
        return snapshots.status().seeded


def test_line_ends_that_were_not_converted_need_not_be_read(tmp_path: Path) -> None:
    """The usual line of attributes costs nothing; what it did convert is read."""
    files = packed(tmp_path / "r", "* text=auto eol=lf\n", [b"a\n", b"b\n", b"c\r\n"])
    assert check(tmp_path / "r", tmp_path / "data", files) == 3  # with .gitattributes


def test_one_blob_does_not_stand_for_files_of_two_sizes(tmp_path: Path) -> None:
    """Whichever of them is met first."""
    contents = [b"a\r\n", b"a\n", b"b\n", b"b\r\n"]
    check(tmp_path / "r", tmp_path / "data", packed(tmp_path / "r", "* text=auto\n", contents))


def test_a_blob_that_the_store_has_is_of_the_right_size_too(tmp_path: Path) -> None:
    """Another worktree of the project had the blob as a file; this one has it converted."""
    for name, content in (("one", b"a\n"), ("two", b"a\r\n")):
        files = packed(tmp_path / name, "* text=auto\n", [content])
        check(tmp_path / name, tmp_path / "data", files)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.sampled_from(ATTRIBUTES), min_size=1, max_size=2),
    contents=st.lists(CONTENTS, min_size=1, max_size=6),
)
def test_every_first_snapshot_is_the_bytes_on_disk(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], contents: list[bytes]
) -> None:
    """Whatever the attributes made git put into its blobs."""
    folder = tmp_path_factory.mktemp("example")
    lines = "".join(f"f[{number}-9] {word}\n" for number, word in enumerate(words))
    files = packed(
        folder / "r", lines, [each.replace("\u00e9".encode(), b"e") for each in contents]
    )
    check(folder / "r", folder / "data", files)
