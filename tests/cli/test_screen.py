"""What commands draw with: text that fits, tables, progress."""

import io
from types import SimpleNamespace

import pytest

from kedge.cli.main import main
from kedge.cli.progress import Progress, progress_line
from kedge.cli.screen import Screen, cells, clip, one_line, safe, wrap
from kedge.cli.selection import telling_apart
from kedge.cli.table import Cell, Column, Table


class Tty(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


def screen(width: int = 30) -> tuple[Screen, Tty]:
    """A terminal without colours, and what is on it."""
    stream = Tty()
    return Screen(stream, {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(width)}), stream


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("❤\ufe0f", 2), ("", 0)]
)
def test_the_width_of_a_text(text: str, width: int) -> None:
    """In cells of a terminal, not in characters."""
    assert cells(text) == width


def test_what_is_too_long_is_cut_or_wrapped() -> None:
    """Never wider than its room, whatever is in it; wrapping loses nothing but blanks."""
    text = "漢字のタイトル and a few words, averyveryverylongone"
    for room in range(2, 50):
        assert cells(clip(text, room)) <= room
        lines = wrap(text, room)
        assert max(map(cells, lines)) <= room
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "\x07", "\u202e", "\u2066", "\x00", "\x7f"])
def test_nothing_acts_on_a_terminal(text: str) -> None:
    """Controls and what turns text around are shown as escapes."""
    for shown in (one_line(f"a{text}b\n"), safe(f"a{text}b\n")):
        assert text not in shown
        assert "\\x" in shown or "\\u" in shown


def test_tables_fit_or_are_whole() -> None:
    """On a terminal columns give way and the last one wraps; piped, rows are tabs and whole."""
    table = Table(Column("id"), Column("title", gives_way=True), Column("why", wraps=True))
    table.add(Cell("1", piped="ses_1"), "a title that is long", "because of something else")
    terminal, shown = screen()
    table.show(terminal)
    assert shown.getvalue().splitlines() == [
        "id  title         why",
        "1   a title tha…  because of",
        "                  something",
        "                  else",
    ]
    piped = io.StringIO()
    table.show(Screen(piped, {}))
    assert piped.getvalue() == "ses_1\ta title that is long\tbecause of something else\n"


def test_ids_are_told_apart() -> None:
    """Eight characters, or as many more as it takes."""
    assert telling_apart(["ses_0123456789", "ses_9123456789"]) == 8
    assert telling_apart(["ses_0123456789", "ses_01234567x9", "ses_0123456789"]) == 9


def test_progress_shows_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a second, until it is done; piped, nothing is shown."""
    now = 100.0
    monkeypatch.setattr("kedge.cli.progress.time", SimpleNamespace(monotonic=lambda: now))
    terminal, shown = screen(100)
    with Progress("copying", 200, terminal) as bar:
        now += 0.9
        bar.at(10)
        assert shown.getvalue() == ""
        now += 4.1
        bar.at(50)
        line = shown.getvalue().removeprefix("\r\x1b[K")
        assert line == "copying  ━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  25%  50 of 200  15 s left"
        assert cells(line) < 100
    assert shown.getvalue().endswith("\r\x1b[K")
    assert progress_line("reading", 3, None, 65) == "reading  3  1 min 5 s"
    piped = io.StringIO()
    with Progress("copying", 200, Screen(piped, {})) as bar:
        now += 60
        bar.at(50)
    assert piped.getvalue() == ""


def test_signs_of_other_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal without UTF-8 gets signs that it has, and escapes for all else."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="latin-1", write_through=True)
    monkeypatch.setattr("sys.stdout", stream)
    assert main(["--version"]) == 0
    stream.write("● ✓ é 漢 …\n")
    assert written.getvalue().splitlines()[-1] == b"* + \xe9 \\u6f22 ~"
