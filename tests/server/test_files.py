"""Files over HTTP: listed, read, found; and nothing outside of the client's directory."""

import base64
import os
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from kedge.domain.child_processes import MIB, ChildLimits
from kedge.domain.errors import PathNotFound, PathRefused
from kedge.engine.files import browse, ripgrep
from tests.agent.world import World
from tests.server.world import Served, serve


@pytest.fixture
def folder(world: World) -> Path:
    """A folder with all kinds of things in it."""
    world.put("sub/deep/c.md", "deep\n")
    world.put("sub/b.py", "x = 1\n")
    world.put("build/out", "z\n")
    world.put("y.log", "log\n")
    world.put(".gitignore", "*.log\nbuild/\n")
    folder = world.folder
    (folder / "bin.dat").write_bytes(b"\0\1bin")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "pic.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "inside").symlink_to("sub")
    (folder / "outside").symlink_to("/etc")
    (folder / "passwd").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("..")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (world.root / "secret.txt").write_text("secret\n")
    return folder


async def test_a_folder_is_listed(folder: Path, served: Served) -> None:
    """Folders first, by name; with what git ignores marked; no symlinks, no pipes."""
    nodes = (await served.get("/file?path=")).json
    assert [node["path"] for node in nodes] == [
        *(".git/", "build/", "sub/"),
        *(".gitignore", "a.txt", "b.txt", "bin.dat", "latin.txt", "pic.png", "y.log"),
    ]
    assert [node["name"] for node in nodes if node["ignored"]] == ["build", "y.log"]
    assert nodes[2] == {
        "name": "sub",
        "path": "sub/",
        "absolute": str(folder / "sub"),
        "type": "directory",
        "ignored": False,
    }
    assert (await served.get("/file?path=.")).json == nodes
    (inner,) = (await served.get("/file?path=build")).json
    assert (inner["path"], inner["ignored"]) == ("build/out", True)


async def test_every_way_to_name_a_folder(folder: Path, served: Served) -> None:
    """With a slash, absolute, through a symlink that stays inside; and from another directory."""
    names = ["b.py", "deep"]
    for path in ("sub", "sub/", "./sub", "sub/../sub", str(folder / "sub"), "inside"):
        nodes = (await served.get(f"/file?path={quote(path)}")).json
        assert sorted(node["name"] for node in nodes) == names, path
    nodes = (await served.get(f"/file?path=&directory={folder}/sub")).json
    assert [node["path"] for node in nodes] == ["deep/", "b.py"]


async def test_files_are_read(folder: Path, served: Served) -> None:
    """Text exactly as it is; anything else in base64 with its type."""
    for path in ("a.txt", str(folder / "a.txt"), "sub/../a.txt"):
        reply = await served.get(f"/file/content?path={quote(path)}")
        assert reply.json == {"type": "text", "content": "one\n"}
    for name, mime in (
        ("bin.dat", "application/octet-stream"),
        ("latin.txt", "text/plain"),
        ("pic.png", "image/png"),
    ):
        found = (await served.get(f"/file/content?path={name}")).json
        assert (found["type"], found["encoding"], found["mimeType"]) == ("binary", "base64", mime)
        assert base64.b64decode(found["content"]) == (folder / name).read_bytes()


async def test_nothing_outside_is_shown(folder: Path, served: Served) -> None:
    """However it is spelled, whatever leads there."""
    ways = [
        *("..", "../", "../secret.txt", "sub/../../secret.txt", "/etc/passwd", "//etc/passwd"),
        *("passwd", "outside/passwd", "up/secret.txt", "inside/../../secret.txt", "/", "outside"),
        *("./././../secret.txt", "/proc/self/root/etc/passwd", "/proc/self/environ", "/dev/zero"),
        f"{folder}/../secret.txt",
        f"{folder}evil",
    ]
    for path in ways:
        for route in ("/file", "/file/content"):
            spelled = quote(path, safe="") if route == "/file" else path.replace(".", "%2e")
            reply = await served.get(f"{route}?path={spelled}")
            assert reply.status == 403, (route, path)
            assert reply.json["name"] == "PathRefused"
            assert b"secret\n" not in reply.body


async def test_encodings_are_decoded_once(folder: Path, served: Served) -> None:
    """What is still encoded after that is a name like any other."""
    for path in ("%252e%252e/secret.txt", "..%255csecret.txt", "..%5csecret.txt", "%c0%ae%c0%ae/x"):
        reply = await served.get(f"/file/content?path={path}")
        assert reply.status in (400, 404), path


async def test_what_cannot_be_read_says_why(folder: Path, served: Served) -> None:
    """A missing file, a folder, a pipe, a loop, a name that cannot be: never an error of ours."""
    for path, status in {
        "nope.txt": 404,
        "nope/nope.txt": 404,
        "a.txt/nope": 404,
        "sub": 400,
        "": 400,
        "pipe": 400,
        "%00": 400,
        "a.txt%00.png": 400,
        "x" * 5000: 400,
        "y" * 300: 404,
    }.items():
        reply = await served.get(f"/file/content?path={path}")
        assert reply.status == status, path
        assert reply.json["data"]["message"]
    loop = await served.get("/file/content?path=loop")
    assert loop.status in (400, 403, 404)
    for path, status in {"a.txt": 400, "pipe": 400, "nope": 404, "%00": 400}.items():
        assert (await served.get(f"/file?path={path}")).status == status, path
    assert (await served.get("/file")).status == 400
    assert (await served.get("/file?path=&path=sub")).status == 400


async def test_a_huge_file_is_refused(folder: Path, served: Served) -> None:
    """Before it is read."""
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    reply = await served.get("/file/content?path=huge")
    assert (reply.status, reply.json["name"]) == (413, "TooLarge")


async def test_a_folder_that_becomes_a_symlink_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who exchanges it after the path was followed gains nothing."""
    followed = os.path.realpath

    def exchanged(path: str) -> str:
        found = followed(path)
        (folder / "sub").rename(folder / "moved")
        (folder / "sub").symlink_to("/etc")
        monkeypatch.undo()
        return found

    monkeypatch.setattr("os.path.realpath", exchanged)
    with pytest.raises((PathRefused, PathNotFound)):
        browse.read_content(str(folder), "sub/passwd")


async def test_the_root_holds_for_every_directory(folder: Path, world: World) -> None:
    """A server that was told where clients may work looks nowhere else."""
    async with serve(world, root=str(folder / "sub" / ".." / "sub")) as served:
        for directory in (folder, folder / "sub" / "..", "/", folder / "up", f"{folder}/subway"):
            for route in ("/file?path=&", "/find?pattern=x&", "/find/file?query=&", "/vcs?"):
                reply = await served.get(f"{route}directory={quote(str(directory))}")
                assert reply.status == 403, (route, directory)
        for route in ("/file?path=", "/vcs", "/path", "/session"):
            assert (await served.get(route)).status == 403, route
        inside = await served.get(f"/file?path=deep&directory={folder}/sub")
        assert [node["path"] for node in inside.json] == ["deep/c.md"]


async def test_the_root_holds_for_attachments(folder: Path, world: World) -> None:
    """A prompt cannot show the model what its client may not see, however it is spelled."""
    (folder / "sub" / "link").symlink_to("/etc/passwd")
    async with serve(world, root=str(folder / "sub")) as served:
        made = await served.post(f"/session?directory={folder}/sub", {})
        target = f"/session/{made.json['id']}/message"
        for url in (
            *("file:///etc/passwd", "FILE:/etc/passwd", "file://localhost/etc/passwd"),
            *(" file:///etc/passwd", "fi\nle:///etc/passwd", "file:///etc/passwd?start=1#x"),
            *(f"file://{folder}/sub/../a.txt", "file:../a.txt", "file:%2e%2e/a.txt", "file:link"),
            f"file://{folder}/sub/link",
        ):
            part = {"type": "file", "mime": "text/plain", "url": url}
            for route in (target, target.replace("/message", "/prompt_async")):
                reply = await served.post(route, {"noReply": True, "parts": [part]})
                assert (reply.status, reply.json["name"]) == (403, "PathRefused"), url
        part = {"type": "file", "mime": "text/plain", "url": f"file://{folder}/sub/b.py"}
        reply = await served.post(target, {"noReply": True, "parts": [part]})
        assert "x = 1" in reply.body.decode()


async def test_lines_are_found(folder: Path, served: Served) -> None:
    """By file and number, with the place of each match; nothing that is ignored."""
    (first, *rest) = (await served.get("/find?pattern=line")).json
    assert first == {
        "path": {"text": "b.txt"},
        "lines": {"text": "line 1\n"},
        "line_number": 1,
        "absolute_offset": 0,
        "submatches": [{"match": {"text": "line"}, "start": 0, "end": 4}],
    }
    assert [each["line_number"] for each in rest] == list(range(2, 11))
    assert (await served.get("/find?pattern=log")).json[0]["path"]["text"] == ".gitignore"
    assert (await served.get("/find?pattern=secret")).json == []
    (latin,) = (await served.get("/find?pattern=caf")).json
    assert latin["lines"]["text"] == "caf\ufffd\n"


async def test_a_pattern_that_is_none_is_refused(folder: Path, served: Served) -> None:
    """With the reason; an option of the program is a pattern too."""
    for pattern in ("((", "", "%00", "x" * 5000):
        reply = await served.get(f"/find?pattern={pattern}")
        assert (reply.status, reply.json["name"]) == (400, "BadRequest"), pattern
    for pattern in ("--files", "-f/etc/passwd", "--pre=id"):
        assert (await served.get(f"/find?pattern={pattern}")).json == []


async def test_names_are_found(folder: Path, served: Served) -> None:
    """Files and folders, the best first; as many and of the kind that was asked for."""
    assert (await served.get("/find/file?query=c.md")).json == ["sub/deep/c.md"]
    assert (await served.get("/find/file?query=SUB")).json[:2] == ["sub/", "sub/b.py"]
    assert (await served.get("/find/file?query=sub&dirs=false")).json[0] == "sub/b.py"
    assert (await served.get("/find/file?query=d&type=directory")).json == ["sub/deep/"]
    assert len((await served.get("/find/file?query=&limit=2")).json) == 2
    assert (await served.get("/find/file?query=zzz")).json == []
    for wrong in ("limit=0", "limit=201", "limit=x", "dirs=1", "type=pipe"):
        assert (await served.get(f"/find/file?query=a&{wrong}")).status == 400, wrong


async def test_there_are_no_symbols(served: Served) -> None:
    """Without language servers, as OpenCode answers without them."""
    assert (await served.get("/find/symbol?query=x")).json == []


async def test_a_directory_that_is_gone_is_empty_or_missing(served: Served, world: World) -> None:
    """Nothing is found in it."""
    gone = f"directory={world.root}/gone"
    assert (await served.get(f"/find?pattern=x&{gone}")).json == []
    assert (await served.get(f"/find/file?query=x&{gone}")).json == []
    assert (await served.get(f"/file?path=&{gone}")).status == 404
    assert (await served.get(f"/vcs/status?{gone}")).json == []


@pytest.mark.skipif(sys.platform != "linux", reason="only there another process can be limited")
@pytest.mark.parametrize("target", ["/find?pattern=x", "/find/file?query=a"])
async def test_a_search_that_needs_too_much_is_an_error(
    folder: Path, served: Served, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Nobody takes it for a search that found nothing; the file that is to blame is named."""
    monkeypatch.setattr(ripgrep, "_LIMITS", ChildLimits(memory=128 * MIB, cpu=60))
    (folder / "sub" / ".ignore").symlink_to("/dev/zero")
    reply = await served.get(target)
    assert reply.status == 503
    assert f"{folder}/sub/.ignore is not a regular file" in reply.json["data"]["message"]
