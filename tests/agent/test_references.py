"""`@` in a text: what it attaches, and what stays text."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.agent.references import references


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    """A worktree with a few files, below a folder with another."""
    place = tmp_path / "project"
    (place / "src").mkdir(parents=True)
    (place / "src" / "a b.py").write_text("x")
    (place / "src" / "main.py").write_text("x")
    (place / "plan").write_text("x")
    (place / "100%").write_text("x")
    (tmp_path / "outside.txt").write_text("x")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "notes.md").write_text("x")
    os.mkfifo(place / "pipe")
    return place


def found(worktree: Path, text: str, without: tuple[tuple[int, int], ...] = ()) -> list[str]:
    """What a text refers to: agents with their names, files with their paths."""
    home = str(worktree.parent / "home")
    parts = references(
        text, worktree=str(worktree), home=home, agents={"plan", "git/commit"}, without=without
    )
    return [part["filename"] if part["type"] == "file" else f"@{part['name']}" for part in parts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("look at @src/main.py please", ["src/main.py"]),
        ('(@src/main.py), @src/main.py. Or "@src"?', ["src/main.py", "src"]),
        ("@src/main.py,@plan", ["src/main.py", "plan"]),
        ("me@src/main.py `@src/main.py`", []),
        ("@nothing @ @@plan @", []),
        ("@git/commit do", ["@git/commit"]),
        ("@../outside.txt @~/notes.md", ["../outside.txt", "~/notes.md"]),
        ("@src @src @src/", ["src", "src/"]),
        ("@pipe @a\0b @" + "x" * 9000, []),
        ("@100%", ["100%"]),
        ("", []),
    ],
)
def test_what_is_referred_to(worktree: Path, text: str, expected: list[str]) -> None:
    """A path of a file or folder before the name of an agent; other words are text."""
    assert found(worktree, text) == expected


def test_parts_are_those_of_a_prompt(worktree: Path) -> None:
    """With a URL that says where the file is, in whatever folder the session is."""
    parts = references("@src @100% @boss", worktree=str(worktree), home="/nowhere", agents=["boss"])
    assert parts == [
        {
            "type": "file",
            "url": f"file://{worktree}/src",
            "filename": "src",
            "mime": "application/x-directory",
        },
        {
            "type": "file",
            "url": f"file://{worktree}/100%25",
            "filename": "100%",
            "mime": "text/plain",
        },
        {"type": "agent", "name": "boss"},
    ]


def test_a_text_that_no_person_wrote_attaches_nothing(worktree: Path) -> None:
    """Also if it only begins or ends the word."""
    text = "@src/main.py"
    for span in ((0, 1), (0, 12), (11, 12), (4, 6)):
        assert found(worktree, text, (span,)) == []
    assert found(worktree, text, ((0, 0), (12, 20))) == ["src/main.py"]


def test_long_texts_are_looked_at_in_part(worktree: Path) -> None:
    """A paste of many words with an @ costs a bounded time."""
    assert len(found(worktree, " ".join(f"@./{'./' * n}src" for n in range(150)))) == 100
    assert found(worktree, " ".join(f"@x{n}" for n in range(2000)) + " @src") == []


@given(st.text(alphabet="@ab/. ,`\n~", max_size=40))
def test_only_what_is_there(text: str) -> None:
    """Whatever the text is, each part is a file that is there, and was written behind an @."""
    here = Path(__file__).parent
    for part in references(text, worktree=str(here), home=str(here)):
        assert os.path.exists(os.path.join(here, part["filename"].replace("~/", "./", 1)))
        assert f"@{part['filename']}" in text
