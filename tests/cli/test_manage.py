"""Commands that change sessions: by themselves, beside a server, two at once, on PostgreSQL."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import kedge
from kedge import Agent
from tests.cli.projects import prompts
from tests.cli.terminal import Terminal, command
from tests.cli.test_serve import Server, started


def titles(terminal: Terminal, *options: str) -> list[str]:
    """The titles of the sessions that are listed."""
    return [line.split("\t")[1] for line in terminal.run("sessions", *options).out.splitlines()]


async def test_sessions_come_and_go(terminal: Terminal) -> None:
    """Forked, archived, deleted, and back."""
    id = await prompts(terminal, "say one", "say two")
    fork = terminal.run("fork", "--before", "2")
    assert (fork.code, fork.out[:4]) == (0, "ses_")
    fork_id = fork.out.strip()
    assert len(terminal.run("log", fork_id).out.splitlines()) == 1
    assert terminal.run("archive", id).out == f"archived  {id[4:12]}  Two files\n"
    assert titles(terminal) == ["Two files (fork #1)"]
    assert titles(terminal, "--archived") == ["Two files"]
    assert terminal.run("archive", "--back", id[:14]).code == 0
    done = terminal.run("delete", fork_id)
    assert (done.code, "use a terminal or --yes" in done.err) == (5, True)
    done = terminal.talk("delete", fork_id, answer=b"y\n")
    assert (done.code, "kedge restore brings it back" in done.out) == (0, True)
    assert titles(terminal) == ["Two files"]
    assert terminal.run("restore", fork_id[4:]).code == 0
    assert sorted(titles(terminal)) == ["Two files", "Two files (fork #1)"]


async def test_any_turn_is_reverted_and_brought_back(terminal: Terminal) -> None:
    """By its number; after another prompt, what was undone is a tail that becomes a session."""
    await prompts(terminal, "write a.txt one", "write b.txt two", "write c.txt three")
    done = terminal.talk("revert", "2", answer=b"\n", question="[Y/n]")
    assert done.code == 0
    assert "- deleted  b.txt" in done.out
    assert "✓ reverted  kedge unrevert brings it back" in done.out
    assert sorted(each.name for each in terminal.project.iterdir()) == ["a.txt"]
    assert terminal.run("unrevert", "--yes").code == 0
    assert (terminal.project / "c.txt").exists()
    assert terminal.run("revert", "2", "--yes", "--json").code == 0
    assert terminal.run("run", "-c", "say on").code == 0
    [tail] = json.loads(terminal.run("tails", "--json").out)
    assert tail["messages"] == 6
    done = terminal.run("restore", tail["id"][:12], "--json")
    assert done.code == 0, done.err
    assert len(terminal.run("log", json.loads(done.out)["id"]).out.splitlines()) == 3


def test_clients_of_a_server_see_it_at_once(terminal: Terminal) -> None:
    """What commands beside it do reaches those who listen there."""
    with started(terminal, *command([])) as server:
        events = server.ask("GET", "/event")

        def heard(*words: str) -> None:
            for word in words:
                while word.encode() not in events.readline():
                    pass

        assert terminal.run("run", "write a.txt one").code == 0
        heard("session.created", '"tool":"write"', "session.idle")
        assert terminal.run("undo", "--yes").code == 0
        heard('"revert":{')
        assert terminal.run("archive", "last").code == 0
        heard('"archived":')
        assert terminal.run("delete", "last", "--yes").code == 1
        listed = terminal.run("sessions", "--archived").out
        assert terminal.run("delete", listed.split("\t")[0], "--yes").code == 0
        heard("session.deleted")


def test_what_runs_on_a_server_is_answered_and_stopped(terminal: Terminal) -> None:
    """A permission that waits there, and then the turn itself."""
    (terminal.project / "kedge.json").write_text('{"permission": {"bash": "ask"}}')
    with started(terminal, *command([])) as server:
        session = _ask(server, "bash touch a.txt\nbash sleep 1000")
        events = server.ask("GET", "/event")
        waiting = _waiting(terminal, 1)
        shown = terminal.run()
        assert waiting in shown.out
        assert server.line.split()[-1] in shown.out
        assert terminal.run("answer", waiting, "yes").out == "✓ answered\n"
        while b"permission.replied" not in events.readline():
            pass
        with terminal.keyboard("answer") as keyboard:
            keyboard.until("May it bash?  sleep 1000")
            keyboard.until("  > ")
            keyboard.type(b"y\n")
            assert keyboard.end().code == 0
        while b'"status":"running"' not in events.readline():
            pass
        done = terminal.run("abort", session)
        assert (done.code, done.out[:9]) == (0, "✓ stopped")
    assert (terminal.project / "a.txt").exists()


def _ask(server: Server, text: str) -> str:
    session: str = json.load(server.ask("POST", "/session", {}))["id"]
    body = {"parts": [{"type": "text", "text": text}]}
    assert server.ask("POST", f"/session/{session}/prompt_async", body).status == 204
    return session


def _waiting(terminal: Terminal, count: int) -> str:
    """What waits, once something does."""
    while True:
        listed = terminal.run("answer", "--list").out.splitlines()
        if len(listed) == count:
            return listed[0].split("\t")[0]


async def test_two_at_once(terminal: Terminal) -> None:
    """Of two that undo at the same time each undoes one turn, or says that the other one does."""
    await prompts(terminal, "write a.txt one", "write b.txt two")
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: terminal.run("undo", "--yes"), range(2)))
    assert all("Traceback" not in done.err for done in both)
    assert {done.code for done in both} <= {0, 1}
    undone = sum(done.code == 0 for done in both)
    assert undone >= 1
    while terminal.run("redo", "--yes").code == 0:
        pass
    assert sorted(each.name for each in terminal.project.iterdir()) == ["a.txt", "b.txt"]


@pytest.mark.parametrize("line", ["sessions", "log --full", "--help", "run say"])
def test_a_reader_that_goes_is_no_error(terminal: Terminal, line: str) -> None:
    """As in `kedge log | head -1`: the command ends without a word."""
    asyncio.run(prompts(terminal, "huge 100KB"))
    running = subprocess.Popen(
        command(line.split()),
        cwd=terminal.project,
        env=terminal.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    said = running.stderr.read()
    running.stderr.close()
    assert running.wait() in (0, 141)
    assert "Traceback" not in said
    assert "rror" not in said


def test_on_postgresql(terminal: Terminal, postgres_schema: str) -> None:
    """The same commands, where the rows are in PostgreSQL."""
    environ = {"KEDGE_DATABASE_URL": postgres_schema}
    assert "no sessions in this project yet" in terminal.run("sessions", environ=environ).err
    done = terminal.run("run", "write a.txt one", environ=environ)
    assert done.code == 0, done.err
    assert terminal.run("log", environ=environ).out.split("\t")[1] == "write a.txt one"
    assert terminal.run("undo", "--yes", environ=environ).out.startswith("deleted\ta.txt\t")
    with terminal.keyboard("redo", environ=environ) as keyboard:
        keyboard.until("[Y/n]")
        keyboard.type(b"\n")
        assert keyboard.end().code == 0
    assert (terminal.project / "a.txt").read_text() == "one\n"
    assert terminal.run("doctor", environ=environ).code == 0
    assert "Write a.txt one" in terminal.run("show", environ=environ).out
    done = terminal.run("backup", "create", "b.tar", environ=environ)
    assert (done.code, "pg_dump" in done.err) == (1, True)


FOR_PEOPLE = (
    "run -c x",
    "answer x yes",
    "trust --yes",
    "undo --yes",
    "redo --yes",
    "revert 1 --yes",
    "unrevert --yes",
    "fork",
    "delete last --yes",
    "restore x",
    "doctor --repair --yes",
    "gc --yes",
    "backup restore x",
)
"""What grants or destroys something."""


async def test_agents_are_refused(terminal: Terminal) -> None:
    """Inside of an agent's own call, a person has to decide; looking is free."""
    permission = {"bash": "allow", "external_directory": "allow"}
    config = terminal.home / ".config" / "kedge" / "kedge.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"permission": permission}))
    script = terminal.home / "script"
    program = f"{sys.executable} -m kedge --data {terminal.data}"
    lines = [f"{program} {each} < /dev/null; echo $?" for each in (*FOR_PEOPLE, "sessions")]
    script.write_text("\n".join(lines))
    async with (
        kedge.open(terminal.project, data_dir=terminal.data) as engine,
        Agent(engine, environ=terminal.environ) as agent,
    ):
        session = await engine.sessions.create("At work")
        await agent.prompt(session, "write a.txt one", model="kedge/offline")
        prompt = f"bash sh {script} > {terminal.home}/said 2> {terminal.home}/why"
        await agent.prompt(session, prompt, model="kedge/offline")
    *codes, listed, code = (terminal.home / "said").read_text().splitlines()
    assert codes == ["4"] * len(FOR_PEOPLE), (terminal.home / "why").read_text()
    assert (listed.split("\t")[1], code) == ("At work", "0")
    assert (terminal.project / "a.txt").read_text() == "one\n"


def test_what_is_not_protected_is_said(terminal: Terminal) -> None:
    """With the reason."""
    config = terminal.home / ".config" / "kedge" / "kedge.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"snapshot": false}')
    assert '○ not protected: the configuration says "snapshot": false' in terminal.run().out
