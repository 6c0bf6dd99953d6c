"""Output is bounded in memory and on disk, and never damaged where it is shown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.agent.shells.collecting import PREVIEW, Collected

CUT = "[cut]"


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(20, 200))
def test_any_bytes_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], shown: int
) -> None:
    """All of it if it is short, else both ends; the file holds all there was."""
    path = tmp_path_factory.mktemp("output") / "session" / "part"
    output = Collected(path, shown=shown)
    for piece in pieces:
        output.add(piece)
        output.preview().encode()
    output.end()
    output.close()
    whole = b"".join(pieces)
    text = whole.decode("utf-8", "replace")
    if len(text.encode()) <= shown and len(whole) <= shown:
        assert (output.text(CUT), output.is_cut, path.exists()) == (text, False, False)
    else:
        assert output.is_cut
        assert path.read_bytes() == whole
        head, _, tail = output.text(CUT).partition(CUT)
        assert len((head + tail).encode()) <= shown
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
    output = Collected(tmp_path_factory.mktemp("output") / "part", shown=24)
    data = text.encode()
    for at in range(0, len(data), size):
        output.add(data[at : at + size])
        assert "\ufffd" not in output.preview()
    output.close()
    assert "\ufffd" not in output.text(CUT)


def test_a_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    """What is beyond its limit is only counted, and that is said."""
    output = Collected(tmp_path / "part", shown=10, kept=100)
    for _ in range(50):
        output.add(b"0123456789")
    output.close()
    assert output.total == 500
    assert (tmp_path / "part").read_bytes() == b"0123456789" * 10
    assert "longer than 100 bytes" in output.problem
    assert output.text(CUT) == f"01234{CUT}56789"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """The output is shown all the same, and the reason is said."""
    (tmp_path / "file").touch()
    output = Collected(tmp_path / "file" / "part", shown=10)
    output.add(b"0123456789" * 3)
    assert output.problem
    assert not output.has_file
    assert output.text(CUT) == f"01234{CUT}56789"
    output.close()


def test_a_full_disk() -> None:
    """It is noticed while writing, and nothing more is tried."""
    output = Collected(Path("/dev/full"), shown=10)
    output.add(b"0123456789" * 3)
    output.add(b"more")
    assert "space" in output.problem
    output.close()


def test_the_preview_is_the_newest(tmp_path: Path) -> None:
    """However much there is, and short of the next character if only half of it has come."""
    output = Collected(tmp_path / "part", shown=10 * PREVIEW)
    output.add(b"x" * PREVIEW + b"end \xe2\x82")
    assert output.preview() == "...\n\n" + "x" * (PREVIEW - 4) + "end "
    output.add(b"\xac")
    assert output.preview().endswith("end €")
    output.close()
