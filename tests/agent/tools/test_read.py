"""Reading files and folders."""

import base64
import os
import socket
from pathlib import Path

import pytest

from kedge.agent.output_limit import DEFAULT
from kedge.agent.tools.images import most_bytes
from kedge.agent.tools.read import LONGEST_LINE, read
from kedge.agent.tools.tool import Output, ToolFailure
from kedge.agent.tools.write import write
from tests.agent.tools.scene import Rejected, Scene

PNG = b"\x89PNG\r\n\x1a\n"


def body(output: Output) -> list[str]:
    """The numbered lines, and the note after them."""
    lines = output.text.split("\n")
    start = lines.index("<content>") + 1
    return [*lines[start:-3], lines[-2]]


async def test_a_text(scene: Scene) -> None:
    """The form is the one that OpenCode's clients and models know."""
    (scene.folder / "a.txt").write_text("uno\n")
    output = await scene.run(read, filePath="a.txt")
    path = scene.folder / "a.txt"
    assert output.text == (
        f"<path>{path}</path>\n<type>file</type>\n<content>\n1: uno\n\n"
        "(End of file - total 1 lines)\n</content>"
    )
    assert output.title == "a.txt"
    assert output.metadata == {"preview": "uno", "truncated": False, "loaded": []}
    (ask,) = scene.person.asked
    assert (ask.permission, ask.patterns, ask.always) == ("read", ["a.txt"], ["a.txt"])


@pytest.mark.parametrize(
    ("content", "offset", "limit", "expected"),
    [
        (b"", None, None, ["", "(End of file - total 0 lines)"]),
        (b"\n", None, None, ["1: ", "(End of file - total 1 lines)"]),
        (b"a\nb", None, None, ["1: a", "2: b", "(End of file - total 2 lines)"]),
        (b"a\r\nb\r\n", None, None, ["1: a", "2: b", "(End of file - total 2 lines)"]),
        (b"\xef\xbb\xbfa\n", None, None, ["1: a", "(End of file - total 1 lines)"]),
        (b"\xff\xe9t\n", None, None, ["1: \ufffd\ufffdt", "(End of file - total 1 lines)"]),
        (b"a\nb\nc\n", 2, 1, ["2: b", "(Lines 2 to 2 of 3. Go on with offset=3.)"]),
        (b"a\nb\nc", 3, 5, ["3: c", "(End of file - total 3 lines)"]),
        (b"a\nb\nc", 0, 0, ["1: a", "2: b", "3: c", "(End of file - total 3 lines)"]),
        (b"a\nb\n", 3, None, ["", "(End of file - total 2 lines)"]),
    ],
)
async def test_pages(
    scene: Scene, content: bytes, offset: int | None, limit: int | None, expected: list[str]
) -> None:
    """Lines are counted from 1; the last one need not end."""
    (scene.folder / "a").write_bytes(content)
    output = await scene.run(read, filePath="a", offset=offset, limit=limit)
    assert body(output) == expected


async def test_a_long_text_is_cut(scene: Scene) -> None:
    """At 2000 lines, and the answer says how to go on."""
    (scene.folder / "a").write_text("x\n" * 5000)
    output = await scene.run(read, filePath="a")
    assert body(output)[-1] == "(Lines 1 to 2000 of 5000. Go on with offset=2001.)"
    assert output.metadata["truncated"]
    output = await scene.run(read, filePath="a", offset=4999)
    assert body(output) == ["4999: x", "5000: x", "(End of file - total 5000 lines)"]


async def test_a_wide_text_is_cut(scene: Scene) -> None:
    """At so many bytes, between lines; and each line at so many letters."""
    (scene.folder / "a").write_text(("ä" * 3000 + "\n") * 100)
    output = await scene.run(read, filePath="a")
    assert len(output.text.encode()) < DEFAULT.max_bytes + 1000
    first, *_, note = body(output)
    assert first == f"1: {'ä' * LONGEST_LINE}... (cut after {LONGEST_LINE} characters)"
    assert note == "(Lines 1 to 12 of 100. No more fit here. Go on with offset=13.)"


async def test_after_the_end(scene: Scene) -> None:
    """The model hears how long the file is."""
    (scene.folder / "a").write_text("a\nb\nc")
    with pytest.raises(ToolFailure, match="only 3 lines"):
        await scene.run(read, filePath="a", offset=9)


async def test_a_line_without_an_end(scene: Scene) -> None:
    """Hundreds of megabytes in one line, and the memory they take is bounded."""
    file = scene.folder / "a"
    file.write_bytes(b"x" * 8000)
    with file.open("r+b") as opened:
        opened.truncate(300 << 20)
        opened.seek(5_000_000)
        opened.write(b"\nsecond")
    output = await scene.run(read, filePath="a", limit=1)
    assert body(output)[0].startswith("1: xxxx")
    with pytest.raises(ToolFailure, match="too far"):
        await scene.run(read, filePath="a", offset=3)


async def test_a_file_that_is_mostly_hole(scene: Scene) -> None:
    """A gigabyte of nothing is binary, and that is seen at its beginning."""
    (scene.folder / "a").touch()
    os.truncate(scene.folder / "a", 1 << 30)
    with pytest.raises(ToolFailure, match="binary"):
        await scene.run(read, filePath="a")


@pytest.mark.parametrize("content", [b"a\0b", b"\x01\x02\x03\x04text", b"\x7fELF\x02\x01\x01\0"])
async def test_binary_is_refused(scene: Scene, content: bytes) -> None:
    """With a word on what to do instead."""
    (scene.folder / "a").write_bytes(content)
    with pytest.raises(ToolFailure, match="Look at it with a command"):
        await scene.run(read, filePath="a")


@pytest.mark.parametrize(
    ("content", "mime"),
    [
        (PNG + b"\0rest", "image/png"),
        (b"\xff\xd8\xff\xe0\0", "image/jpeg"),
        (b"GIF89a\0", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7\n", "application/pdf"),
    ],
)
async def test_pictures_are_attached(scene: Scene, content: bytes, mime: str) -> None:
    """Told by their bytes, whatever they are called."""
    (scene.folder / "a.txt").write_bytes(content)
    output = await scene.run(read, filePath="a.txt")
    (attached,) = output.attachments
    assert (attached.mime, attached.filename) == (mime, "a.txt")
    assert attached.url == f"data:{mime};base64,{base64.b64encode(content).decode()}"


async def test_what_is_called_a_picture_and_is_none(scene: Scene) -> None:
    """It is read as what it is."""
    (scene.folder / "a.png").write_text("hello")
    output = await scene.run(read, filePath="a.png")
    assert body(output)[0] == "1: hello"
    assert output.attachments == ()


async def test_a_picture_that_is_too_large(scene: Scene) -> None:
    """It is refused before it fills the database."""
    file = scene.folder / "a.png"
    file.write_bytes(PNG)
    os.truncate(file, most_bytes("image/png") + 1)
    with pytest.raises(ToolFailure, match="larger than"):
        await scene.run(read, filePath="a.png")


async def test_a_folder(scene: Scene) -> None:
    """Its names, sorted, those of folders with a slash; pages work as with lines."""
    (scene.folder / "d" / "sub").mkdir(parents=True)
    for name in ("b", "a", "odd\nname"):
        (scene.folder / "d" / name).touch()
    os.close(os.open(os.fsencode(scene.folder / "d") + b"/\xff", os.O_CREAT))
    output = await scene.run(read, filePath="d")
    assert output.text.split("\n")[1:] == [
        "<type>directory</type>",
        "<entries>",
        "a",
        "b",
        "odd\\nname",
        "sub/",
        "\ufffd",
        "",
        "(5 entries)",
        "</entries>",
    ]
    output = await scene.run(read, filePath="d", offset=2, limit=2)
    assert "b\nodd\\nname\n\n(Entries 2 to 3 of 5. Go on with offset=4.)" in output.text
    assert "d/" in (await scene.run(read, filePath=".")).text


async def test_a_missing_file(scene: Scene) -> None:
    """Names that are like it are suggested."""
    for name in ("settings.py", "readme.md", "other"):
        (scene.folder / name).touch()
    with pytest.raises(ToolFailure) as failed:
        await scene.run(read, filePath="setting.py")
    assert str(failed.value).endswith(f"\n{scene.folder}/settings.py")
    with pytest.raises(ToolFailure, match=r"does not exist\.$"):
        await scene.run(read, filePath="no/such/folder")


async def test_special_files(scene: Scene) -> None:
    """Nobody waits for a pipe that nobody writes to."""
    os.mkfifo(scene.folder / "pipe")
    (scene.folder / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(scene.folder)
        try:
            made.bind("socket")
        finally:
            os.chdir(here)
        for name in ("pipe", "socket", "zero"):
            with pytest.raises(ToolFailure, match=r"not a regular file|cannot be opened"):
                await scene.run(read, filePath=name)


async def test_the_outside(scene: Scene, tmp_path: Path) -> None:
    """It is asked for first, also through a symlink; inside nothing more is asked."""
    secret = tmp_path / "secret"
    secret.write_text("x\n")
    (scene.folder / "link").symlink_to(secret)
    for given in ("../secret", "link", str(secret)):
        scene.person.asked.clear()
        scene.person.rejects = {"external_directory"}
        with pytest.raises(Rejected):
            await scene.run(read, filePath=given)
        scene.person.rejects = set()
        await scene.run(read, filePath=given)
        assert scene.person.permissions == ["external_directory", "external_directory", "read"]
        assert str(secret) in scene.person.asked[-1].patterns


async def test_an_outside_folder_is_asked_for_itself(scene: Scene, tmp_path: Path) -> None:
    """Not the folder that it is in."""
    (tmp_path / "other").mkdir()
    await scene.run(read, filePath="../other")
    assert scene.person.asked[0].patterns == [f"{tmp_path}/other/*"]


async def test_what_is_asked_for_a_secret(scene: Scene) -> None:
    """The permission names the file as rules do, also where a symlink hides it."""
    (scene.folder / ".env").write_text("KEY=1\n")
    (scene.folder / "harmless").symlink_to(".env")
    scene.person.rejects.add("read")
    for given, patterns in ((".env", [".env"]), ("harmless", ["harmless", ".env"])):
        with pytest.raises(Rejected):
            await scene.run(read, filePath=given)
        assert scene.person.asked[-1].patterns == patterns


async def test_a_part_counts_as_seen(scene: Scene) -> None:
    """Who has read some lines may write the file."""
    (scene.folder / "a").write_text("1\n2\n3\n")
    await scene.run(read, filePath="a", limit=1)
    await scene.run(write, filePath="a", content="new")
    assert (scene.folder / "a").read_text() == "new"
