"""Which names are found for a few letters, and in what order."""

import os
from pathlib import Path

from kedge.engine.files import find
from kedge.engine.files.file_names import FileNames
from kedge.engine.files.find import Kind, find_files, find_text

FILES: tuple[Kind, ...] = ("file",)


def put(folder: Path, *names: str) -> None:
    """Make files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")


async def test_the_best_come_first(tmp_path: Path) -> None:
    """The very name, then its beginning, its inside, the path, and at last letters in order."""
    put(tmp_path, "app", "apple", "snap_app.py", "app_dir/z", "a/p/p.txt", "alpha/up", "other")
    found = await find_files(FileNames(), str(tmp_path), "app", 20, FILES)
    assert found == ["app", "apple", "snap_app.py", "app_dir/z", "a/p/p.txt", "alpha/up"]


async def test_hidden_files_are_found_and_git_is_not(tmp_path: Path) -> None:
    """As people see their project."""
    put(tmp_path, ".github/ci.yml", ".git/config", "config")
    assert await find_files(FileNames(), str(tmp_path), "c", 20, FILES) == [
        "config",
        ".github/ci.yml",
    ]


async def test_the_number_of_names_is_bounded(tmp_path: Path) -> None:
    """A tree of any size is looked at in bounded memory."""
    put(tmp_path, *(f"f{number}" for number in range(20)))
    assert len(await find_files(FileNames(), str(tmp_path), "", 200, ("file", "directory"))) == 20
    assert len(await find_files(FileNames(), str(tmp_path), "", 5, FILES)) == 5


async def test_many_and_long_lines_are_cut(tmp_path: Path) -> None:
    """No search answers more than a client can show."""
    (tmp_path / "long").write_text("y" + "x" * 100_000 + "\n")
    (tmp_path / "many").write_text("z\n" * 1000)
    (long,) = await find_text(str(tmp_path), "y")
    assert len(long.lines.text) == 2000
    assert len(long.submatches) == 1
    assert len(await find_text(str(tmp_path), "z")) == find.MOST_LINES


async def test_a_line_beyond_measure_hides_no_other(
    tmp_path: Path,
) -> None:
    """It is left out, and what follows is found."""
    put(tmp_path, "first", "last")
    for number in range(3):
        text = "x" * 1_200_000 if number < 2 else "x" * 5_000_000
        (tmp_path / f"long{number}").write_text(text + "\nx\n")
    found = await find_text(str(tmp_path), "x")
    places = [(each.path.text, each.line_number) for each in found]
    assert places == [("first", 1), ("last", 1), ("long0", 2), ("long1", 2), ("long2", 2)]


async def test_links_and_pipes_are_not_searched(tmp_path: Path) -> None:
    """A search neither leaves the folder nor waits for anybody."""
    inside = tmp_path / "inside"
    put(tmp_path, "inside/a", "outside/b")
    (inside / "link").symlink_to(tmp_path / "outside")
    (inside / "file").symlink_to(tmp_path / "outside" / "b")
    os.mkfifo(inside / "pipe")
    assert [each.path.text for each in await find_text(str(inside), "x")] == ["a"]
    assert await find_files(FileNames(), str(inside), "", 20, ("file", "directory")) == ["a"]
