"""`kedge log --all`: who did what to files, for people and for programs."""

import json

import pytest

from tests.cli.projects import hostile_call, prompts
from tests.cli.terminal import Terminal


async def test_what_was_done_is_shown(terminal: Terminal) -> None:
    """By sessions, by undos and by others, newest first."""
    session = await prompts(terminal, "write a.txt one", "write b.txt two")
    (terminal.project / "a.txt").write_text("mine\n")
    assert terminal.run("revert", "1", "--yes", "--strategy", "overwrite").code == 0
    with terminal.keyboard("log", "--all") as keyboard:
        shown = keyboard.end().out.splitlines()
    id = session.removeprefix("ses_")[:8]
    assert [line.split()[:3] for line in shown] == [
        [id, "revert", "Two"],
        ["-", "a.txt"],
        ["-", "b.txt"],
        ["outside", "found", "now"],
        ["~", "a.txt"],
        [id, "write", "Two"],
        ["+", "b.txt"],
        [id, "write", "Two"],
        ["+", "a.txt"],
    ]
    piped = [line.split("\t") for line in terminal.run("log", "--all").out.splitlines()]
    assert [(each[1], *each[5:]) for each in piped] == [
        ("revert", "", "deleted", "a.txt"),
        ("revert", "", "deleted", "b.txt"),
        ("outside", "", "modified", "a.txt"),
        ("session", "write", "added", "b.txt"),
        ("session", "write", "added", "a.txt"),
    ]
    assert [each[2] for each in piped] == [session, session, "", session, session]
    found = json.loads(terminal.run("log", "--all", "--json").out)
    assert [entry["kind"] for entry in found] == ["revert", "outside", "session", "session"]


async def test_names_move_no_cursor(terminal: Terminal) -> None:
    """Whatever a tool and a session are called, each entry and each file has one line."""
    await hostile_call(terminal, "a.txt", "one\n")
    with terminal.keyboard("log", "--all", environ={"NO_COLOR": "1"}) as keyboard:
        shown = keyboard.end().out
    assert "\x1b" not in shown
    assert [line.split()[-2:] for line in shown.splitlines()] == [["x", "now"], ["+", "a.txt"]]


async def test_it_is_filtered(terminal: Terminal) -> None:
    """By file, session and time; and what is left out is said."""
    session = await prompts(terminal, "write a.txt one", "write b.txt two")
    await prompts(terminal, "read a.txt\nwrite a.txt three")

    def files(*options: str) -> list[str]:
        return [line.split("\t")[-1] for line in terminal.run("log", *options).out.splitlines()]

    assert files("--path", "a.txt") == ["a.txt", "a.txt"]
    assert files("--all", session) == ["b.txt", "a.txt"]
    assert files("--since", "1h") == ["a.txt", "b.txt", "a.txt"]
    assert files("--until", "2020-01-01T10:00") == []
    done = terminal.run("log", "--all", "--limit", "1")
    assert len(done.out.splitlines()) == 1
    assert "--limit shows it" in done.err
    assert terminal.run("log", "--path", "c.txt").err == "nothing was done to these files\n"


@pytest.mark.parametrize("time", ["yesterday", "3 weeks", "2026-13-01", ""])
def test_other_times_are_refused(terminal: Terminal, time: str) -> None:
    """With the forms that there are."""
    done = terminal.run("log", "--since", time)
    assert (done.code, "is no time" in done.err) == (2, True)
