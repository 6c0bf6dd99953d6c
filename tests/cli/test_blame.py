"""`kedge blame`: who wrote each line, for people and for programs."""

import json

from tests.cli.projects import hostile_call, prompts
from tests.cli.terminal import Terminal


async def test_each_line_is_shown_with_its_call(terminal: Terminal) -> None:
    """A person sees who, in which turn, with which tool and when, said once for neighbours; a
    program all ids and times, with the text as it is."""
    (terminal.project / "a.txt").write_text("one\ntwo\n")
    session = await prompts(terminal, "read a.txt\nedit a.txt two TWO")
    (terminal.project / "a.txt").write_text("one\nTWO\n\tthree\x1b[1m\nfour\n")
    with terminal.keyboard("blame", "a.txt") as keyboard:
        done = keyboard.end()
    head, *rows = done.out.splitlines()
    assert done.code == 0
    assert head.split() == ["session", "turn", "call", "when", "line"]
    first, second, third, fourth = (row.split() for row in rows)
    assert first == ["before", "kedge", "1", "one"]
    assert second[0] == session.removeprefix("ses_")[:8]
    assert (second[2], second[-2:]) == ("edit", ["2", "TWO"])
    assert third == ["outside", "3", r"three\x1b[1m"]
    assert fourth == ["4", "four"]
    piped = terminal.run("blame", "a.txt")
    lines = [line.split("\t") for line in piped.out.splitlines()]
    assert lines[0] == ["before", "", "", "", "", "", "1", "one"]
    assert lines[1][:2] == ["session", session]
    assert [len(id) for id in lines[1][2:4]] == [30, 30]
    assert (lines[1][4], lines[1][6:]) == ("edit", ["2", "TWO"])
    assert lines[2][6:] == ["3", "", r"three\x1b[1m"]
    blame = json.loads(terminal.run("blame", "a.txt", "--json").out)
    assert [line["origin"] for line in blame["lines"]] == [0, 1, 2, 2]
    assert blame["origins"][1]["sessionID"] == session


async def test_nothing_leaves_its_place(terminal: Terminal) -> None:
    """On a narrow terminal each line is one line and has room for its text; whatever a tool is
    called, no row is divided and nothing moves the cursor."""
    text = "one two three\n"
    (terminal.project / "a.txt").write_text(text)
    await hostile_call(terminal, "a.txt", text * 2)
    (terminal.project / "a.txt").write_text(text * 3)
    with terminal.keyboard("blame", "a.txt", width=40, environ={"NO_COLOR": "1"}) as keyboard:
        rows = keyboard.end().out.splitlines()
    assert [row.split()[-3:] for row in rows[1:]] == [["one", "two", "t…"]] * 3
    assert [row for row in rows if len(row) > 40 or "\x1b" in row] == []
    piped = terminal.run("blame", "a.txt").out.splitlines()
    assert [len(row.split("\t")) for row in piped] == [8, 8, 8]
    assert r"\x1b[2J" in piped[1].split("\t")[4]


async def test_what_cannot_be_shown_is_said(terminal: Terminal) -> None:
    """An empty file has nothing to show; for others there is a reason."""
    await prompts(terminal, "write a.txt one")
    (terminal.project / "empty").touch()
    done = terminal.run("blame", "empty")
    assert (done.code, done.out, done.err) == (0, "", "the file is empty\n")
    for path, words in (("b.txt", "b.txt"), (".", "is a folder"), ("../x", "is outside of")):
        done = terminal.run("blame", path)
        assert done.code == 1
        assert words in done.err
