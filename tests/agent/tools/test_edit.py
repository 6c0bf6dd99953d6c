"""Editing files."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from kedge.agent.tools import changing
from kedge.agent.tools.edit import edit
from kedge.agent.tools.read import read
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
    real = getattr(changing, moment)

    def cancelling(*given: object, **named: object) -> object:
        loop.call_soon_threadsafe(task.cancel)
        return real(*given, **named)

    monkeypatch.setattr(changing, moment, cancelling)
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
