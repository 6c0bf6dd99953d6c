"""Finding files and lines with ripgrep."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kedge.agent.tools.glob import MOST_FILES, glob
from kedge.agent.tools.grep import LONGEST_LINE, MOST_LINES, grep
from kedge.agent.tools.tool import ToolFailure
from kedge.domain.child_processes import MIB, ChildLimits
from kedge.domain.errors import SearchFailed, SearchStopped
from kedge.engine.files import ripgrep
from tests.agent.tools.scene import Ask, Rejected, Scene


def put(folder: Path, *names: str, text: str = "x\n") -> None:
    """Make files, each newer than the one before."""
    for age, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1000 + age, 1000 + age))


def relative(path: str, folder: Path) -> str:
    """A path as seen from the folder."""
    return os.path.relpath(path, folder)


async def names(scene: Scene, pattern: str, path: str | None = None) -> list[str]:
    """What a pattern finds, as seen from the folder."""
    output = await scene.run(glob, pattern=pattern, path=path)
    if output.text == "No files found":
        return []
    return [relative(line, scene.folder) for line in output.text.split("\n")]


async def test_glob(scene: Scene) -> None:
    """The newest files come first."""
    put(scene.folder, "a.py", "sub/b.py", "sub/deep/c.py", "d.txt")
    output = await scene.run(glob, pattern="**/*.py")
    folder = scene.folder
    assert output.text == f"{folder}/sub/deep/c.py\n{folder}/sub/b.py\n{folder}/a.py"
    assert output.metadata == {"count": 3, "truncated": False}
    (ask,) = scene.person.asked
    assert (ask.permission, ask.patterns, ask.always) == ("glob", ["**/*.py"], ["*"])


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", None, ["sub/deep/c.py", "sub/b.py", "a.py"]),
        ("*.py", "sub", ["sub/deep/c.py", "sub/b.py"]),
        ("sub/*.py", None, ["sub/b.py"]),
        ("./sub/*.py", None, ["sub/b.py"]),
        ("sub/**", None, ["sub/deep/c.py", "sub/b.py"]),
        ("*.{py,txt}", None, ["d.txt", "sub/deep/c.py", "sub/b.py", "a.py"]),
        ("[ab].py", None, ["sub/b.py", "a.py"]),
        ("a.py", None, ["a.py"]),
        ("sub/b.py", None, ["sub/b.py"]),
        ("**/deep/*", None, ["sub/deep/c.py"]),
        ("*.rs", None, []),
        ("none/*.py", ".", None),
        ("!a.py", None, []),
        ("#a.py", None, []),
        ("--files", None, []),
        ("-g*", None, []),
    ],
)
async def test_patterns(
    scene: Scene, pattern: str, path: str | None, expected: list[str] | None
) -> None:
    """What each means; none of them is ever an option of the program."""
    put(scene.folder, "a.py", "sub/b.py", "sub/deep/c.py", "d.txt")
    if expected is None:
        with pytest.raises(ToolFailure, match="is no folder"):
            await names(scene, pattern, path)
    else:
        assert await names(scene, pattern, path) == expected


async def test_odd_names(scene: Scene) -> None:
    """They are found and shown in one line each."""
    put(scene.folder, "!x.py", "#y.py", "-z.py", "two\nlines.py", "sp ace.py")
    os.close(os.open(os.fsencode(scene.folder) + b"/\xff.py", os.O_CREAT))
    output = await scene.run(glob, pattern="*.py")
    shown = {os.path.basename(line) for line in output.text.split("\n")}
    assert shown == {"!x.py", "#y.py", "-z.py", "two\\nlines.py", "sp ace.py", "\ufffd.py"}
    assert await names(scene, "!x.py") == ["!x.py"]
    assert await names(scene, "#y.py") == ["#y.py"]


async def test_what_is_ignored(scene: Scene) -> None:
    """Ignored files and git's own are left out, hidden ones are not."""
    (scene.folder / ".git").mkdir()
    (scene.folder / ".git" / "config.py").touch()
    put(scene.folder, "node_modules/a.py", "b.py", ".hidden/c.py")
    (scene.folder / ".gitignore").write_text("node_modules/\n")
    assert sorted(await names(scene, "**/*.py")) == [".hidden/c.py", "b.py"]
    assert sorted(await names(scene, "**")) == [".gitignore", ".hidden/c.py", "b.py"]
    output = await scene.run(grep, pattern="x")
    assert "node_modules" not in output.text
    assert ".hidden/c.py" in output.text


async def test_too_many_files(scene: Scene) -> None:
    """The newest are told, and that there are more."""
    put(scene.folder, *(f"{n:03}" for n in range(150)))
    output = await scene.run(glob, pattern="*")
    lines = output.text.split("\n")
    assert [os.path.basename(line) for line in lines[:2]] == ["149", "148"]
    assert len(lines) == MOST_FILES + 1
    assert lines[-1].startswith("(Only the 100 newest")
    assert output.metadata == {"count": 100, "truncated": True}


async def test_the_outside(scene: Scene, tmp_path: Path) -> None:
    """It is asked for, however the pattern or the path leads there."""
    put(tmp_path / "other", "a.py")
    (scene.folder / "link").symlink_to(tmp_path / "other")
    scene.person.rejects.add("external_directory")
    for pattern, path in (
        ("*.py", "../other"),
        ("../other/*.py", None),
        (f"{tmp_path}/other/*.py", None),
        ("*.py", "link"),
        ("link/*.py", None),
    ):
        with pytest.raises(Rejected):
            await scene.run(glob, pattern=pattern, path=path)
        assert scene.person.asked[-1].patterns == [f"{tmp_path}/other/*"]
    with pytest.raises(Rejected):
        await scene.run(grep, pattern="x", path="link")
    scene.person.rejects.clear()
    assert await names(scene, f"{tmp_path}/other/*.py") == ["../other/a.py"]
    # A symlink below what is searched is not followed.
    assert await names(scene, "*.py") == []


@pytest.mark.parametrize("path", ["swap", "swap/a.py"])
async def test_what_was_asked_for_is_what_is_searched(
    scene: Scene, tmp_path: Path, path: str
) -> None:
    """A folder that becomes a link while somebody thinks is not followed."""
    put(tmp_path / "outside", "a.py", text="victim\n")

    async def swap(ask: Ask) -> None:
        if ask.permission in ("grep", "glob"):
            (scene.folder / "swap").rename(scene.folder / "old")
            (scene.folder / "swap").symlink_to(tmp_path / "outside")

    put(scene.folder, "swap/a.py")
    scene.person.meanwhile = swap
    with pytest.raises(ToolFailure, match="leads elsewhere now"):
        await scene.run(grep, pattern=".", path=path)
    (scene.folder / "swap").unlink()
    (scene.folder / "old").rename(scene.folder / "swap")
    with pytest.raises(ToolFailure, match="leads elsewhere now"):
        await scene.run(glob, pattern="swap/*")
    assert "external_directory" not in scene.person.permissions


async def test_a_bad_pattern(scene: Scene) -> None:
    """The program's own words tell what is wrong."""
    with pytest.raises(SearchFailed, match="unclosed character class"):
        await scene.run(glob, pattern="[")
    with pytest.raises(SearchFailed, match="unclosed group"):
        await scene.run(grep, pattern="(")
    for tool in (glob, grep):
        with pytest.raises(ToolFailure, match="is empty"):
            await scene.run(tool, pattern="")
        with pytest.raises(ToolFailure, match=r"NUL|cannot be"):
            await scene.run(tool, pattern="a\0b")
        with pytest.raises(SearchFailed, match="could not begin"):
            await scene.run(tool, pattern="x" * 1_000_000)


async def test_grep(scene: Scene) -> None:
    """By file, the newest first, with the numbers of the lines."""
    put(scene.folder, "a.py", "sub/b.py", text="def one():\n\tpass\ndef two():\r\n")
    output = await scene.run(grep, pattern=r"def \w+")
    folder = scene.folder
    assert output.text == (
        f"Found 4 lines\n\n{folder}/sub/b.py:\n  Line 1: def one():\n  Line 3: def two():\n"
        f"\n{folder}/a.py:\n  Line 1: def one():\n  Line 3: def two():"
    )
    assert (output.title, output.metadata) == (r"def \w+", {"matches": 4, "truncated": False})
    (ask,) = scene.person.asked
    assert (ask.permission, ask.patterns, ask.always) == ("grep", [r"def \w+"], ["*"])


async def test_grep_in_some_files(scene: Scene) -> None:
    """By the pattern of their names, or in one alone."""
    put(scene.folder, "a.py", "b.txt")
    (scene.folder / "-c.py").write_text("x\n")
    output = await scene.run(grep, pattern="x", include="*.txt")
    assert "b.txt" in output.text
    assert "a.py" not in output.text
    output = await scene.run(grep, pattern="x", path="-c.py")
    assert output.text == f"Found 1 line\n\n{scene.folder}/-c.py:\n  Line 1: x"
    assert (await scene.run(grep, pattern="absent")).text == "No lines found"
    output = await scene.run(grep, pattern="x", include="!a.py")
    assert output.text == "No lines found"


async def test_grep_shows_nothing_that_has_to_be_asked_for(scene: Scene) -> None:
    """A secret is found only by who may read it: asked for by its name, left out of a folder."""
    put(scene.folder, ".env", "a.txt", text="SECRET=1\n")
    scene.person.asks_for = {".env"}
    output = await scene.run(grep, pattern="SECRET", include=".env")
    assert output.text == ("No lines found\n(Left out: 1 files that need a permission to be read.)")
    output = await scene.run(grep, pattern="SECRET")
    assert "a.txt" in output.text
    scene.person.rejects = {"read"}
    with pytest.raises(Rejected):
        await scene.run(grep, pattern="SECRET", path=".env")
    assert scene.person.asked[-1].patterns == [".env"]


async def test_grep_looks_for_what_looks_like_an_option(scene: Scene) -> None:
    """It is a pattern all the same."""
    (scene.folder / "a").write_text("--files\n")
    for pattern in ("--files", "-e", "--pre=rm"):
        await scene.run(grep, pattern=pattern)
    assert "Line 1" in (await scene.run(grep, pattern="--files")).text


async def test_grep_in_odd_files(scene: Scene) -> None:
    """Names and lines that are not UTF-8, binary files, pipes."""
    with open(os.fsencode(scene.folder) + b"/\xff", "wb") as file:  # noqa: ASYNC230 - it is small
        file.write(b"needle \xe9\n")
    (scene.folder / "binary").write_bytes(b"needle\0\n" * 10)
    (scene.folder / "late").write_bytes(b"needle\n" + b"y" * 100_000 + b"\n\0\n")
    (scene.folder / "two\nlines").write_text("\nneedle:1:\n")
    os.mkfifo(scene.folder / "pipe")
    output = await scene.run(grep, pattern="needle")
    assert sorted(output.text.split("\n\n")) == [
        f"{scene.folder}/late:\n  Line 1: needle",
        f"{scene.folder}/two\\nlines:\n  Line 2: needle:1:",
        f"{scene.folder}/\ufffd:\n  Line 1: needle \ufffd",
        "Found 3 lines",
    ]
    assert (await scene.run(grep, pattern="needle", path="binary")).text == "No lines found"
    with pytest.raises(ToolFailure, match="neither a file nor a folder"):
        await scene.run(grep, pattern="needle", path="pipe")
    with pytest.raises(ToolFailure, match="cannot be searched"):
        await scene.run(grep, pattern="needle", path="none")


async def test_too_many_lines(scene: Scene) -> None:
    """They are cut in number and in length, and it is said."""
    (scene.folder / "a").write_text(("x" * 5000 + "\n") * 300)
    output = await scene.run(grep, pattern="x")
    lines = output.text.split("\n")
    assert sum(line.startswith("  Line") for line in lines) == MOST_LINES
    assert all(len(line) < LONGEST_LINE + 30 for line in lines)


async def test_a_flood(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that finds more than anybody reads is ended."""
    monkeypatch.setattr(ripgrep, "_MOST_BYTES", 100_000)
    for name in "abc":
        (scene.folder / name).write_text(("x" * 5000 + "\n") * 90)
    output = await scene.run(grep, pattern="x")
    assert output.metadata["truncated"]
    assert "There are more" in output.text


async def test_a_line_without_an_end(scene: Scene) -> None:
    """It is cut, and what else there is is found."""
    (scene.folder / "a").write_text("x" * 3_000_000)
    (scene.folder / "b").write_text("x\n")
    output = await scene.run(grep, pattern="x")
    lines = output.text.split("\n")
    assert f"  Line 1: {'x' * LONGEST_LINE}..." in lines
    assert "  Line 1: x" in lines


async def test_a_configuration_of_the_user_is_not_read(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one that a hostile project could bring."""
    (tmp_path / "config").write_text("--invert-match\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "config"))
    (scene.folder / "a").write_text("x\ny\n")
    output = await scene.run(grep, pattern="x")
    assert "Line 1: x" in output.text
    assert "Line 2" not in output.text


async def test_without_the_program(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model, and whoever reads with it, hears how to get it."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(SearchFailed, match="pip install ripgrep"):
        await scene.run(grep, pattern="x")


async def test_cancelled(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program and what it started are gone when the call is."""
    program = tmp_path / "rg"
    started = tmp_path / "started"
    os.mkfifo(started)
    program.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! $$ > {started}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: str(program))
    task = asyncio.create_task(scene.run(grep, pattern="x"))
    pids = (await asyncio.to_thread(started.read_text)).split()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in pids:
        assert await asyncio.to_thread(is_gone, int(pid))


async def test_cancelled_while_it_begins(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then too."""
    program = tmp_path / "rg"
    started = tmp_path / "started"
    os.mkfifo(started)
    program.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! $$ > {started}\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: str(program))
    begin = asyncio.create_subprocess_exec
    is_cancelled = asyncio.Event()

    async def slowly(*command: str, **options: Any) -> asyncio.subprocess.Process:  # noqa: ANN401
        process = await begin(*command, **options)
        if command[0] == str(program):
            await is_cancelled.wait()
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    task = asyncio.create_task(scene.run(grep, pattern="x"))
    pids = (await asyncio.to_thread(started.read_text)).split()
    task.cancel()
    is_cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in pids:
        assert await asyncio.to_thread(is_gone, int(pid))


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody waited for has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


@pytest.mark.skipif(sys.platform != "linux", reason="only there another process can be limited")
@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".rgignore", "sub/.ignore"])
async def test_an_ignore_file_without_an_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The search does not begin, or ends at its limit of memory where the file was not seen before;
    it names the file instead of finding nothing."""
    monkeypatch.setattr(ripgrep, "_LIMITS", ChildLimits(memory=128 * MIB, cpu=60))
    put(scene.folder, "a.py", "sub/b.py")
    (scene.folder / name).symlink_to("/dev/zero")
    why = "SIGABRT" if "/" in name else "did not begin"
    for tool, pattern in ((grep, "x"), (glob, "*.py")):
        with pytest.raises(SearchStopped, match=rf"{why}.*not a regular file") as told:
            await scene.run(tool, pattern=pattern)
        assert str(scene.folder / name) in str(told.value)


@pytest.mark.parametrize("name", [".gitignore", ".ignore", "sub/.rgignore"])
async def test_an_ignore_file_that_is_a_pipe(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The search does not begin, or ends when its time is over, and names the file."""
    monkeypatch.setattr(ripgrep, "_PATIENCE", 0.2 if "/" in name else 1000)
    put(scene.folder, "a.py", "sub/b.py")
    os.mkfifo(scene.folder / name)
    why = "took over" if "/" in name else "did not begin"
    with pytest.raises(SearchStopped, match=rf"{why}.*not a regular file") as told:
        await scene.run(grep, pattern="x")
    assert str(scene.folder / name) in str(told.value)


async def test_an_ignore_file_that_is_nothing(scene: Scene) -> None:
    """The null device and a folder say nothing, and stop nobody."""
    put(scene.folder, "a.py")
    (scene.folder / ".gitignore").symlink_to("/dev/null")
    (scene.folder / ".ignore").mkdir()
    assert "a.py:" in (await scene.run(grep, pattern="x")).text


async def test_an_ignore_file_full_of_mistakes(scene: Scene) -> None:
    """What is complained about does not hold up the search."""
    put(scene.folder, "a.py")
    for name in (".gitignore", ".ignore"):
        (scene.folder / name).write_text("[\n" * 50_000)
    assert "a.py:" in (await scene.run(grep, pattern="x")).text


async def test_more_complaints_than_a_pipe_holds(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that complains at length is heard to its end, and the beginning is told."""
    program = tmp_path / "rg"
    program.write_text("#!/bin/sh\necho first >&2\nyes | head -c 1000000 >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: str(program))
    with pytest.raises(SearchFailed, match="first") as told:
        await scene.run(grep, pattern="x")
    assert len(str(told.value)) < 20_000


@pytest.mark.parametrize("signal", ["ABRT", "KILL", "XCPU"])
async def test_a_search_that_is_killed_is_an_error(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: str
) -> None:
    """Whatever killed it, it is never taken for a search that found nothing."""
    program = tmp_path / "rg"
    program.write_text(f"#!/bin/sh\nkill -{signal} $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: str(program))
    for tool in (grep, glob):
        with pytest.raises(SearchStopped, match=f"ended by the signal SIG{signal}"):
            await scene.run(tool, pattern="x")


async def test_trees_full_of_tricks(scene: Scene) -> None:
    """Loops of links, odd names, a file of a terabyte, one long line: all are searched."""
    put(scene.folder, "a.py", "sub/new\nline.py")
    (scene.folder / "sub/up").symlink_to("..")
    (scene.folder / "loop").symlink_to("loop")
    (scene.folder / "long").write_text("x" * 10_000_000)
    with (scene.folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    found = (await scene.run(grep, pattern="x")).text
    assert found.count("Line 1:") == 3
    assert await names(scene, "*.py") == ["sub/new\\nline.py", "a.py"]
