"""`kedge run`, typed by a person and in scripts."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.projects import prompts
from tests.cli.terminal import Done, Terminal, command
from tests.support.timeouts import PATIENCE


def sessions(terminal: Terminal) -> list[str]:
    """The ids of the sessions in the project."""
    return [line.split("\t")[0] for line in terminal.run("sessions").out.splitlines()]


def piped(terminal: Terminal, *arguments: str, text: str) -> Done:
    """Run a command with a text at its standard input."""
    done = subprocess.run(
        command(arguments),
        cwd=terminal.project,
        env=terminal.environ,
        input=text,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def rules(terminal: Terminal, **permission: object) -> None:
    """Configure permissions."""
    (terminal.project / "kedge.json").write_text(json.dumps({"permission": permission}))


def test_a_person_watches(terminal: Terminal) -> None:
    """What is called and changed, and in the end the files and how to undo."""
    script = "write a.txt one\nbash cat a.txt\nsay It is written."
    with terminal.keyboard("run", script) as keyboard:
        done = keyboard.end()
    assert done.code == 0
    shown = done.out.replace("\r", "\n")
    for line in ("● write a.txt\n  +one\n", "● bash cat a.txt\n  one\n", "It is written.\n"):
        assert line in shown
    end = r"✓ 1 file changed  .* tokens · session [0-9a-f]{8}\n  \+  a.txt  \+1\n"
    assert re.search(end, shown)
    assert "kedge undo takes it back, kedge diff shows it" in shown


def test_a_script_gets_the_answer_alone(terminal: Terminal) -> None:
    """All else is on standard error; what is piped in is the prompt, or is added to it."""
    done = piped(terminal, "run", text="write a.txt one\nsay It is written.")
    assert (done.code, done.out) == (0, "It is written.\n")
    assert "● write a.txt" in done.err
    done = piped(terminal, "run", "-c", "say One.", text="say Two.")
    assert (done.code, done.out) == (0, "One.\nTwo.\n")
    assert len(sessions(terminal)) == 1


def test_json_for_programs(terminal: Terminal) -> None:
    """One document a line, with all that happened; in the end the result."""
    done = terminal.run("run", "--format", "json", "write a.txt one\nsay Done.")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["type"] for line in lines] == [
        *("step_start", "tool_use", "step_finish"),
        *("step_start", "text", "step_finish", "result"),
    ]
    assert [file["file"] for file in lines[-1]["files"]] == ["a.txt"]
    assert {line["sessionID"] for line in lines} == set(sessions(terminal))


async def test_which_session_answers(terminal: Terminal) -> None:
    """A new one, one by its id, the last one, or a fork of one."""
    first = await prompts(terminal, "say 1")
    terminal.run("run", "--title", "Second", "say 2")
    terminal.run("run", "--session", first[4:12], "say 3")
    done = terminal.run("run", "--continue", "--fork", "say 4")
    assert (done.code, done.out) == (0, "4\n")
    listed = json.loads(terminal.run("sessions", "--json").out)
    assert [each["title"] for each in listed] == ["Two files (fork #1)", "Two files", "Second"]
    turns = terminal.run("log").out.splitlines()
    assert [line.split("\t")[1] for line in turns] == ["say 1", "say 3", "say 4"]
    assert len(terminal.run("log", first).out.splitlines()) == 2


def test_model_agent_and_files(terminal: Terminal) -> None:
    """They are named with the prompt; a file or a folder is attached."""
    (terminal.project / "notes.txt").write_text("remember me")
    words = ("--model", "kedge/offline", "--agent", "plan", "-f", "notes.txt", "-f", ".", "say hi")
    assert terminal.run("run", *words).code == 0
    [turn] = json.loads(terminal.run("log", "--json").out)
    assert turn["prompt"]["info"]["agent"] == "plan"
    assert "remember me" in json.dumps(turn["prompt"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "no/such", "say x"), "Model not found: no/such"),
        (("--model", "nonsense", "say x"), "a model is named as provider/model"),
        (("--agent", "nobody", "say x"), "Agent not found: nobody"),
        (("--file", "missing", "say x"), "--file: there is no missing"),
    ],
)
def test_a_refused_prompt_leaves_nothing(
    terminal: Terminal, words: tuple[str, ...], said: str
) -> None:
    """No empty session, which would be taken for the last one."""
    done = terminal.run("run", *words)
    assert done.code == 1
    assert said in done.err
    assert sessions(terminal) == []


def test_rules_decide_where_nobody_can(terminal: Terminal) -> None:
    """What they do not allow is refused; it is said how to allow it."""
    rules(terminal, bash={"*": "ask", "echo *": "allow"})
    done = terminal.run("run", "bash echo yes\nbash touch no.txt")
    assert done.code == 3
    assert "note: refused: bash touch no.txt" in done.err
    assert 'add to opencode.json: "permission": {"bash": {"touch *": "allow"}}' in done.err
    assert "● bash echo yes\n  yes\n" in done.err
    assert not (terminal.project / "no.txt").exists()
    done = terminal.run("run", "ask Which? | a | b")
    assert done.code == 3
    assert "not answered: Which?" in done.err


def test_a_person_is_asked(terminal: Terminal) -> None:
    """Yes, for this run, for good, no with a reason; and questions by number."""
    rules(terminal, bash="ask")
    script = (
        'bash "echo 1\\necho 2"\n'
        "bash touch a\nbash touch b\nbash mkdir c\nask Which? | red | blue\nbash rm a"
    )
    typed = (
        ("May it bash?  echo 1\n    echo 2\n", b"y\n"),
        ("May it bash?  touch a", b"r\n"),
        ("May it bash?  mkdir c", b"a\n"),
        ("Which?", b"2\n"),
        ("May it bash?  rm a", b"keep it\n"),
    )
    with terminal.keyboard("run", script) as keyboard:
        for number, (asked, keys) in enumerate(typed, 1):
            keyboard.until(asked)
            keyboard.until_count("  > ", number)
            keyboard.type(keys)
        done = keyboard.end()
    assert done.code == 0
    assert "May it bash?  touch b" not in done.out
    assert "keep it" in done.out
    assert (terminal.project / "a").exists()
    [allowed] = terminal.run("permissions").out.splitlines()
    assert allowed.split("\t")[1:3] == ["bash", "mkdir *"]
    assert terminal.run("permissions", "--revoke", allowed.split("\t")[0]).code == 0
    assert terminal.run("permissions").out == ""


def test_an_interruption_is_recorded(terminal: Terminal) -> None:
    """Ctrl-C ends the turn, says what changed so far, and the next prompt goes on."""
    with terminal.keyboard("run", "write a.txt one\nbash echo begun; sleep 1000") as keyboard:
        keyboard.until("… bash")
        keyboard.type(b"\x03")
        done = keyboard.end()
    assert done.code == 130
    assert "stopping; Ctrl-C again leaves at once" in done.out
    assert "✗ 1 file changed" in done.out
    assert terminal.run("run", "-c", "say on").out == "on\n"
    assert terminal.run("show", "--json").out.count('"type": "idle"') == 1


def test_a_folder_without_a_prompt(terminal: Terminal, tmp_path: Path) -> None:
    """Nothing to ask is a mistake of the command line; nothing is stored."""
    done = terminal.run("run")
    assert (done.code, done.out) == (2, "")
    assert "there is no prompt" in done.err
    assert not terminal.data.exists()


def test_a_session_that_is_at_work(terminal: Terminal) -> None:
    """A prompt is answered when it comes to that; a script gets its answer, and not the others."""
    asyncio.run(prompts(terminal, "say begun"))
    script = "bash until test -e on; do sleep 0.1; done"
    with terminal.keyboard("run", "-c", script) as one:
        one.until("… bash")
        two = subprocess.Popen(
            command(["run", "-c", "say two"]),
            cwd=terminal.project,
            env=terminal.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while "say two" not in terminal.run("log").out:
            pass
        (terminal.project / "on").touch()
        out, err = two.communicate(timeout=PATIENCE)
        done = one.end()
    assert (two.returncode, out) == (0, "two\n"), err
    assert "● bash" not in err
    assert (done.code, "● bash" in done.out) == (0, True)
