"""Lists of names are kept while they would be made the same again, and never longer."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kedge.engine.files import file_names
from kedge.engine.files.file_names import FileNames
from kedge.engine.files.find import Kind, find_files
from tests.engine.files.test_find import put
from tests.engine.repositories import git, repository
from tests.snapshot.test_worktree_seed import wait_for_the_next_tick

FILES: tuple[Kind, ...] = ("file",)


class Names:
    """The names below a folder as they are told again and again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = FileNames()

    async def now(self) -> set[str]:
        """All of them."""
        return set(await find_files(self.names, str(self.root), "", 1000, FILES))

    async def is_kept(self) -> bool:
        """Whether the list is kept, after it was asked for when all had settled."""
        wait_for_the_next_tick(self.root)
        for folder, _, files in os.walk(self.root):
            for each in (folder, *(os.path.join(folder, file) for file in files)):
                wait_for_the_next_tick(Path(each))
        await self.now()
        await self.names.learned()
        return str(self.root) in self.names


@pytest.fixture
def names(tmp_path: Path) -> Names:
    """A repository with rules, a folder that they exclude, and one that is empty."""
    root = tmp_path / "work"
    put(root, "a.txt", "sub/b.txt", "sub/deep/c.txt", "build/out/o.txt", "sub/x.log", "moving/m")
    (root / "empty" / "below").mkdir(parents=True)
    (root / ".gitignore").write_text("/build\n*.log\n")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return Names(root)


NAMES = {".gitignore", "a.txt", "sub/b.txt", "sub/deep/c.txt", "moving/m"}


def exclude(root: Path) -> None:
    """Ignore something in `info/exclude`."""
    (root / ".git" / "info").mkdir(exist_ok=True)
    (root / ".git" / "info" / "exclude").write_text("*.txt\n")


CHANGES: list[tuple[Callable[[Path], object], set[str]]] = [
    (lambda root: put(root, "new"), NAMES | {"new"}),
    (lambda root: put(root, "sub/deep/new"), NAMES | {"sub/deep/new"}),
    (lambda root: put(root, "empty/below/new"), NAMES | {"empty/below/new"}),
    (lambda root: put(root, "fresh/folder/new"), NAMES | {"fresh/folder/new"}),
    (lambda root: (root / "sub/b.txt").unlink(), NAMES - {"sub/b.txt"}),
    (lambda root: (root / "sub/b.txt").rename(root / "sub/z"), NAMES - {"sub/b.txt"} | {"sub/z"}),
    (lambda root: (root / "moving").rename(root / "moved"), NAMES - {"moving/m"} | {"moved/m"}),
    (lambda root: (root / "moving").rename(root.parent / "out"), NAMES - {"moving/m"}),
    (lambda root: (root / ".gitignore").write_text("*.log\n"), NAMES | {"build/out/o.txt"}),
    (
        lambda root: (root / ".gitignore").write_text("/build\n*.txt\n"),
        {".gitignore", "moving/m", "sub/x.log"},
    ),
    (
        lambda root: (root / "sub/.gitignore").write_text("b.txt\n"),
        NAMES - {"sub/b.txt"} | {"sub/.gitignore"},
    ),
    (
        lambda root: (root / "sub/.ignore").write_text("b.txt\n"),
        NAMES - {"sub/b.txt"} | {"sub/.ignore"},
    ),
    (lambda root: (root.parent / ".ignore").write_text("b.txt\n"), NAMES - {"sub/b.txt"}),
    (exclude, {".gitignore", "moving/m"}),
    (
        lambda root: (root / ".git").rename(root.parent / "aside"),
        NAMES | {"build/out/o.txt", "sub/x.log"},
    ),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
async def test_a_change_outside_of_kedge_shows_at_once(names: Names, number: int) -> None:
    """A file or folder that is made, removed, renamed, or ignored from now on, or no longer."""
    change, expected = CHANGES[number]
    assert await names.is_kept()
    assert await names.now() == NAMES
    change(names.root)
    assert await names.now() == expected


async def test_what_is_kept_is_not_listed_again(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content that changes is no reason to list."""
    assert await names.is_kept()
    monkeypatch.setattr("kedge.engine.files.find._records", None)
    (names.root / "a.txt").write_text("other\n")
    (names.root / "build/out/new").write_text("ignored\n")
    assert await names.now() == NAMES


async def test_what_may_have_changed_unseen_is_not_kept(names: Names) -> None:
    """In the tick of the clock in which a folder changed, it may change again and look the same."""
    put(names.root, "last")
    os.utime(names.root)
    await names.now()
    await names.names.learned()
    put(names.root, "more")
    assert "more" in await names.now()


async def test_with_rules_of_others_nothing_is_kept(names: Names) -> None:
    """They may list what git ignores."""
    (names.root / ".ignore").write_text("!/build\n")
    assert not await names.is_kept()
    assert "build/out/o.txt" in await names.now()
    put(names.root, "build/out/new")
    assert "build/out/new" in await names.now()


async def test_a_folder_of_a_repository(names: Names) -> None:
    """The rules above hold in it, and are looked at too."""
    (names.root / "sub/logs").mkdir()
    below = Names(names.root / "sub")
    assert await below.is_kept()
    assert await below.now() == {"b.txt", "deep/c.txt"}
    put(names.root, "sub/logs/y.log", "sub/logs/y.txt")
    assert await below.now() == {"b.txt", "deep/c.txt", "logs/y.txt"}
    assert await below.is_kept()
    (names.root / ".gitignore").write_text("/build\n")
    assert await below.now() == {"b.txt", "deep/c.txt", "x.log", "logs/y.log", "logs/y.txt"}


@pytest.mark.parametrize("is_linked", [False, True])
async def test_the_rules_of_a_repository_in_it(names: Names, is_linked: bool) -> None:
    """Its `info/exclude` counts below it, wherever that is."""
    inner = home = names.root / "inner"
    if is_linked:
        home = names.root.parent / "home"
    repository(home)
    if is_linked:
        git(home, "worktree", "add", "--quiet", "--detach", str(inner))
    put(inner, "n.txt")
    assert await names.is_kept()
    assert await names.now() == NAMES | {"inner/n.txt"}
    exclude(home)
    assert await names.now() == NAMES


async def test_memory_is_bounded(
    tmp_path: Path, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists that were asked for first are forgotten; one that is too long is not kept."""
    monkeypatch.setattr(file_names, "_MOST_NAMES", 60)
    others = []
    for number in range(4):
        put(tmp_path, f"other{number}/f")
        others.append(Names(tmp_path / f"other{number}"))
        others[-1].names = names.names
        assert await others[-1].is_kept()
    assert str(others[0].root) not in names.names
    put(tmp_path, *(f"many/f{number}" for number in range(100)))
    assert not await Names(tmp_path / "many").is_kept()
