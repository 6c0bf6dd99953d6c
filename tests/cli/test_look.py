"""Every command that only reads, as a person types it at a terminal, and as a script reads it."""

import asyncio
import json
import re

import pytest

import kedge
from kedge import Agent
from kedge.cli.main import main
from kedge.cli.screen import cells
from tests.cli.terminal import Done, Terminal

HOSTILE = "\x1b[2J\x1b]0;owned\x07 all is well\u202e 漢字のタイトル and much more of it, on and on"
FILE = "wide 漢字\u202e.txt"

LOOKS = [
    ("", "protected: what agents change can be undone"),
    ("sessions", "x1b[2J"),
    ("sessions --all", "x1b[2J"),
    ("sessions --tree", "x1b[2J"),
    ("sessions --archived", "Archived"),
    ("sessions --deleted", "Deleted"),
    ("sessions remember", "remember"),
    ("show", "turns"),
    ("log", "write a.t"),
    ("log --files", "wide"),
    ("log --full", "● write"),
    ("log -n 1", "write c.t"),
    ("diff", "+two"),
    ("diff --all --stat", "wide"),
    ("diff 1", "+one"),
    ("diff --undone", "-three"),
    ("cat a.txt", "two"),
    ("cat a.txt --at 2 --before", "one"),
    ("todo", "greet"),
    ("tails", "tail_"),
    ("stats", "answers|\t"),
    ("stats --by model", "kedge/offl"),
    ("models", "kedge/offline"),
    ("agents", "build"),
    ("permissions", "make"),
    ("answer --list", ""),
    ("config", "default model"),
    ("trust --list", "no file is trusted"),
    ("doctor", "nothing is wrong"),
    ("gc", "can be freed now"),
    ("abort", "nothing runs in"),
]
"""Every command that reads, and what it shows."""

WITH_JSON = [
    each
    for each, _ in LOOKS
    # One gives bytes, the other is no list.
    if each.split(" ")[0] not in ("cat", "abort")
]


TABLES = {
    "sessions",
    "sessions --all",
    "sessions --tree",
    "log",
    "stats",
    "stats --by model",
    "agents",
    "permissions",
    "tails",
    "gc",
}
"""What fits the width of a terminal."""


async def use(terminal: Terminal, database: str | None = None) -> None:
    """Sessions with everything that can be listed, and with names that attack a terminal."""
    async with (
        kedge.open(terminal.project, data_dir=terminal.data, database=database) as engine,
        Agent(engine, environ={}) as agent,
    ):
        await allow(engine)
        await (await engine.sessions.create("Archived")).update(archived=True)
        await (await engine.sessions.create("Deleted")).delete()
        session = await engine.sessions.create(HOSTILE)
        for ask in (
            f"write a.txt one\nwrite {json.dumps(FILE)} \x1b[31mred\x07",
            "edit a.txt one two\ntodo [x] greet | [ ] sleep\x1b[2J\nsay remember\x1b[2J this",
            "write a.txt gone",
        ):
            await agent.prompt(session, ask, model="kedge/offline")
        await session.revert(await session.turn_to_undo() or "")
        await agent.prompt(session, "write c.txt three", model="kedge/offline")
        await session.revert(await session.turn_to_undo() or "")


async def allow(engine: kedge.Engine) -> None:
    """Allow something for good."""
    session = await engine.sessions.create("Allowing")
    async with session.turn("Work") as turn, engine.events.subscribe() as events:
        asking = asyncio.create_task(
            engine.asks.permission(turn, "bash", ("make *",), always=("make *",))
        )
        async for event in events:
            if event.type == "permission.asked":
                id = event.properties.id  # type: ignore[union-attr]  # of this type
                await engine.asks.reply_permission(id, "always", lasting=True)
                break
        await asking


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A terminal where much has happened; looking changes none of it."""
    terminal = Terminal(tmp_path_factory.mktemp("used"))
    asyncio.run(use(terminal))
    return terminal


def check_piped(done: Done, wanted: str) -> None:
    """What a script gets is text that it can read."""
    assert done.code == 0, done.err
    assert re.search(wanted, done.out + done.err), done
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", done.out + done.err) == []
    assert "Traceback" not in done.err


@pytest.mark.parametrize(("line", "wanted"), LOOKS)
def test_scripts_read(used: Terminal, line: str, wanted: str) -> None:
    """No colours, and nothing that acts on a terminal."""
    check_piped(used.run(*line.split()), wanted if "|" in wanted else re.escape(wanted))


@pytest.mark.parametrize(("line", "wanted"), LOOKS)
def test_people_read(used: Terminal, line: str, wanted: str) -> None:
    """The only escape sequences are those of colours, and tables fit the width."""
    with used.keyboard(*line.split(), width=60) as keyboard:
        done = keyboard.end()
        shown = re.sub(r"\x1b\[[0-9;]*m|\r\x1b\[K", "", keyboard.shown)
    assert done.code == 0, done.out
    assert re.search(wanted if "|" in wanted else re.escape(wanted), " ".join(shown.split())), shown
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", shown) == []
    assert "Traceback" not in shown
    if line in TABLES:
        assert [each for each in shown.splitlines() if cells(each) > 60] == []


@pytest.mark.parametrize("line", WITH_JSON)
def test_programs_read(
    used: Terminal,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One document, in ASCII."""
    # In this process: the others show that processes work.
    monkeypatch.chdir(used.project)
    monkeypatch.setenv("HOME", str(used.home))
    monkeypatch.setenv("KEDGE_DATA_DIR", str(used.data))
    assert main([*line.split(), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.isascii()
    json.loads(shown.out)
