"""Which files instructions mean, whatever their patterns and links try."""

import os
from pathlib import Path
from typing import Any

import pytest

from kedge.config import instructions
from kedge.config.instructions import instruction_files, is_address
from kedge.config.values import Instruction
from tests.config.scene import Scene, put


def found(scene: Scene, *patterns: str, root: str | None = None, below: str = "") -> list[str]:
    """The files of patterns, as seen from the project."""
    given = [Instruction(pattern=each, root=root, trusted=root is None) for each in patterns]
    here = str(scene.project / below) if below else str(scene.project)
    files = instruction_files(given, here, str(scene.project))
    return [os.path.relpath(file, scene.project) for file in files]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.md", ["a.md"]),
        ("./docs/b.md", ["docs/b.md"]),
        ("docs/*.md", ["docs/b.md", "docs/c.md"]),
        ("docs/?.md", ["docs/b.md", "docs/c.md"]),
        ("docs/[b].md", ["docs/b.md"]),
        ("**/*.md", ["a.md", "docs/b.md", "docs/c.md", "docs/deep/d.md"]),
        ("docs/**", ["docs/b.md", "docs/c.md", "docs/deep/d.md", "docs/x.txt"]),
        ("docs/**/d.md", ["docs/deep/d.md"]),
        ("*.md", ["a.md"]),
        (".*.md", [".hidden.md"]),
        ("docs", []),
        ("none/*.md", []),
        ("https://x/a.md", []),
        ("a\0.md", []),
    ],
)
def test_patterns(scene: Scene, pattern: str, expected: list[str]) -> None:
    """A pattern means regular files; a dot has to be asked for, and folders are none."""
    names = ("a.md", ".hidden.md", "docs/b.md", "docs/c.md", "docs/x.txt", "docs/deep/d.md")
    for name in (*names, "node_modules/n.md", ".git/g.md"):
        put(scene.project / name, "x")
    assert found(scene, pattern) == expected


def test_folders_above_are_looked_at(scene: Scene) -> None:
    """A relative pattern is looked for up to the worktree, the nearest first, each file once."""
    for name in ("a/b/x.md", "a/x.md", "x.md", "../x.md"):
        put(scene.project / name, "x")
    assert found(scene, "x.md", "x*", below="a/b") == ["a/b/x.md", "a/x.md", "x.md"]


def test_absolute_patterns(scene: Scene) -> None:
    """A path that is written out is looked for there alone."""
    path = put(scene.home / "notes" / "x.md", "x")
    expected = [os.path.relpath(path, scene.project)]
    assert found(scene, str(path)) == expected
    assert found(scene, f"{scene.home}/n*/*.md") == expected


def test_an_untrusted_pattern_stays_inside(scene: Scene) -> None:
    """Links lead nowhere else, and what keeps secrets is left out."""
    root = str(scene.project)
    outside = put(scene.project.parent / "outside" / "x.md", "x")
    put(scene.project / ".env", "KEY=1")
    put(scene.project / "server.pem", "x")
    inside = put(scene.project / "in.md", "x")
    (scene.project / "link.md").symlink_to(outside)
    (scene.project / "folder").symlink_to(outside.parent)
    (scene.project / "alias.md").symlink_to(inside)
    (scene.project / "gone.md").symlink_to("nowhere")
    patterns = ("*.md", "folder/*.md", "**/x.md", ".e*", "*.pem", str(outside), "../outside/*")
    assert found(scene, *patterns, root=root) == ["alias.md", "in.md"]
    assert "folder/x.md" in found(scene, "folder/*.md")


def test_hostile_patterns_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """No pattern walks the same place twice, and none walks for ever."""
    deep = scene.project
    for n in range(30):
        deep = deep / f"d{n}"
    put(deep / "x.md", "x")
    (deep / "loop").symlink_to(scene.project)
    pattern = "/".join(["**"] * 30) + "/x.md"
    assert found(scene, pattern) == [os.path.relpath(deep / "x.md", scene.project)]
    assert found(scene, "*" * 200 + "x") == []
    put(scene.project / "y.md", "y")
    monkeypatch.setattr(instructions, "_MOST_LOOKED_AT", 10)
    assert found(scene, pattern) == []
    assert found(scene, pattern, "y*") == ["y.md"]
    assert found(scene, pattern, "y*", root=str(scene.project)) == []
    assert found(scene, pattern, "y.md", root=str(scene.project)) == ["y.md"]


def test_empty_folders_are_looked_at_too(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with nothing in them take time, which a pattern cannot make endless."""
    listed: list[str] = []
    scandir = os.scandir

    def counted(path: str) -> Any:  # noqa: ANN401 - what the module gives
        listed.append(path)
        return scandir(path)

    for n in range(10):
        (scene.project / f"d{n}").mkdir()
    monkeypatch.setattr(instructions, "_MOST_LOOKED_AT", 100)
    monkeypatch.setattr(os, "scandir", counted)
    assert found(scene, "**/" * 1000 + "x/*") == []
    assert len(listed) <= 12
    listed.clear()
    assert found(scene, "**/*/" * 1000 + "x/*") == []
    assert len(listed) <= 100


def test_many_files_are_cut(scene: Scene) -> None:
    """A pattern that means a thousand files means the first hundred."""
    for n in range(150):
        put(scene.project / f"{n:03}.md", "x")
    assert found(scene, "*.md") == [f"{n:03}.md" for n in range(100)]


def test_a_folder_that_cannot_be_listed(scene: Scene, tmp_path: Path) -> None:
    """What is not a folder, or is gone, has nothing in it."""
    put(scene.project / "file", "x")
    assert found(scene, "file/*", "gone/*/x") == []


def test_addresses() -> None:
    """Text behind an address is not in a file."""
    assert is_address(Instruction(pattern="https://x"))
    assert not is_address(Instruction(pattern="https.md"))
