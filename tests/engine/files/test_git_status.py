"""What git says of a checkout, file by file, also where the repository lacks something."""

import base64
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.domain.errors import OperatorError
from kedge.engine.files import git_status
from kedge.engine.files.git_status import CheckoutChanges, changes, patches, raw_patch
from kedge.engine.files.private_git import PrivateGit, private_git
from tests.engine.repositories import commit, git, repository


def seen(found: CheckoutChanges) -> dict[str, tuple[str, int, int, str | None]]:
    """What matters of each file."""
    return {
        each.file: (each.status, each.additions, each.deletions, each.uncounted)
        for each in found.files
    }


def put(folder: Path, **files: str) -> None:
    """Write files; two underscores stand for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def commit_all(folder: Path) -> None:
    """Commit what is there."""
    git(folder, "add", "--all")
    commit(folder)


def origin(folder: Path) -> Path:
    """A repository with two commits that others may clone in part."""
    repository(folder, 0)
    git(folder, "config", "uploadpack.allowFilter", "true")
    put(folder, kept="same\n", changed="1\n", gone="x\n", sub__deep="one\n", sub__same="s\n")
    commit_all(folder)
    put(folder, changed="1\n2\n", sub__deep="two\n")
    (folder / "gone").unlink()
    commit_all(folder)
    return folder


def partial_clone(tmp_path: Path, kind: str) -> Path:
    """A clone that has only the contents of the last commit, stands at the one before, and cannot
    fetch any more."""
    made = origin(tmp_path / "origin")
    git(tmp_path, "clone", "-q", f"--filter={kind}", made.as_uri(), "clone")
    git(tmp_path / "clone", "reset", "-q", "--soft", "HEAD~1")
    made.rename(tmp_path / "unreachable")
    return tmp_path / "clone"


def object_file(folder: Path, name: str) -> Path:
    """Where a loose object is."""
    return folder / ".git" / "objects" / name[:2] / name[2:]


def test_a_split_index_is_read_whole(tmp_path: Path) -> None:
    """The half that several indexes share is a file of its own, and is borrowed too."""
    repository(tmp_path)
    put(tmp_path, old="1\n")
    commit_all(tmp_path)
    git(tmp_path, "update-index", "--split-index")
    assert list((tmp_path / ".git").glob("sharedindex.*"))
    put(tmp_path, old="22\n", new="1\n")
    assert seen(changes(str(tmp_path))) == {
        "new": ("added", 1, 0, None),
        "old": ("modified", 1, 1, None),
    }


def test_files_beyond_a_sparse_checkout(tmp_path: Path) -> None:
    """A file that was left out is not a removed one; one that is there is compared, as by git."""
    folder = origin(tmp_path)
    git(folder, "sparse-checkout", "set", "--no-cone", "/changed")
    assert not (folder / "kept").exists()
    assert seen(changes(str(folder))) == {}
    put(folder, kept="put back\n", changed="1\n")
    assert seen(changes(str(folder))) == {
        "changed": ("modified", 0, 1, None),
        "kept": ("modified", 1, 1, None),
    }


def test_contents_that_were_never_fetched(tmp_path: Path) -> None:
    """They are marked; what else changed has its lines and patches."""
    clone = partial_clone(tmp_path, "blob:none")
    put(clone, new="1\n2\n", kept="other\n")
    objects = git(clone, "count-objects", "--verbose")
    found = changes(str(clone))
    assert seen(found) == {
        "changed": ("modified", 0, 0, "missing"),
        "gone": ("deleted", 0, 0, "missing"),
        "kept": ("modified", 1, 1, None),
        "new": ("added", 2, 0, None),
        "sub/deep": ("modified", 0, 0, "missing"),
    }
    assert found.is_incomplete
    told = patches(str(clone), "git", 3)
    assert seen(told) == seen(found)
    texts = {each.file: each.patch for each in told.files}
    assert {name for name, text in texts.items() if text} == {"kept", "new"}
    assert (texts["kept"] or "").endswith("@@ -1 +1 @@\n-same\n+other\n")
    patch, is_incomplete = raw_patch(str(clone))
    assert is_incomplete
    assert patch.count(b"diff --git ") == 2
    assert git(clone, "count-objects", "--verbose") == objects, "nothing was fetched"


def test_folders_that_were_never_fetched(tmp_path: Path) -> None:
    """Without a tree of the commit the index has to do, and everything below it is marked."""
    clone = partial_clone(tmp_path, "tree:0")
    put(clone, new="1\n", kept="other\n")
    found = changes(str(clone))
    assert found.is_incomplete
    assert seen(found) == {
        "kept": ("modified", 0, 0, "missing"),
        "new": ("added", 0, 0, "missing"),
    }


def test_one_folder_is_lost(tmp_path: Path) -> None:
    """Other folders are compared with what was committed."""
    origin(tmp_path)
    put(tmp_path, sub__same="t\n", changed="3\n", sub__new="n\n")
    object_file(tmp_path, git(tmp_path, "rev-parse", "HEAD:sub")).unlink()
    found = changes(str(tmp_path))
    assert found.is_incomplete
    assert seen(found) == {
        "changed": ("modified", 1, 2, None),
        "sub/new": ("added", 0, 0, "missing"),
        "sub/same": ("modified", 0, 0, "missing"),
    }


def test_the_last_commit_is_lost(tmp_path: Path) -> None:
    """What differs from the index is told, all of it marked."""
    origin(tmp_path)
    put(tmp_path, changed="3\n")
    object_file(tmp_path, git(tmp_path, "rev-parse", "HEAD")).unlink()
    found = changes(str(tmp_path))
    assert seen(found) == {"changed": ("modified", 0, 0, "missing")}
    assert found.is_incomplete


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"")


def _cut_short(path: Path) -> None:
    content = zlib.decompress(path.read_bytes())
    path.chmod(0o644)
    # Its beginning tells the size, and the rest is not there.
    path.write_bytes(zlib.compress(content, 0)[:-500])


@pytest.mark.parametrize(
    ("damage", "mark"),
    [(_remove, "missing"), (_empty, "missing"), (_cut_short, "unreadable")],
)
def test_a_damaged_content_costs_its_own_file_alone(
    tmp_path: Path, damage: Callable[[Path], None], mark: str
) -> None:
    """Whatever happened to the object."""
    repository(tmp_path)
    put(tmp_path, a="1\n", b="line\n" * 2000, c="1\n", d="1\n")
    commit_all(tmp_path)
    damage(object_file(tmp_path, git(tmp_path, "rev-parse", "HEAD:b")))
    put(tmp_path, a="2\n", b="2\n", c="2\n")
    found = patches(str(tmp_path), "git", 0)
    assert seen(found) == {
        "a": ("modified", 1, 1, None),
        "b": ("modified", 0, 0, mark),
        "c": ("modified", 1, 1, None),
    }
    assert [bool(each.patch) for each in found.files] == [True, False, True]


def test_a_damaged_folder_is_an_unknown_one(tmp_path: Path) -> None:
    """A tree that is no tree ends in an answer."""
    origin(tmp_path)
    put(tmp_path, sub__same="t\n", changed="3\n", sub__new="n\n")
    path = object_file(tmp_path, git(tmp_path, "rev-parse", "HEAD:sub"))
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"tree 7\0garbage"))
    assert seen(changes(str(tmp_path))) == {
        "changed": ("modified", 1, 2, None),
        "sub/new": ("added", 0, 0, "missing"),
        "sub/same": ("modified", 0, 0, "missing"),
    }


def test_a_pipe_in_the_place_of_a_file(tmp_path: Path) -> None:
    """git would wait for it, and is not asked."""
    repository(tmp_path)
    put(tmp_path, a="1\n", b="1\n")
    commit_all(tmp_path)
    put(tmp_path, a="2\n")
    (tmp_path / "b").unlink()
    os.mkfifo(tmp_path / "b")
    assert seen(changes(str(tmp_path))) == {
        "a": ("modified", 1, 1, None),
        "b": ("modified", 0, 0, "unreadable"),
    }


def test_a_large_file_is_not_compared(tmp_path: Path) -> None:
    """It is there, with a mark and no patch."""
    repository(tmp_path)
    put(tmp_path, a="1\n")
    with open(tmp_path / "large", "wb") as file:
        file.truncate((32 << 20) + 1)
    (tmp_path / "binary").write_bytes(b"\0")
    found = patches(str(tmp_path), "git", 3)
    assert seen(found) == {
        "a": ("added", 1, 0, None),
        "binary": ("added", 0, 0, None),
        "large": ("added", 0, 0, "large"),
    }
    assert [bool(each.patch) for each in found.files] == [True, True, False]


def test_when_the_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changed is listed, and the lines are not."""
    repository(tmp_path)
    put(tmp_path, a="1\n")
    monkeypatch.setattr(PrivateGit, "is_late", True)
    found = changes(str(tmp_path))
    assert seen(found) == {"a": ("added", 0, 0, "late")}
    assert found.is_incomplete


def test_many_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are compared piece by piece; more than can be sent are left out, and that is said."""
    repository(tmp_path)
    put(tmp_path, old="1\n", **{f"many__{number:05}": "1\n2\n" for number in range(6000)})
    found = changes(str(tmp_path))
    assert len(found.files) == 6001
    assert {each.additions for each in found.files} == {1, 2}
    assert not found.is_incomplete
    monkeypatch.setattr(git_status, "_MOST_FILES", 1000)
    cut = changes(str(tmp_path))
    assert cut.files == found.files[:1000]
    assert cut.is_incomplete


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    """Its bytes are told beside it."""
    repository(tmp_path)
    name = b"caf\xe9"
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))).write_text("1\n")
    (found,) = patches(str(tmp_path), "git", 3).files
    assert (found.file, found.additions) == ("caf\ufffd", 1)
    assert base64.b64decode(found.path_base64 or "") == name
    assert found.patch


def test_a_file_that_became_a_link_or_a_folder(tmp_path: Path) -> None:
    """Each file has its own patch."""
    repository(tmp_path)
    put(tmp_path, a="1\n", b="1\n", c="1\n", d="1\n")
    commit_all(tmp_path)
    put(tmp_path, a="2\n", d="2\n")
    (tmp_path / "b").unlink()
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").unlink()
    put(tmp_path, c__inside="1\n")
    found = patches(str(tmp_path), "git", 3)
    assert seen(found) == {
        "a": ("modified", 1, 1, None),
        "b": ("modified", 1, 1, None),
        "c": ("deleted", 0, 1, None),
        "c/inside": ("added", 1, 0, None),
        "d": ("modified", 1, 1, None),
    }
    for each in found.files:
        assert each.patch is not None
        assert f"diff --git a/{each.file} b/{each.file}\n" in each.patch
    assert (found.files[1].patch or "").count("diff --git") == 2


def test_staged_removed_and_conflicting_files(tmp_path: Path) -> None:
    """The folder is compared with the commit, whatever the index has in between."""
    repository(tmp_path)
    put(tmp_path, removed="1\n", staged="1\n", both="1\n", touched="1\n", mode="1\n", kept="1\n")
    commit_all(tmp_path)
    git(tmp_path, "checkout", "-q", "-b", "other")
    put(tmp_path, both="2\n")
    (tmp_path / "kept").unlink()
    commit_all(tmp_path)
    git(tmp_path, "checkout", "-q", "main")
    put(tmp_path, both="3\n", kept="2\n")
    commit_all(tmp_path)
    with pytest.raises(Exception, match="merge"):
        git(tmp_path, "merge", "-q", "other")
    git(tmp_path, "rm", "-q", "--cached", "removed")
    put(tmp_path, staged="1\n2\n", removed="1\n1\n", touched="1\n", intended="1\n")
    git(tmp_path, "add", "staged")
    git(tmp_path, "add", "--intent-to-add", "intended")
    (tmp_path / "mode").chmod(0o755)
    os.utime(tmp_path / "touched", (1, 1))
    found = patches(str(tmp_path), "git", 3)
    # Not "kept", which the merge would remove.
    assert seen(found) == {
        "both": ("modified", 4, 0, None),
        "intended": ("added", 1, 0, None),
        "mode": ("modified", 0, 0, None),
        "removed": ("modified", 1, 0, None),
        "staged": ("modified", 1, 0, None),
    }
    assert not found.is_incomplete


def test_a_file_that_only_the_index_lacks_is_the_same(tmp_path: Path) -> None:
    """`git rm --cached` changes nothing in the folder."""
    repository(tmp_path)
    put(tmp_path, untracked="1\n", program="1\n", changed="1\n")
    (tmp_path / "program").chmod(0o755)
    commit_all(tmp_path)
    git(tmp_path, "rm", "-q", "--cached", "untracked", "program")
    put(tmp_path, changed="2\n")
    found = patches(str(tmp_path), "git", 3)
    assert seen(found) == {"changed": ("modified", 1, 1, None)}
    assert (found.files[0].patch or "").startswith("diff --git a/changed b/changed\n")
    assert not found.is_incomplete
    assert raw_patch(str(tmp_path)) == ((found.files[0].patch or "").encode(), False)


def test_folders_without_end_are_not_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of a few kilobytes can have any number of folders in it."""
    repository(tmp_path)
    put(tmp_path, **{f"{outer}__{inner}__file": "1\n" for outer in "abc" for inner in "abc"})
    commit_all(tmp_path)
    object_file(tmp_path, git(tmp_path, "rev-parse", "HEAD:a/a")).unlink()
    git(tmp_path, "rm", "-q", "-r", "--cached", ".")
    assert changes(str(tmp_path)).files
    monkeypatch.setattr(git_status, "_MOST_ENTRIES", 10)
    with pytest.raises(OperatorError, match="could not compare the files"):
        changes(str(tmp_path))


def test_the_beginning_of_a_branch_in_a_shallow_clone(tmp_path: Path) -> None:
    """git is told where the history ends that was fetched."""
    made = origin(tmp_path / "origin")
    git(tmp_path, "clone", "-q", "--depth=1", made.as_uri(), "clone")
    clone = tmp_path / "clone"
    git(clone, "checkout", "-q", "-b", "topic")
    put(clone, new="1\n")
    commit_all(clone)
    assert seen(patches(str(clone), "branch", 3)) == {"new": ("added", 1, 0, None)}


CRLF = "one\r\ntwo\r\nthree\r\n"


def rewrite(folder: Path) -> None:
    """Change one line, as an editor that keeps line ends."""
    (folder / "a.txt").write_bytes(CRLF.replace("two", "2").encode())


def link_to_file(folder: Path) -> None:
    """Do what git does where there are no links."""
    (folder / "link").unlink()
    put(folder, link="a.txt")


@pytest.mark.parametrize(
    ("setting", "rules", "change"),
    [
        ("core.autocrlf=true", "", rewrite),
        ("core.autocrlf=input", "", rewrite),
        ("core.autocrlf=true", "", lambda folder: os.utime(folder / "a.txt")),
        ("core.eol=crlf", "*.txt text\n", rewrite),
        ("core.eol=lf", "*.txt eol=crlf\n", rewrite),
        ("core.eol=lf", "*.txt text working-tree-encoding=LATIN1\n", rewrite),
        ("core.eol=lf", "*.txt binary\n", rewrite),
        ("core.fileMode=false", "", lambda folder: (folder / "a.txt").chmod(0o755)),
        ("core.fileMode", "", lambda folder: (folder / "a.txt").chmod(0o755)),
        ("core.symlinks=false", "", link_to_file),
        ("core.ignoreCase=true", "", lambda folder: put(folder, IGNORED="x")),
        ("core.attributesFile=../own", "", rewrite),
    ],
)
def test_settings_by_which_git_compares(
    tmp_path: Path, setting: str, rules: str, change: Callable[[Path], object]
) -> None:
    """Line ends, permissions, links and letters, from settings and attributes of any place."""
    folder = tmp_path / "r"
    repository(folder, 0)
    (tmp_path / "own").write_text("*.txt text\n")
    name, _, value = setting.partition("=")
    git(folder, "config", name, value.replace("..", str(tmp_path)))
    (folder / ".git/info/attributes").parent.mkdir(exist_ok=True)
    (folder / ".git/info/attributes").write_text(rules)
    put(folder, **{".gitignore": "ignored\n"})
    (folder / "a.txt").write_bytes(CRLF.encode())
    (folder / "link").symlink_to("a.txt")
    commit_all(folder)
    git(folder, "checkout-index", "--force", "--all")
    change(folder)
    expected = {}
    for line in git(folder, "diff", "--numstat", "HEAD").splitlines():
        added, deleted, file = line.split("\t")
        counts = (0, 0) if added == "-" else (int(added), int(deleted))
        expected[file] = ("modified", *counts, None)
    assert seen(changes(str(folder))) == expected


def test_the_copy_of_an_index_is_as_old(tmp_path: Path) -> None:
    """By its age git knows which files it has to read, as their stat data do not tell."""
    repository(tmp_path)
    put(tmp_path, a="1\n")
    commit_all(tmp_path)
    with private_git(str(tmp_path), 20) as made:
        assert made is not None
        copy, own = os.stat(f"{made.folder}/index"), os.stat(tmp_path / ".git" / "index")
        assert copy.st_mtime_ns == own.st_mtime_ns
        folder = made.folder
    assert not os.path.exists(folder)


def test_ids_of_sha256(tmp_path: Path) -> None:
    """A repository may name its objects with longer hashes."""
    git(tmp_path, "init", "-q", "--object-format=sha256")
    put(tmp_path, a="1\n", lost__b="1\n")
    commit_all(tmp_path)
    put(tmp_path, a="2\n", lost__b="2\n", lost__new="1\n")
    object_file(tmp_path, git(tmp_path, "rev-parse", "HEAD:lost")).unlink()
    assert seen(changes(str(tmp_path))) == {
        "a": ("modified", 1, 1, None),
        "lost/b": ("modified", 0, 0, "missing"),
        "lost/new": ("added", 0, 0, "missing"),
    }


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Neither in a repository in which much is wrong, nor in the folder for temporary files."""
    clone = partial_clone(tmp_path, "blob:none")
    git(clone, "update-index", "--split-index")
    put(clone, new="1\n")
    before = shutil.copytree(clone, tmp_path / "before", symlinks=True)
    changes(str(clone))
    patches(str(clone), "git", 3)

    def listing(folder: Path) -> list[tuple[str, bytes]]:
        files = sorted(each for each in folder.rglob("*") if each.is_file())
        return [(str(each.relative_to(folder)), each.read_bytes()) for each in files]

    assert listing(clone) == listing(before)
