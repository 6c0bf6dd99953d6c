"""`kedge undo` and `kedge redo`, typed by a person, in scripts, and by an agent."""

import json
import sys

import pytest

import kedge
from kedge import Agent
from tests.cli.projects import prompts
from tests.cli.terminal import Terminal


def files(terminal: Terminal) -> dict[str, str]:
    """What lies in the project."""
    return {each.name: each.read_text() for each in terminal.project.iterdir() if each.is_file()}


async def test_a_person_undoes_and_redoes_turn_by_turn(terminal: Terminal) -> None:
    """Each undo goes one turn further back, each redo one forth; Enter means yes."""
    await prompts(terminal, "write a.txt one", "write b.txt two", "say done")
    done = terminal.talk("undo", answer=b"\n", question="[Y/n]")
    assert done.code == 0
    assert "undo say done in Two files" in done.out
    assert "no file is touched" in done.out
    done = terminal.talk("undo", answer=b"y\n", question="[Y/n]")
    assert "- deleted  b.txt" in done.out
    assert "✓ undone  kedge redo brings it back" in done.out
    assert files(terminal) == {"a.txt": "one\n"}
    assert terminal.run("undo", "--yes").code == 0
    assert files(terminal) == {}
    assert "there is no turn to undo" in terminal.run("undo").err
    assert terminal.run("redo", "--yes").out.splitlines()[0] == "recreated\ta.txt\t"
    assert files(terminal) == {"a.txt": "one\n"}
    assert terminal.run("redo", "--yes").code == 0
    assert terminal.run("redo", "--yes").code == 0
    assert files(terminal) == {"a.txt": "one\n", "b.txt": "two\n"}
    done = terminal.run("redo")
    assert (done.code, "nothing is undone in this session" in done.err) == (1, True)


async def test_a_no_changes_nothing(terminal: Terminal) -> None:
    """A person who says no, and a script that cannot be asked, see what would be done."""
    await prompts(terminal, "write a.txt one")
    done = terminal.talk("undo", answer=b"n\n", question="[Y/n]")
    assert (done.code, "nothing was changed" in done.out) == (5, True)
    done = terminal.run("undo")
    assert (done.code, done.out) == (5, "deleted\ta.txt\t\n")
    assert "use a terminal or --yes" in done.err
    done = terminal.run("undo", "--dry-run", "--json")
    assert done.code == 0
    assert json.loads(done.out)["applied"] is False
    assert files(terminal) == {"a.txt": "one\n"}


async def test_what_stays_is_in_the_exit_code(terminal: Terminal) -> None:
    """A conflict is named, and the script learns that not all was undone."""
    await prompts(terminal, "write a.txt one", "write b.txt two\nwrite c.txt three\nwrite a.txt 1")
    (terminal.project / "a.txt").write_text("mine\n")
    done = terminal.run("undo", "--yes", "--json")
    assert done.code == 3
    outcomes = {each["path"]: each["outcome"] for each in json.loads(done.out)["files"]}
    assert outcomes == {"a.txt": "conflict", "b.txt": "deleted", "c.txt": "deleted"}
    assert terminal.run("redo", "--yes").code == 0
    assert terminal.run("undo", "--yes", "--strategy", "abort").code == 3
    assert files(terminal)["b.txt"] == "two\n"
    assert terminal.run("undo", "--yes", "--strategy", "overwrite").code == 0
    assert files(terminal) == {"a.txt": "one\n"}


async def test_some_files_only(terminal: Terminal) -> None:
    """Files are named as seen from where the command is run."""
    # A repository, so that the folder below belongs to the same project.
    (terminal.project / ".git" / "objects").mkdir(parents=True)
    (terminal.project / ".git" / "refs").mkdir()
    (terminal.project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (terminal.project / "below").mkdir()
    await prompts(terminal, "write below/a.txt one\nwrite b.txt two")
    done = terminal.run("undo", "-C", "below", "--yes", "--files", "a.txt", "--only", "files")
    assert (done.code, done.out.splitlines()[0]) == (0, "deleted\tbelow/a.txt\t")
    assert files(terminal) == {"b.txt": "two\n"}


async def test_a_large_undo_can_be_read(terminal: Terminal) -> None:
    """What is left alone comes first, and the rest is counted; a script gets all of it."""
    script = "for n in $(seq 100); do echo $n > file$n; done"
    await prompts(terminal, f"bash {script}\nwrite z.txt one")
    (terminal.project / "z.txt").write_text("mine\n")
    done = terminal.talk("undo", answer=b"n\n", question="[Y/n]")
    first = next(line for line in done.out.splitlines() if line.startswith("  "))
    assert first.split()[:3] == ["!", "conflict", "z.txt"]
    assert "  … and 61 deleted; --json has all" in done.out
    assert len(terminal.run("undo", "--dry-run").out.splitlines()) == 101


async def test_a_session_is_named_by_its_beginning(terminal: Terminal) -> None:
    """With or without its prefix; what is not clear is asked about."""
    first = await prompts(terminal, "write a.txt one")
    second = await prompts(terminal, "write b.txt two")
    assert terminal.run("undo", first[4:14], "--yes").code == 0
    assert files(terminal) == {"b.txt": "two\n"}
    done = terminal.run("undo", "ses_", "--yes")
    assert done.code == 1
    assert all(id[4:12] in done.err for id in (first, second))
    # An undo is a use.
    assert f"({first[4:12]})" in terminal.run("redo", "last", "--dry-run").err


async def test_a_hostile_title_is_shown_as_text(terminal: Terminal) -> None:
    """Nothing in it clears the screen or pretends to be another line."""
    async with kedge.open(terminal.project, data_dir=terminal.data) as engine:
        await engine.sessions.create("\x1b[2J\x1b]0;owned\x07\rall is well\u202e\n\u3000漢字")
    for done in (terminal.run("sessions"), terminal.talk("sessions", answer=b"", question="title")):
        assert "\\x1b[2J\\x1b]0;owned\\x07 all is well\\u202e  漢字" in done.out
        assert "\x07" not in done.out


@pytest.mark.parametrize("trick", ["kedge {}", "env -i HOME=/ kedge {}", "setsid -w kedge {}"])
async def test_an_agent_cannot_undo(terminal: Terminal, trick: str) -> None:
    """Commands of an agent are told that a person has to; the files stay."""
    program = f"{sys.executable} -m kedge"
    data = f"--data {terminal.data}"
    await prompts(terminal, "write a.txt one")
    line = trick.format(f"undo last --yes {data}").replace("kedge", program, 1)
    allow = json.dumps({"permission": {"bash": "allow", "external_directory": "allow"}})
    (terminal.home / ".config" / "kedge").mkdir(parents=True)
    (terminal.home / ".config" / "kedge" / "kedge.json").write_text(allow)
    async with (
        kedge.open(terminal.project, data_dir=terminal.data) as engine,
        Agent(engine, environ=terminal.environ) as agent,
    ):
        session = (await engine.sessions.list()).sessions[0]
        prompt = f"bash {line} > said.txt 2>&1; echo $? >> said.txt"
        await agent.prompt(session, prompt, model="kedge/offline")
    said = (terminal.project / "said.txt").read_text().splitlines()
    assert said[0].startswith(
        "kedge: kedge undo is for people: this runs inside of an agent's call"
    )
    assert said[1] == "4"
    assert files(terminal)["a.txt"] == "one\n"


async def test_chosen_calls_go_and_come_back(terminal: Terminal) -> None:
    """They are named by their numbers, by ids, by turns or by files; the last turn is not meant."""
    await prompts(terminal, "write a.txt one\nwrite b.txt two", "write c.txt three")
    log = terminal.run("log", "--full").out
    assert [line.split()[-1] for line in log.splitlines() if line.startswith("●")] == [
        "1.1",
        "1.2",
        "2.1",
    ]
    done = terminal.talk("undo", "--calls", "1.2", answer=b"\n", question="[Y/n]")
    assert done.code == 0
    assert "undo 1 call in Two files" in done.out
    assert "- deleted  b.txt" in done.out
    assert "✓ undone  kedge redo with the same options brings it back" in done.out
    assert files(terminal) == {"a.txt": "one\n", "c.txt": "three\n"}
    assert "1.2  undone" in terminal.run("log", "--full").out
    done = terminal.run("redo", "--calls", "1.2", "--dry-run", "--json")
    assert json.loads(done.out)["applied"] is False
    assert terminal.run("redo", "--calls", "1.2", "--yes").out.splitlines()[0] == (
        "recreated\tb.txt\t"
    )
    assert terminal.run("undo", "--turns", "1", "--yes").code == 0
    assert files(terminal) == {"c.txt": "three\n"}
    assert terminal.run("redo", "--all", "--files", "a.txt", "--yes").code == 0
    assert files(terminal) == {"a.txt": "one\n", "c.txt": "three\n"}
    assert terminal.run("undo", "--all", "--yes", "--strategy", "abort").code == 0
    assert files(terminal) == {}
    done = terminal.run("undo", "--all", "--yes")
    assert (done.code, "it is undone already" in done.err) == (0, True)


async def test_calls_that_are_not_meant_are_refused(terminal: Terminal) -> None:
    """With words that help; and nothing is changed."""
    await prompts(terminal, "write a.txt one\nwrite b.txt two")
    for words, said in (
        (("undo", "--calls", "1.3"), "there is no call 1.3"),
        (("undo", "--calls", "prt_"), "may be 1.1, 1.2"),
        (("undo", "--turns", "7"), "there is no turn 7"),
        (("undo", "--all", "--calls", "1.1"), "leave out --calls"),
        (("undo", "--calls", "1.1", "--only", "files"), "--only is for turns"),
        (("redo", "--files", "a.txt"), "--files and --strategy are for calls"),
    ):
        done = terminal.run(*words, "--yes")
        assert (done.code, said in done.err) == (1, True), done.err
    assert terminal.run("undo", "--calls", "1.1").code == 5
    assert files(terminal) == {"a.txt": "one\n", "b.txt": "two\n"}
