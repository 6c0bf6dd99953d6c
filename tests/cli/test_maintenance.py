"""`kedge doctor`, `kedge gc` and `kedge backup`, as a person types them."""

import asyncio
import json
import re
from pathlib import Path

import pytest

import kedge
from kedge.maintenance import KINDS
from tests.cli.terminal import Terminal

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def used(terminal: Terminal) -> Terminal:
    """A project in which an agent wrote a file."""

    async def use() -> None:
        async with kedge.open(terminal.project, data_dir=terminal.data) as engine:
            agent = kedge.Agent(engine)
            session = await engine.sessions.create("Write")
            await agent.prompt(session, "write a.txt one")
            await agent.close()

    asyncio.run(use())
    return terminal


def test_the_doctor(used: Terminal) -> None:
    """It finds nothing; then what was planted, which it repairs when a person agrees."""
    done = used.run("doctor", "--json")
    assert done.code == 0, done.out
    assert json.loads(done.out)["healthy"] is True
    (used.data / "kedge.db").chmod(0o644)
    done = used.run("doctor")
    assert done.code == 3
    assert "warning folder-open" in done.out
    assert "why: other users of the machine can read" in done.out
    assert "`kedge doctor --repair` can repair 1 of them" in done.err
    done = used.run("doctor", "--repair")
    assert (done.code, (used.data / "kedge.db").stat().st_mode & 0o777) == (5, 0o644)
    done = used.talk("doctor", "--repair", answer=b"y\n")
    assert done.code == 0
    assert "nothing is wrong any more" in done.out
    assert (used.data / "kedge.db").stat().st_mode & 0o777 == 0o600
    done = used.run("doctor", "--repair", "--yes", "--json")
    assert done.code == 0


def test_the_doctor_without_a_database(terminal: Terminal) -> None:
    """Nothing is stored by looking; a damaged database is told, not a traceback."""
    done = terminal.run("doctor")
    assert done.code == 0
    assert "not examined: sessions: there is no" in done.out
    assert not terminal.data.exists()
    terminal.data.mkdir(mode=0o700)
    (terminal.data / "kedge.db").write_bytes(b"not a database " * 1000)
    (terminal.data / "kedge.db").chmod(0o600)
    done = terminal.run("doctor")
    assert done.code == 3
    assert "error database-unusable" in done.out


def test_space(used: Terminal) -> None:
    """What takes space is told by session, and freed on request."""
    done = used.run("gc")
    assert done.code == 0
    assert str(used.project) in done.out
    assert "Write: the session can be reverted (" in done.out
    [project] = json.loads(used.run("gc", "--json").out)
    assert {"freed", "young", "held"} <= project.keys()
    done = used.run("gc", "--yes")
    assert done.code == 0
    assert "freed" in done.out


def test_a_backup_and_back(used: Terminal, tmp_path: Path) -> None:
    """What is restored is used at once, and undo works in it."""
    done = used.run("backup", "create", str(tmp_path / "b.tar"))
    assert done.code == 0, done.err
    assert used.run("backup", "create", str(tmp_path / "b.tar")).code == 1
    assert used.run("backup", "restore", str(tmp_path / "b.tar")).code == 1
    copy = str(tmp_path / "copy")
    done = used.run("backup", "restore", str(tmp_path / "b.tar"), "--data", copy, "--json")
    assert done.code == 0, done.out + done.err
    assert json.loads(done.out)["healthy"] is True
    assert used.run("undo", "--yes", "--data", copy).code == 0
    assert not (used.project / "a.txt").exists()


def test_every_finding_is_described() -> None:
    """The page has a row for each kind, with its words."""
    page = (DOCS / "operations.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page, re.MULTILINE))
    assert rows == {
        code: " | ".join([kind.severity, kind.why, kind.do])
        + (f"; repair: {kind.repair}" if kind.repair else "")
        for code, kind in KINDS.items()
    }
