"""The command itself: help, versions, mistakes, interruptions."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from time import perf_counter

import pytest

from kedge._version import __version__
from kedge.cli import config
from kedge.cli.commands import COMMANDS, CommandEntry
from kedge.cli.main import main, module_of, parser_of
from kedge.domain.errors import InvariantBroken
from tests.cli.terminal import Terminal, command

ROOT = Path(__file__).parents[2]


def test_the_help_teaches(terminal: Terminal) -> None:
    """It has a line about each command, and fits a terminal."""
    done = terminal.run("--help")
    assert (done.code, done.err) == (0, "")
    for each in COMMANDS:
        assert f"  {each.name} " in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    assert terminal.run("help").out == terminal.run("-h").out == done.out
    assert terminal.run("help", "trust").out == terminal.run("trust", "--help").out


@pytest.mark.parametrize("each", COMMANDS, ids=lambda each: each.name)
def test_every_command_has_help(each: CommandEntry, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what the command does, and describes every option."""
    parser = parser_of(each, module_of(each))
    parser.print_help()
    assert module_of(each).ABOUT.strip() in capsys.readouterr().out
    assert [action.dest for action in parser._actions if not action.help] == []


def test_the_version(terminal: Terminal) -> None:
    """It is the package's own."""
    assert terminal.run("--version").out == f"kedge {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nonsense",), 2, "there is no command nonsense; `kedge --help` lists them"),
        (("session",), 2, "did you mean sessions?"),
        (("a\x1b[2Jb",), 2, "no command a\\x1b[2Jb"),
        (("sessions", "--limit", "0"), 2, "'0' is not a number from 1 on"),
        (("sessions", "--lim", "1"), 2, "unrecognized arguments: --lim"),
        (("-C", "/no/such", "sessions"), 1, "Directory not found: /no/such"),
        (("--data=x", "backup", "restore", "no"), 1, "there is no /"),
        (("-C",), 2, "expected one argument"),
        (("show", ""), 1, "a session has an id"),
        (("run", "-c", "--title", "a", "say x"), 2, "--title is for a new session"),
        (("sessions", "word", "--deleted"), 2, "words are searched for in all sessions"),
        (("sessions", "--archived", "--deleted"), 2, "not allowed with"),
        (("diff", "1", "--all"), 2, "give a TURN, --all or --undone"),
        (("diff", "--until", "2"), 2, "--until needs the TURN"),
        (("undo", "nothing"), 1, "there is no session nothing; `kedge sessions` lists them"),
        (("undo",), 1, "there is no session in"),
        (("trust", "--list", "--revoke"), 2, "not allowed with"),
        (("config", "/no/such/folder"), 1, "kedge: Directory not found: /no/such/folder"),
        (("config", "/no/such/folder"), 1, "name a folder that exists, or create it"),
        (("serve", "--nonsense"), 2, "usage: kedge serve "),
        (("serve", "--nonsense", "."), 2, "kedge serve: unrecognized arguments: --nonsense"),
        (("serve", ""), 1, "kedge: the directory is an empty text; this folder is '.'"),
        (
            ("serve", "--hostname", "no.such.invalid"),
            1,
            "no.such.invalid is not an address of this",
        ),
        (("config", "--database", "mysql://x"), 1, "mysql:// is not a database kedge knows"),
        (("config", "--data", "/proc/nowhere"), 1, "choose another with KEDGE_DATA_DIR"),
        (("config", "a\x1b[2Jb"), 1, "Directory not found: a\\x1b[2Jb"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    terminal: Terminal, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """A mistake is one sentence on the error stream, and the exit code says so."""
    done = terminal.run(*arguments)
    assert done.code == code
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_bug_shows_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Only what a bug raises comes with its traceback."""

    def broken(options: object) -> int:
        raise InvariantBroken("two heads")

    monkeypatch.setattr(config, "run", broken)
    with pytest.raises(InvariantBroken):
        main(["config", str(tmp_path)])
    assert capsys.readouterr().err == "kedge: two heads\n"


def test_an_interruption_is_clean(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is told in two words, and the exit code is the one that shells know."""

    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(config, "run", interrupted)
    assert main(["config", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "kedge: interrupted\n"


def test_whoever_reads_may_stop_early(terminal: Terminal) -> None:
    """A closed pipe ends the command without complaint."""
    # More than a pipe takes at once.
    folder = terminal.home / ".config" / "kedge"
    folder.mkdir(parents=True)
    (folder / "kedge.json").write_text('{"x": "' + "y" * 200_000 + '"}')
    with subprocess.Popen(
        command(["config"]),
        cwd=terminal.project,
        env=terminal.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 141


def test_the_help_takes_hardly_longer_than_python(terminal: Terminal) -> None:
    """At most four times as long as a program that does nothing, in the best of a few runs."""

    def best(arguments: list[str]) -> float:
        times = []
        for _ in range(7):
            began = perf_counter()
            subprocess.run(arguments, env=terminal.environ, capture_output=True, check=True)
            times.append(perf_counter() - began)
        return min(times)

    nothing = best([sys.executable, "-c", "pass"])
    assert best(command(["--help"])) < 4 * nothing


def test_the_console_script_is_there() -> None:
    """What pyproject.toml names can be called."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["kedge"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_the_process_leaves_without_taking_the_interpreter_down(terminal: Terminal) -> None:
    """Threads of the HTTP server that still want it would abort the process."""
    code = (
        "import atexit, os, sys; from kedge.cli.main import run; atexit.register(os._exit, 77);"
        "sys.argv = ['kedge', 'config']; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=terminal.project,
        env=terminal.environ,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"\n")


def test_a_folder_that_is_gone(terminal: Terminal) -> None:
    """Where a shell may still be that was in it."""
    (terminal.project / "gone").mkdir()
    line = f"cd gone; rmdir ../gone; exec {sys.executable} -m kedge sessions"
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=terminal.project,
        env=terminal.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "kedge: this folder does not exist any more; go to another one" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_can_be_interrupted() -> None:
    """They run their work by `run_async`, which Ctrl-C ends; the server has its own way."""
    own = {"event_loop.py", "serve.py"}
    modules = [each for each in (ROOT / "src/kedge/cli").glob("*.py") if each.name not in own]
    assert len(modules) > len(COMMANDS)
    assert [each.name for each in modules if "asyncio.run(" in each.read_text()] == []
