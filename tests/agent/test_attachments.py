"""Files that come with a prompt: what they hold is told to the model, and counts as read."""

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from kedge.domain.errors import InvalidInput
from kedge.domain.messages import MessageWithParts
from kedge.domain.parts import FilePart, TextPart
from tests.agent.world import Scene, World, check_closed, error_of, text_of, tools_of
from tests.support.model_server import ModelServer, Text, answer

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
FINE = answer(Text.of("fine"))
FOLDER = "application/x-directory"


def attached(path: Path | str, mime: str = "text/plain", query: str = "") -> dict[str, Any]:
    """A file of this machine, as clients send it."""
    url = path.as_uri() if isinstance(path, Path) else path
    return {"type": "file", "mime": mime, "url": url + query, "filename": "attached"}


async def stored(scene: Scene, *parts: dict[str, Any]) -> MessageWithParts:
    """A prompt with these parts, as it is stored."""
    return await scene.prompt([{"type": "text", "text": "look"}, *parts], no_reply=True)


def told(message: MessageWithParts) -> list[str]:
    """What kedge wrote beside the parts."""
    return [part.text for part in message.parts if isinstance(part, TextPart) and part.synthetic]


def files(message: MessageWithParts) -> list[FilePart]:
    """The files that are kept."""
    return [part for part in message.parts if isinstance(part, FilePart)]


async def test_a_text_is_spelled_out(world: World) -> None:
    """The model reads it as if it had called the tool; the file itself stays named."""
    async with world.at_work() as scene:
        message = await stored(scene, attached(world.folder / "a.txt"))
        call, content = told(message)
        assert "a.txt" in call
        assert "1: one" in content
        (file,) = files(message)
        assert file.url == (world.folder / "a.txt").as_uri()


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("?start=3&end=5", 3, 5),
        ("?start=4", 4, 4),
        ("?start=0&end=2", 1, 2),
        ("?start=9&end=99", 9, 10),
    ],
)
async def test_lines_of_a_text(world: World, query: str, first: int, last: int) -> None:
    """Only those are told that the address asks for."""
    async with world.at_work() as scene:
        message = await stored(scene, attached(world.folder / "b.txt", query=query))
        content = told(message)[1]
        shown = [n for n in range(1, 11) if f"\n{n}: line {n}\n" in content]
        assert shown == list(range(first, last + 1))


async def test_a_folder_is_listed(world: World) -> None:
    """The names that are in it."""
    async with world.at_work() as scene:
        message = await stored(scene, attached(world.folder, FOLDER))
        assert "a.txt" in told(message)[1]
        assert "b.txt" in told(message)[1]


async def test_a_picture_goes_to_the_model(world: World) -> None:
    """It is stored with the prompt, so that it stays what it was."""
    path = world.put("dot.png", PNG)
    async with ModelServer([FINE, FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            await scene.prompt([attached(path, "image/png"), {"type": "text", "text": "look"}])
            path.unlink()
            await scene.prompt("and again")
            for request in server.requests:
                assert base64.b64encode(PNG).decode() in str(request.body)


async def test_a_picture_is_what_its_bytes_say(world: World) -> None:
    """A wrong type is put right."""
    path = world.put("dot.jpg", PNG)
    async with world.at_work() as scene:
        (file,) = files(await stored(scene, attached(path, "image/jpeg")))
        assert file.mime == "image/png"
        assert file.url.startswith("data:image/png;base64,")


async def test_data_goes_as_it_is(world: World) -> None:
    """Pictures and texts that carry their content with them."""
    picture = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    words = f"data:text/plain;base64,{base64.b64encode(b'some words').decode()}"
    async with ModelServer([FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            parts = [attached(picture, "image/png"), attached(words)]
            await scene.prompt([{"type": "text", "text": "look"}, *parts])
            (request,) = server.requests
            assert "some words" in str(request.body)
            assert base64.b64encode(PNG).decode() in str(request.body)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (attached("data:image/png;base64,bm8gcGljdHVyZQ==", "image/png"), "no image/png"),
        (attached("data:image/png;base64,%%%", "image/png"), "broken"),
        (attached("data:image/png", "image/png"), "broken"),
        (attached("https://example.com/x.png", "image/png"), "only files of this machine"),
        (attached("file://elsewhere/x.txt"), "only files of this machine"),
        (attached("file:///no/such/file.txt"), "does not exist"),
        (attached("file:///no/such/folder", FOLDER), "does not exist"),
        (attached("file:///etc/hostname", "text/plain", "?start=x"), "must be numbers"),
        (attached("main.py"), "as in file:///"),
        (attached("file:///with%00zero"), "cannot be used"),
        (attached("file:///dev/zero"), "cannot be used"),
        (attached("file:///" + "x" * 5000), "cannot be used"),
        (attached("file://[bad"), "cannot be used"),
    ],
)
async def test_what_cannot_be_attached_is_told(
    world: World, part: dict[str, Any], why: str
) -> None:
    """To clients and to the model; the rest of the prompt is answered, and the file is left out."""
    async with ModelServer([FINE]) as server:
        world.use(server)
        async with world.at_work() as scene:
            assert text_of(await scene.prompt([{"type": "text", "text": "look"}, part])) == "fine"
            (problem,) = scene.errors()
            assert why in problem
            (asked, _) = await scene.messages()
            assert files(asked) == []
            assert why in str(server.requests[0].messages)
            await check_closed(scene)


async def test_a_picture_that_is_none_is_told(world: World) -> None:
    """A file with a wrong name is not sent to a provider that would refuse it for ever."""
    path = world.put("not.png", "just text\n")
    async with world.at_work() as scene:
        assert files(await stored(scene, attached(path, "image/png"))) == []
        assert "no image/png" in scene.errors()[0]


async def test_a_pipe_does_not_block(world: World) -> None:
    """Nobody writes to it, so that nobody may wait for it."""
    os.mkfifo(world.folder / "pipe")
    async with world.at_work() as scene:
        await stored(scene, attached(world.folder / "pipe"))
        assert len(scene.errors()) == 1


async def test_an_attached_file_counts_as_read(world: World) -> None:
    """It may be edited without being read again, unless it has changed since."""
    async with world.at_work() as scene:
        part = attached(world.folder / "a.txt")
        await scene.prompt([part, {"type": "text", "text": "edit a.txt one two"}])
        assert world.read("a.txt") == "two\n"
        await scene.prompt([attached(world.folder / "b.txt"), {"type": "text", "text": "say ok"}])
        world.put("b.txt", "a person was here\n")
        await scene.prompt("edit b.txt person cat")
        assert world.read("b.txt") == "a person was here\n"


async def test_a_file_that_nobody_read_is_not_overwritten(world: World) -> None:
    """As a check of the one above."""
    async with world.at_work() as scene:
        await scene.prompt("write a.txt two")
        (first, _) = await scene.answers()
        assert error_of(tools_of(first)[0])
        assert world.read("a.txt") == "one\n"


async def test_a_person_may_show_what_the_model_may_not_read(world: World) -> None:
    """Nobody is asked for a file that a person attached, wherever it is."""
    outside = world.root / "outside.env"
    outside.write_text("TOKEN=1\n")
    async with world.at_work() as scene:
        message = await stored(scene, attached(outside))
        assert "TOKEN=1" in told(message)[1]


async def test_parts_that_are_wrong_are_refused(world: World) -> None:
    """Nothing is stored, and the error says which."""
    async with world.at_work() as scene:
        for wrong in ({"type": "file", "mime": 1, "url": "x"}, {"type": "fish"}, {}):
            with pytest.raises(InvalidInput):
                await scene.prompt([wrong])
        assert await scene.messages() == []
        assert len(scene.errors()) == 3
