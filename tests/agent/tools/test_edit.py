"""Editing files."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kedge.agent.tools import file_changes
from kedge.agent.tools.edit import edit, edited
from kedge.agent.tools.read import read
from kedge.agent.tools.text_file import FileText
from kedge.agent.tools.tool import ToolFailure
from kedge.domain.events import FileEdited
from tests.agent.tools.scene import Ask, Scene, scene_in


async def test_a_piece_is_replaced(scene: Scene) -> None:
    """Clients get the difference, by itself and with its numbers."""
    file = scene.folder / "a.txt"
    file.write_text("one\n")
    output = await scene.run(edit, filePath="a.txt", oldString="one", newString="uno")
    assert file.read_text() == "uno\n"
    diff = f"Index: {file}\n{'=' * 67}\n--- {file}\n+++ {file}\n@@ -1,1 +1,1 @@\n-one\n+uno\n"
    assert (output.text, output.title) == ("Edit applied successfully.", "a.txt")
    assert output.metadata == {
        "diff": diff,
        "filediff": {"file": str(file), "patch": diff, "additions": 1, "deletions": 1},
        "diagnostics": {},
        "truncated": False,
    }
    assert scene.person.asked == [
        Ask("edit", ["a.txt"], ["*"], {"filepath": str(file), "diff": diff})
    ]


async def test_listeners_hear_of_it(scene: Scene) -> None:
    """Editors reload the file."""
    (scene.folder / "a").write_text("one\n")
    async with scene.engine.events.subscribe() as events:
        await scene.run(edit, filePath="a", oldString="one", newString="uno")
        async for event in events:
            if isinstance(event.properties, FileEdited):
                assert event.properties.file == str(scene.folder / "a")
                break


async def test_bytes_and_bits_that_are_not_replaced_stay(scene: Scene) -> None:
    """Line ends, the byte order mark, what is no UTF-8, and the permission bits."""
    file = scene.folder / "a"
    file.write_bytes(b"\xef\xbb\xbfone\r\ntwo\xff\r\nthree")
    file.chmod(0o755)
    await scene.run(edit, filePath="a", oldString="one\n", newString="1\n1\n")
    assert file.read_bytes() == b"\xef\xbb\xbf1\r\n1\r\ntwo\xff\r\nthree"
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


async def test_all_of_them(scene: Scene) -> None:
    """With replaceAll; without it the number is told."""
    (scene.folder / "a").write_text("x x x")
    with pytest.raises(ToolFailure, match="3 times"):
        await scene.run(edit, filePath="a", oldString="x", newString="y")
    await scene.run(edit, filePath="a", oldString="x", newString="y", replaceAll=True)
    assert (scene.folder / "a").read_text() == "y y y"


async def test_an_empty_old_string(scene: Scene) -> None:
    """It makes a file, and touches none that is there."""
    await scene.run(edit, filePath="new", oldString="", newString="x\n")
    assert (scene.folder / "new").read_text() == "x\n"
    with pytest.raises(ToolFailure, match="exists already"):
        await scene.run(edit, filePath="new", oldString="", newString="y")
    assert (scene.folder / "new").read_text() == "x\n"


async def test_what_cannot_be_edited(scene: Scene) -> None:
    """A missing file, a binary one, a huge one."""
    (scene.folder / "binary").write_bytes(b"a\0one")
    (scene.folder / "huge").touch()
    os.truncate(scene.folder / "huge", 1 << 30)
    for name, reason in (
        ("none", "does not exist"),
        ("binary", "is binary"),
        ("huge", "is larger than"),
    ):
        with pytest.raises(ToolFailure, match=reason):
            await scene.run(edit, filePath=name, oldString="one", newString="uno")
    assert scene.person.asked == []


async def test_a_file_that_somebody_changed_since(scene: Scene) -> None:
    """The edit is refused until the file was read again, and then keeps what is theirs."""
    file = scene.folder / "a"
    file.write_text("one\ntwo\n")
    await scene.run(read, filePath="a")
    file.write_text("one\ntwo\ntheirs\n")
    with pytest.raises(ToolFailure, match="it changed since you read it: read it again"):
        await scene.run(edit, filePath="a", oldString="one", newString="uno")
    assert file.read_text() == "one\ntwo\ntheirs\n"
    await scene.run(read, filePath="a")
    await scene.run(edit, filePath="a", oldString="one", newString="uno")
    assert file.read_text() == "uno\ntwo\ntheirs\n"


async def test_a_file_that_changes_while_a_person_thinks(scene: Scene) -> None:
    """What was allowed is not what would happen; so nothing does."""
    file = scene.folder / "a"
    file.write_text("one\n")

    async def meanwhile(ask: Ask) -> None:
        file.write_text("one\ntheirs\n")

    scene.person.meanwhile = meanwhile
    with pytest.raises(ToolFailure, match="changed after it was looked at"):
        await scene.run(edit, filePath="a", oldString="one", newString="uno")
    assert file.read_text() == "one\ntheirs\n"


async def test_two_edits_at_once(scene: Scene) -> None:
    """Both are made, and neither is asked about with the other's lines."""
    file = scene.folder / "a"
    file.write_text("one\ntwo\n")
    async with scene.step() as step, asyncio.TaskGroup() as tasks:
        for old, new in (("one", "uno"), ("two", "due"), ("uno", "eins")):
            tasks.create_task(scene.call(step, edit, filePath="a", oldString=old, newString=new))
    assert file.read_text() == "eins\ndue\n"
    assert [ask.metadata["diff"].count("\n+") - 1 for ask in scene.person.asked] == [1, 1, 1]


async def test_two_sessions_edit_one_file(scene: Scene, folder: Path, tmp_path: Path) -> None:
    """Each edit is on top of the other, and each can be undone by itself."""
    file = folder / "a"
    file.write_text("".join(f"{n}\n" for n in range(20)))
    before = file.read_bytes()
    async with scene_in(folder, tmp_path / "kedge.db") as other:
        for n in range(3):
            await scene.run(read, filePath="a")
            await scene.run(edit, filePath="a", oldString=f"\n{n + 1}\n", newString=f"\nmine{n}\n")
            await other.run(read, filePath="a")
            await other.run(
                edit, filePath="a", oldString=f"\n{n + 14}\n", newString=f"\ntheirs{n}\n"
            )
        await scene.session.revert(scene.prompts[0])
        assert "mine" not in file.read_text()
        assert "theirs2" in file.read_text()
        await other.session.revert(other.prompts[0])
    assert file.read_bytes() == before


async def test_aborted_while_a_person_thinks(scene: Scene) -> None:
    """The file stays as it is, and the next one may edit it."""
    file = scene.folder / "a"
    file.write_text("one\n")
    thinking = asyncio.Event()

    async def meanwhile(ask: Ask) -> None:
        thinking.set()
        await asyncio.Event().wait()

    scene.person.meanwhile = meanwhile
    task = asyncio.create_task(scene.run(edit, filePath="a", oldString="one", newString="uno"))
    await thinking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert file.read_text() == "one\n"
    scene.person.meanwhile = None
    await scene.run(edit, filePath="a", oldString="one", newString="uno")
    assert file.read_text() == "uno\n"


@pytest.mark.parametrize("moment", ["_look", "_told", "put"])
async def test_cancelled_while_a_thread_works(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The file is as before or as after, what happened is recorded, and nothing is left behind."""
    file = scene.folder / "a"
    file.write_text("one\n")
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(scene.run(edit, filePath="a", oldString="one", newString="uno"))
    real = getattr(file_changes, moment)

    def cancelling(*given: object, **named: object) -> object:
        loop.call_soon_threadsafe(task.cancel)
        return real(*given, **named)

    monkeypatch.setattr(file_changes, moment, cancelling)
    with pytest.raises(asyncio.CancelledError):
        await task
    is_written = moment == "put"
    assert file.read_text() == ("uno\n" if is_written else "one\n")
    assert [diff.file for diff in await scene.session.diff()] == (["a"] if is_written else [])
    assert sorted(path.name for path in scene.folder.iterdir()) == ["a"]


async def test_undo_gives_back_bytes_and_bits(scene: Scene) -> None:
    """Exactly those that were there."""
    file = scene.folder / "a"
    file.write_bytes(b"\xef\xbb\xbfone\r\n\xff")
    file.chmod(0o751)
    await scene.run(edit, filePath="a", oldString="one", newString="uno")
    await scene.session.revert(scene.prompts[0])
    assert file.read_bytes() == b"\xef\xbb\xbfone\r\n\xff"
    assert stat.S_IMODE(file.stat().st_mode) == 0o751


LETTERS = st.text(alphabet="ab \t\n{}é", max_size=40)


@st.composite
def edits(draw: st.DrawFn) -> tuple[str, str, str]:
    """A text, a piece of it, and what should be there instead."""
    text = draw(LETTERS.filter(bool))
    start = draw(st.integers(0, len(text) - 1))
    old = text[start : draw(st.integers(start + 1, len(text)))]
    return text, old, draw(LETTERS.filter(lambda new: new != old))


def replaced(text: str, old: str, new: str, *, everywhere: bool = False) -> str:
    """The file after an edit."""
    return edited(FileText(text), old, new, everywhere=everywhere).whole


def places(text: str, wanted: str) -> int:
    """How often it is there, overlapping places included."""
    return sum(text.startswith(wanted, at) for at in range(len(text)))


@given(edits())
def test_an_exact_match_is_replaced_as_str_replace_does(made: tuple[str, str, str]) -> None:
    """If it is there once; else it is refused, and the number of places is told."""
    text, old, new = made
    count = places(text, old)
    if count == 1:
        assert replaced(text, old, new) == text.replace(old, new)
    else:
        with pytest.raises(ToolFailure, match=f"found {count} times"):
            replaced(text, old, new)


@given(edits())
def test_all_exact_matches_are_replaced_as_str_replace_does(made: tuple[str, str, str]) -> None:
    """With replaceAll, however many there are."""
    text, old, new = made
    assert replaced(text, old, new, everywhere=True) == text.replace(old, new)


@given(edits())
def test_line_ends_are_kept(made: tuple[str, str, str]) -> None:
    """A file of another system stays one, though the model does not know of it."""
    text, old, new = made
    changed = replaced(text.replace("\n", "\r\n"), old, new, everywhere=True)
    expected = text.replace(old, new)
    if "\n" in text:
        expected = expected.replace("\n", "\r\n")
    assert changed == expected


@given(LETTERS, st.data())
def test_lines_that_are_not_touched_keep_their_ends(text: str, data: st.DataObject) -> None:
    """Also in a file that has both kinds."""
    lines = [line + data.draw(st.sampled_from(["\n", "\r\n"])) for line in text.split("\n")]
    at = data.draw(st.integers(0, len(lines)))
    whole = "".join([*lines[:at], "MARK\n", *lines[at:]])
    assert replaced(whole, "MARK", "new") == "".join([*lines[:at], "new\n", *lines[at:]])


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_bytes_that_are_no_text_are_kept(before: bytes, after: bytes) -> None:
    """Only what is replaced changes."""
    assume(b"MARK" not in before + after)
    text = FileText.decode(before + b"\nMARK\n" + after)
    assert edited(text, "MARK", "é").encode() == before + b"\n\xc3\xa9\n" + after


@given(st.lists(st.sampled_from(["x", "  y", "\tz", "w {", "", "}"]), min_size=1, max_size=6))
def test_lines_are_found_whatever_their_blanks(lines: list[str]) -> None:
    """Blanks at both ends and between words may differ; nothing else is touched."""
    assume(lines[0].strip() and lines[-1].strip())
    file = "first\n" + "".join(f"   {line}  \n" for line in lines) + "last\n"
    changed = replaced(file, "\n".join(lines), "NEW")
    # One line that is there exactly keeps the blanks around it.
    assert [line.strip() for line in changed.split("\n")] == ["first", "NEW", "last", ""]


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        pytest.param("a \nb\n", "a\nb", "c", "c\n", id="blanks-at-the-end"),
        pytest.param("    x\n    y\n", "x\ny", "z\n  w", "    z\n      w\n", id="indented-deeper"),
        pytest.param("x\ny\n", "  x\n  y", "  z", "z\n", id="indented-less"),
        pytest.param(
            "\tif a:\n\t\tb\n",
            "    if a:\n        b",
            "    if c:\n        b\n        d",
            "\tif c:\n\t\tb\n\t\td\n",
            id="tabs",
        ),
        pytest.param("f( a,  b )\n", "f( a, b )", "g()", "g()\n", id="blanks-inside"),
        pytest.param("  a\n b\n", "a\nb\n", "c\n", "c\n", id="not-one-shift"),
        pytest.param("  a\nrest\n", "a \n", "", "rest\n", id="line-end-goes-too"),
        pytest.param("\ufeffa\nb\n", "a\n", "c\n", "\ufeffc\nb\n", id="mark-stays"),
        pytest.param("\ufeff  a \nb\n", "a\nb", "c\nb", "\ufeffc\nb\n", id="mark-nearly"),
    ],
)
def test_nearly(text: str, old: str, new: str, expected: str) -> None:
    """Where only blanks differ, the new lines are indented as the file is."""
    assert replaced(text, old, new) == expected


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        ("abc", "x", "y", "was not found"),
        ("abc", "a", "a", "the same"),
        ("a\na\n", "a", "b", r"found 2 times \(at lines 1, 2\)"),
        ("aaa", "aa", "b", "found 2 times"),
        (" a\n\ta\n", "a ", "b", "found 2 times"),
        ("x\n\n\n", " \n", "y", "was not found"),
        ("a\n" * 2000, "a", "b", "at least 1000 times"),
    ],
)
def test_refused(text: str, old: str, new: str, reason: str) -> None:
    """What is not there, or not clear, changes nothing; the model hears what to do."""
    with pytest.raises(ToolFailure, match=reason):
        replaced(text, old, new)


def test_large_texts_made_to_be_slow() -> None:
    """Neither counting overlaps nor comparing lines takes more than their length."""
    with pytest.raises(ToolFailure, match="at least 1000"):
        replaced("a" * 1_000_000, "a" * 100_000, "b")
    with pytest.raises(ToolFailure, match="not found"):
        replaced("a \n" * 300_000, "a\n" * 100_000 + "b", "c")
