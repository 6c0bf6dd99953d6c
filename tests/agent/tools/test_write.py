"""Writing whole files."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from kedge.agent.tools.read import read
from kedge.agent.tools.tool import ToolFailure
from kedge.agent.tools.write import write
from kedge.domain.parts import ToolCompleted
from tests.agent.tools.scene import Ask, Rejected, Scene, scene_in
from tests.engine.repositories import repository


async def test_a_new_file(scene: Scene) -> None:
    """It is made with its folders, after a question that shows it as a difference."""
    output = await scene.run(write, content="hello", filePath="sub/b.txt")
    file = scene.folder / "sub" / "b.txt"
    assert file.read_text() == "hello"
    assert (output.text, output.title) == ("Wrote file successfully.", "sub/b.txt")
    assert output.metadata == {
        "filepath": str(file),
        "exists": False,
        "diagnostics": {},
        "truncated": False,
    }
    rule = "=" * 67
    assert scene.person.asked == [
        Ask(
            "edit",
            ["sub/b.txt"],
            ["*"],
            {
                "filepath": str(file),
                "diff": f"Index: {file}\n{rule}\n--- {file}\n+++ {file}\n@@ -0,0 +1,1 @@\n+hello\n"
                "\\ No newline at end of file\n",
            },
        )
    ]


async def test_permission_bits(scene: Scene) -> None:
    """A new file has those of the umask, one that exists keeps its own."""
    old = os.umask(0o027)
    try:
        await scene.run(write, content="x", filePath="new")
    finally:
        os.umask(old)
    assert stat.S_IMODE((scene.folder / "new").stat().st_mode) == 0o640
    (scene.folder / "new").chmod(0o751)
    await scene.run(read, filePath="new")
    await scene.run(write, content="y", filePath="new")
    assert stat.S_IMODE((scene.folder / "new").stat().st_mode) == 0o751


async def test_what_was_not_read_is_not_written_over(scene: Scene) -> None:
    """A file that the session has not seen, or that changed since, stays as it is."""
    file = scene.folder / "a"
    file.write_text("theirs")
    with pytest.raises(ToolFailure, match="read it first"):
        await scene.run(write, content="mine", filePath="a")
    await scene.run(read, filePath="a")
    file.write_text("theirs again")
    with pytest.raises(ToolFailure, match="it changed since you read it"):
        await scene.run(write, content="mine", filePath="a")
    assert file.read_text() == "theirs again"
    await scene.run(read, filePath="a")
    await scene.run(write, content="mine", filePath="a")
    assert file.read_text() == "mine"


async def test_a_rejected_write_writes_nothing(scene: Scene) -> None:
    """Neither the file nor a folder on its way."""
    scene.person.rejects.add("edit")
    with pytest.raises(Rejected):
        await scene.run(write, content="x", filePath="deep/a")
    assert list(scene.folder.iterdir()) == []


async def test_a_file_that_appears_while_a_person_thinks(scene: Scene) -> None:
    """What was asked about was a new file; so nothing is written."""
    file = scene.folder / "a"

    async def meanwhile(ask: Ask) -> None:
        file.write_text("theirs")

    scene.person.meanwhile = meanwhile
    with pytest.raises(ToolFailure, match="read it first"):
        await scene.run(write, content="mine", filePath="a")
    assert file.read_text() == "theirs"


async def test_a_symlink_to_the_outside(scene: Scene, tmp_path: Path) -> None:
    """Writing through it asks for where it leads; if that is refused nothing happens."""
    target = tmp_path / "outside.txt"
    (scene.folder / "link").symlink_to(target)
    scene.person.rejects.add("external_directory")
    with pytest.raises(Rejected):
        await scene.run(write, content="x", filePath="link")
    assert not target.exists()
    scene.person.rejects.clear()
    await scene.run(write, content="x", filePath="link")
    assert target.read_text() == "x"
    assert (scene.folder / "link").is_symlink()
    outside, edit = scene.person.asked[1:]
    assert outside.patterns == [f"{tmp_path}/*"]
    assert edit.patterns == ["link", str(target)]


async def test_a_rule_for_a_file_holds_for_a_symlink_to_it(scene: Scene) -> None:
    """Both names are asked about."""
    (scene.folder / "secret").mkdir()
    (scene.folder / "alias").symlink_to("secret")
    await scene.run(write, content="x", filePath="alias/key")
    assert scene.person.asked[0].patterns == ["alias/key", "secret/key"]
    assert (scene.folder / "secret" / "key").read_text() == "x"


async def test_a_symlink_that_is_swapped_while_a_person_thinks(
    scene: Scene, tmp_path: Path
) -> None:
    """A folder that becomes a symlink to the outside is not written through."""
    (scene.folder / "sub").mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()

    async def meanwhile(ask: Ask) -> None:
        (scene.folder / "sub").rmdir()
        (scene.folder / "sub").symlink_to(outside)

    scene.person.meanwhile = meanwhile
    with pytest.raises(ToolFailure):
        await scene.run(write, content="x", filePath="sub/a")
    assert list(outside.iterdir()) == []


async def test_paths_that_lead_out(scene: Scene, tmp_path: Path) -> None:
    """`..` is the outside, wherever in the path it stands."""
    for given in ("../out.txt", "a/../../out.txt", str(tmp_path / "out.txt")):
        scene.person.asked.clear()
        scene.person.rejects.add("external_directory")
        with pytest.raises(Rejected):
            await scene.run(write, content="x", filePath=given)
        assert scene.person.asked[0].patterns == [f"{tmp_path}/*"]
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("a\0b", "NUL"),
        ("x" * 5000, "too long"),
        ("x" * 300, "was not written|cannot be"),
        (".", "is a folder"),
        ("folder", "is a folder"),
        ("file/below", "not a folder"),
        ("pipe", "pipe, a socket or a device"),
        (".git/config", "inside of .git"),
        ("sub/.GIT/hooks/x", "inside of .git"),
        ("loop", "leads nowhere"),
    ],
)
async def test_paths_that_cannot_be_written(scene: Scene, given: str, reason: str) -> None:
    """Each is refused with a reason, and nothing is left behind."""
    (scene.folder / "folder").mkdir()
    (scene.folder / "file").write_text("x")
    (scene.folder / "loop").symlink_to("loop")
    os.mkfifo(scene.folder / "pipe")
    before = sorted(scene.folder.rglob("*"))
    with pytest.raises(ToolFailure, match=reason):
        await scene.run(write, content="x", filePath=given)
    assert sorted(scene.folder.rglob("*")) == before


@pytest.mark.parametrize(
    "given", ["meta/config", "linked/hooks/x", "../other/.git/config", "../bare.git/hooks/x"]
)
async def test_gits_own_folders_by_any_name(scene: Scene, tmp_path: Path, given: str) -> None:
    """One of a submodule or a worktree is named by a file; a link leads there; one is elsewhere."""
    for folder in (scene.folder / "meta", tmp_path / "other" / ".git", tmp_path / "bare.git"):
        for name in ("objects", "refs", "hooks"):
            (folder / name).mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (scene.folder / "linked").symlink_to("meta")
    with pytest.raises(ToolFailure, match=r"inside of \.git"):
        await scene.run(write, content="x", filePath=given)


async def test_a_worktree_inside_of_a_repository(tmp_path: Path) -> None:
    """Many keep a bare repository, with its worktrees in it."""
    folder = tmp_path / "project" / "main"
    folder.mkdir(parents=True)
    for name in ("objects", "refs"):
        (tmp_path / "project" / name).mkdir()
    (tmp_path / "project" / "HEAD").write_text("ref: refs/heads/main\n")
    async with scene_in(folder, tmp_path / "kedge.db") as scene:
        await scene.run(write, content="x", filePath="a.txt")
    assert (folder / "a.txt").read_text() == "x"


async def test_content_that_is_no_text(scene: Scene) -> None:
    """Lone surrogates are replaced, everything else is written as it is."""
    await scene.run(write, content="a\ud800\0\r\nä", filePath="odd")
    assert (scene.folder / "odd").read_bytes() == "a\ufffd\0\r\nä".encode()
    (part,) = await scene.tool_parts()
    assert isinstance(part.state, ToolCompleted)


async def test_two_writes_at_once(scene: Scene) -> None:
    """Each is asked about what it will do, one after the other."""

    async def meanwhile(ask: Ask) -> None:
        await asyncio.sleep(0)

    scene.person.meanwhile = meanwhile
    async with scene.step() as step, asyncio.TaskGroup() as tasks:
        tasks.create_task(scene.call(step, write, content="1\n", filePath="a"))
        tasks.create_task(scene.call(step, write, content="2\n", filePath="a"))
    assert (scene.folder / "a").read_text() == "2\n"
    first, second = (ask.metadata["diff"] for ask in scene.person.asked)
    assert first.endswith("+1\n")
    assert second.endswith("-1\n+2\n")


async def test_a_large_difference_is_cut(scene: Scene) -> None:
    """People see how many lines they do not see, and what they see is well formed."""
    await scene.run(write, content="line of text\n" * 10_000, filePath="large")
    metadata = scene.person.asked[0].metadata
    assert len(metadata["diff"].encode()) <= 64 * 1024 + 200
    shown = metadata["diff"].count("+line of text\n")
    assert shown + metadata["omitted"] == 10_000
    assert f"@@ -0,0 +1,{shown} @@\n" in metadata["diff"]


async def test_undo_gives_back_bytes_and_bits(scene: Scene) -> None:
    """What was written over comes back, what was made goes away with its folder."""
    file = scene.folder / "a"
    file.write_bytes(b"\xff\r\nold")
    file.chmod(0o750)
    await scene.run(read, filePath="a")
    await scene.run(write, content="new", filePath="a")
    await scene.run(write, content="x", filePath="made/b")
    await scene.session.revert(scene.prompts[1])
    assert file.read_bytes() == b"\xff\r\nold"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750
    assert sorted(scene.folder.iterdir()) == [file]


async def test_a_session_below_the_root_of_its_worktree(folder: Path, tmp_path: Path) -> None:
    """Paths start at its directory, titles and rules at the root; that is the inside too."""
    repository(folder)
    (folder / "sub").mkdir()
    async with scene_in(folder / "sub", tmp_path / "kedge.db") as scene:
        output = await scene.run(write, content="x", filePath="a")
        assert output.title == "sub/a"
        await scene.run(write, content="x", filePath="../b")
        assert [ask.patterns for ask in scene.person.asked] == [["sub/a"], ["b"]]
    assert (folder / "sub" / "a").read_text() == (folder / "b").read_text() == "x"


async def test_a_folder_with_two_names(folder: Path, tmp_path: Path) -> None:
    """Whichever of them the model uses, titles and rules see the same."""
    other = tmp_path / "other"
    other.symlink_to(folder)
    async with scene_in(other, tmp_path / "kedge.db") as scene:
        for given in ("a", str(other / "b"), str(folder / "c")):
            output = await scene.run(write, content="x", filePath=given)
            assert output.title == Path(given).name
        assert [ask.patterns for ask in scene.person.asked] == [["a"], ["b"], ["c"]]
