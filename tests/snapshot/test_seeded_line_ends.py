"""First snapshots of repositories in which git converts: always the bytes on disk."""

import os
from pathlib import Path
from subprocess import CalledProcessError

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kedge.domain.file_states import Present
from kedge.snapshot import Snapshots
from kedge.snapshot.ignore import attributes
from kedge.snapshot.objects.user_packs import BlobCopy
from kedge.snapshot.worktree import scan, seed
from tests.engine.repositories import commit, git, repository
from tests.snapshot.test_worktree_seed import wait_for_the_next_tick

LINES = [b"a\n", b"a\r\n", b"\r", b"\n", b"$Id$\n", b"$Id: 1 $\r\n", b"\0"]
LINES += ["\u03b1\n".encode("euc-jp"), b"$Id: %s $\n" % (b"0" * 40)]
ATTRIBUTES = ["text=auto", "text", "eol=lf", "eol=crlf", "crlf", "ident", "-text", "filter=swap"]
ATTRIBUTES += ["working-tree-encoding=EUC-JP", "text=auto eol=lf"]
SETTINGS = ["core.autocrlf=true", "core.autocrlf=input", "core.eol=crlf", "core.safecrlf=warn"]
CONTENTS = st.lists(st.sampled_from(LINES), max_size=4).map(b"".join)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a few files are taken from the index."""
    monkeypatch.setattr(seed, "FEWEST_FILES", 0)


def packed(
    root: Path, rules: str, contents: list[bytes], *settings: str, checked_out: bool = False
) -> dict[str, bytes]:
    """Make a repository of files as they are on disk, all known to its index and in a pack.

    The files are those that were added, or, if it is checked out, what git makes of its blobs.
    """
    repository(root)
    for setting in ("filter.swap.clean=tr ab ba", "filter.swap.smudge=tr ab ba", *settings):
        git(root, "config", *setting.split("=", 1))
    names = [f"f{number}" for number in range(len(contents))]
    for name, content in zip(names, contents, strict=True):
        (root / name).write_bytes(content)
    if checked_out:
        git(root, "add", ".")  # before there are any rules
    (root / ".gitattributes").write_text(rules)
    if not checked_out:
        for file in root.iterdir():
            wait_for_the_next_tick(file)
    git(root, "add", ".gitattributes" if checked_out else ".")
    commit(root)
    git(root, "repack", "-q", "-a", "-d")
    if checked_out:
        # As in a clone: with an index that knows of the files git would look at them again.
        (root / ".git/index").unlink()
        for name in names:
            (root / name).unlink()
        git(root, "reset", "-q", "--hard")
        for file in root.iterdir():
            wait_for_the_next_tick(file)
        (root / ".git/index").touch()
    return {name: (root / name).read_bytes() for name in names}


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


@pytest.mark.parametrize("setting", SETTINGS)
def test_line_ends_that_are_configured_need_not_be_read(tmp_path: Path, setting: str) -> None:
    """Neither do the settings that convert without any attribute."""
    files = packed(tmp_path / "r", "", [b"a\n", b"b\n", b"\0\r\n"], setting)
    assert check(tmp_path / "r", tmp_path / "data", files) >= 3


@pytest.mark.parametrize(
    "where",
    ["covered", "ignored", "excluded", "ignored folder", "deleted", "large", "link", "info"],
)
def test_attributes_count_wherever_git_finds_them(tmp_path: Path, where: str) -> None:
    """Also in files that no snapshot covers, or that are longer than kedge reads."""
    root = tmp_path / "r"
    repository(root)
    git(root, "config", "filter.swap.clean", "tr ab ba")
    git(root, "config", "filter.swap.smudge", "tr ab ba")
    folder = root / "build/deep"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"abab\n")
    rules = root / (".git/info/attributes" if where == "info" else "build/.gitattributes")
    rules.write_text("# long\n" * (200_000 if where == "large" else 1) + "f* filter=swap\n")
    if where.startswith("ignored"):
        (root / ".gitignore").write_text("build/\n" if where[7:] else ".gitattributes\n")
    elif where == "excluded":
        (root / ".git/info/exclude").write_text(".gitattributes\n")
    wait_for_the_next_tick(folder / "file")
    git(root, "add", "-f", "build/deep/file", *(["build"] if where == "deleted" else []))
    commit(root)
    git(root, "repack", "-q", "-a", "-d")
    if where in ("deleted", "link"):
        rules.rename(root / "rules")
    if where == "link":
        rules.symlink_to("../rules")
    wait_for_the_next_tick(folder / "file")
    (root / ".git/index").touch()
    assert check(root, tmp_path / "data", {"build/deep/file": b"abab\n"}) == 0


def test_a_file_that_vanishes_while_its_folder_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs that folder the index, and the folders below know its attributes all the same."""
    root = tmp_path / "r"
    repository(root)
    (root / "below").mkdir()
    for name in ("file", "below/file"):
        (root / name).write_text("a\n")
        wait_for_the_next_tick(root / name)
    git(root, "add", ".")
    commit(root)
    git(root, "repack", "-q", "-a", "-d")
    (root / "short-lived").touch()
    names_in = scan._names_in

    def list_too_early(path: bytes, status: os.stat_result) -> tuple[list[bytes], list[bytes]]:
        names = names_in(path, status)
        (root / "short-lived").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(scan, "_names_in", list_too_early)
    assert check(root, tmp_path / "data", {"file": b"a\n", "below/file": b"a\n"}) == 1


EXAMPLE = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def example(
    folder: Path, words: list[str], contents: list[bytes], setting: str, checked_out: bool
) -> None:
    """Take the first snapshot of a repository; raises if it is not the bytes on disk."""
    lines = "".join(f"f[{number}-9] {word}\n" for number, word in enumerate(words))
    try:
        files = packed(folder / "r", lines, contents, setting, checked_out=checked_out)
    except CalledProcessError:
        return  # What is in no such encoding git does not add.
    check(folder / "r", folder / "data", files)


@EXAMPLE
@given(
    words=st.lists(st.sampled_from(ATTRIBUTES), max_size=2),
    contents=st.lists(CONTENTS, min_size=1, max_size=6),
    setting=st.sampled_from(["core.eol=lf", *SETTINGS]),
    checked_out=st.booleans(),
)
def test_every_first_snapshot_is_the_bytes_on_disk(
    tmp_path_factory: pytest.TempPathFactory,
    words: list[str],
    contents: list[bytes],
    setting: str,
    checked_out: bool,
) -> None:
    """Whatever attributes and settings made git put into its blobs, or into the files."""
    example(tmp_path_factory.mktemp("example"), words, contents, setting, checked_out)


@pytest.mark.parametrize(
    ("trusted", "word", "content", "checked_out"),
    [
        (b"filter", "filter=swap", b"ab\n", False),
        (b"ident", "ident", b"$Id: %s $\n" % (b"0" * 40), True),
        (b"working-tree-encoding", "working-tree-encoding=EUC-JP", LINES[-2], False),
        (b"", "text=auto", b"a\r\n", False),
    ],
)
def test_each_conversion_that_is_trusted_is_noticed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trusted: bytes,
    word: str,
    content: bytes,
    checked_out: bool,
) -> None:
    """What the property test tries is enough to find a kedge that forgets one; and it passes."""
    example(tmp_path / "right", [word], [content], SETTINGS[-1], checked_out)
    if trusted:
        monkeypatch.setattr(attributes, "CONVERTING", attributes.CONVERTING - {trusted})
        attributes._rules_of.cache_clear()
    else:
        monkeypatch.setattr(BlobCopy, "_packed", lambda self, chunk: list(chunk))
    with pytest.raises(AssertionError):
        example(tmp_path / "wrong", [word], [content], SETTINGS[-1], checked_out)
