"""Output is bounded in memory and on disk, and never damaged where it is shown."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kedge
from kedge.agent.output_limit import count_lines
from kedge.agent.shell import output as draining
from kedge.agent.shell.output import PREVIEW, Pipe, ShellOutput
from kedge.config.values import ToolOutputConfig
from tests.support.timeouts import PATIENCE

MANY = 10**6


def limit(size: int, lines: int = MANY) -> ToolOutputConfig:
    """So many bytes, and lines."""
    return ToolOutputConfig(max_bytes=size, max_lines=lines)


def ends(output: ShellOutput) -> tuple[str, str]:
    """What is shown before and after the note on what was left out."""
    head, note, tail = re.split(
        r"\n\n(\.\.\.\d+ (?:lines|bytes) truncated\.\.\.\n\(.*\))\n\n", output.text()
    )
    assert note
    return head, tail


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(20, 200), st.integers(1, 20))
def test_any_bytes_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], shown: int, lines: int
) -> None:
    """All of it if it is short, else both ends; the file holds all there was."""
    path = tmp_path_factory.mktemp("output") / "session" / "part"
    output = ShellOutput(path, limit=limit(shown, lines))
    for piece in pieces:
        output.add(piece)
        output.preview().encode()
    output.end()
    output.close()
    whole = b"".join(pieces)
    text = whole.decode("utf-8", "replace")
    if len(text.encode()) <= shown and count_lines(whole) <= lines:
        assert (output.text(), output.is_cut, path.exists()) == (text, False, False)
    else:
        assert output.is_cut
        assert path.read_bytes() == whole
        head, tail = ends(output)
        assert len((head + tail).encode()) <= shown
        assert count_lines(head.encode()) + count_lines(tail.encode()) <= lines
        assert text.startswith(head.rstrip("\ufffd"))
        assert text.endswith(tail.lstrip("\ufffd"))


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), min_size=30, max_size=300),
    st.integers(1, 7),
)
def test_no_character_is_cut_in_two(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    """Neither between two pieces nor where something is left out."""
    output = ShellOutput(tmp_path_factory.mktemp("output") / "part", limit=limit(24))
    data = text.encode()
    for at in range(0, len(data), size):
        output.add(data[at : at + size])
        assert "\ufffd" not in output.preview()
    output.close()
    assert "\ufffd" not in output.text()


def test_what_was_dropped_meanwhile_is_not_missed(tmp_path: Path) -> None:
    """Far more than memory holds: whole lines at both ends, and how many are between them."""
    output = ShellOutput(tmp_path / "part", limit=limit(4096))
    lines = [f"{number:07}\n".encode() for number in range(100_000)]
    for at in range(0, len(lines), 1000):
        output.add(b"".join(lines[at : at + 1000]))
    output.close()
    head, tail = ends(output)
    assert head == "".join(f"{number:07}\n" for number in range(128))
    assert tail == "".join(f"{number:07}\n" for number in range(100_000 - 384, 100_000))
    assert "...99488 lines truncated..." in output.text()
    assert output.total == 800_000


def test_a_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    """What is beyond its limit is only counted, and that is said."""
    output = ShellOutput(tmp_path / "part", limit=limit(16), kept=100)
    for _ in range(50):
        output.add(b"0123456789")
    output.close()
    assert output.total == 500
    assert (tmp_path / "part").read_bytes() == b"0123456789" * 10
    assert "longer than 100 bytes" in output.problem
    assert ends(output) == ("0123", "890123456789")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """The output is shown all the same, and the reason is said."""
    (tmp_path / "file").touch()
    output = ShellOutput(tmp_path / "file" / "part", limit=limit(16))
    output.add(b"0123456789" * 3)
    assert output.problem
    assert not output.has_file
    assert ends(output) == ("0123", "890123456789")
    assert "could not be kept" in output.text()
    output.close()


def test_a_full_disk() -> None:
    """It is noticed while writing, and nothing more is tried."""
    output = ShellOutput(Path("/dev/full"), limit=limit(10))
    output.add(b"0123456789" * 3)
    output.add(b"more")
    assert "space" in output.problem
    output.close()


def test_the_preview_is_the_newest(tmp_path: Path) -> None:
    """However much there is, and short of the next character if only half of it has come."""
    output = ShellOutput(tmp_path / "part", limit=limit(10 * PREVIEW))
    output.add(b"x" * PREVIEW + b"end \xe2\x82")
    assert output.preview() == "...\n\n" + "x" * (PREVIEW - 4) + "end "
    output.add(b"\xac")
    assert output.preview().endswith("end €")
    output.close()


async def test_what_nobody_waits_for_is_taken_at_leisure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine with nothing else to do is not kept busy by a program that writes without end."""
    source, sink = os.pipe()
    async with kedge.open(tmp_path, database=str(tmp_path / "kedge.db")) as engine:
        output = ShellOutput(tmp_path / "out")
        pipe = Pipe(source, output, engine.processes)
        with monkeypatch.context() as patched:
            patched.setattr(draining, "_LEISURE", 3600)
            pipe.slow_down()
            os.write(sink, b"x")
            # A reader of the loop would be called in each of its turns.
            for _ in range(20):
                await asyncio.sleep(0)
            assert output.total == 0
        pipe.slow_down()
        os.close(sink)
        await pipe.finish(PATIENCE)
        assert pipe.has_ended
        assert output.total == 1


async def test_what_is_left_is_closed_with_the_engine(tmp_path: Path) -> None:
    """Nobody reads from it afterwards."""
    source, sink = os.pipe()
    async with kedge.open(tmp_path, database=str(tmp_path / "kedge.db")) as engine:
        pipe = Pipe(source, ShellOutput(tmp_path / "out"), engine.processes)
        pipe.slow_down()
        engine.processes.keep(pipe)
    assert pipe.has_ended
    os.close(sink)
