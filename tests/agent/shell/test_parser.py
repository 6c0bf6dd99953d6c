"""Every command of a line is found, or the line is not understood; bash itself is the judge."""

import os
import re
import subprocess
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given

from kedge.agent.shell.parser import commands, parse
from kedge.agent.shell.permissions import asked_of
from tests.agent.shell.lines import BITS, LINES, Known


def names_of(line: str) -> list[str]:
    """The names of the commands, assignments by the name of their variable."""
    return [
        re.split("[=+]", command.values[0])[0] if command.words else ""
        for command in parse(line).commands
        if command.text
    ]


def texts_of(line: str) -> list[str] | None:
    """The commands of a line, if it is understood."""
    found = commands(line)
    return None if found is None else [command.text for command in found if command.text]


@given(LINES)
def test_every_command_is_found(known: Known) -> None:
    """Wherever it stands, and however deep."""
    if ("case " in known.text or "export " in known.text) and not parse(known.text).is_certain:
        # The grammar gets lost in some cases, and options of a command inside the value of an
        # export are taken for those of the export; then a person is asked.
        return
    assert parse(known.text).is_certain, known.text
    assert sorted(names_of(known.text)) == sorted(known.names)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> "Judge":
    """A bash that runs nothing."""
    return Judge(tmp_path_factory.mktemp("judge"))


class Judge:
    """Tells which commands bash would run; there are none that it could find."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def runs(self, line: str) -> list[str]:
        """The names of the commands that bash looked for."""
        log = self._folder / str(next(self._numbers))
        log.touch()
        handler = '() { builtin printf "%s\\0" "$1" >> "$LOG"; return 127; }'
        env = {
            "PATH": "/nonexistent",
            "LOG": str(log),
            "BASH_FUNC_command_not_found_handle%%": handler,
        }
        quiet = subprocess.DEVNULL
        subprocess.run(
            ["/bin/bash", "-c", line],
            env=env,
            cwd=self._folder,
            check=False,
            timeout=60,
            stdin=quiet,
            stdout=quiet,
            stderr=quiet,
        )
        return [os.fsdecode(name) for name in log.read_bytes().split(b"\0")[:-1]]


@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="there is no bash here")
@given(line=BITS)
def test_what_is_understood_runs_nothing_else(judge: Judge, line: str) -> None:
    """Whatever a line consists of, bash runs no command that was not found in it."""
    # Two brackets would define a function, which may call itself for ever.
    if re.search(r"\(\s*\)", line) or not parse(line).is_certain:
        return
    assert set(map(os.path.basename, judge.runs(line))) <= set(map(os.path.basename, _all(line)))


def _all(line: str) -> list[str]:
    return [command.values[0] for command in parse(line).commands if command.words]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ls && rm -rf x", ["ls", "rm -rf x"]),
        ("echo `rm x`", ["echo `rm x`", "rm x"]),
        ("cat <<E\n$(rm x)\nE", ["cat", "rm x"]),
        ("cat <<'E' > f\n$(rm x)\nE", ["cat > f"]),
        ("cat <<E | rm x\ntext\nE", ["cat", "rm x"]),
        ("echo x > /etc/passwd", ["echo x > /etc/passwd"]),
        ("a | b > f", ["a", "b > f"]),
        ("a > f b c", ["a > f b c"]),
        ("> f rm x", ["> f rm x"]),
        ("> f", ["> f"]),
        ("{ a; } > f", ["a"]),
        ("{ a; } 2>&1 | b", ["a", "b"]),
        ("bash -c 'rm x; ls'", ["bash -c 'rm x; ls'", "rm x", "ls"]),
        ("bash -euc 'rm x'", ["bash -euc 'rm x'", "rm x"]),
        ("bash run.sh -c x", ["bash run.sh -c x"]),
        ("sudo -u root rm x", ["sudo -u root rm x", "rm x"]),
        ("env -i A=1 rm x", ["env -i A=1 rm x", "rm x"]),
        ("timeout -k 5 -- 10 rm x", ["timeout -k 5 -- 10 rm x", "rm x"]),
        ("xargs -0 -n 1 rm", ["xargs -0 -n 1 rm", "rm"]),
        ("nohup sudo rm x", ["nohup sudo rm x", "sudo rm x", "rm x"]),
        ("find . -exec rm {} +", ["find . -exec rm {} +", "rm {}"]),
        (r"find . -exec a {} \; -exec b \;", [r"find . -exec a {} \; -exec b \;", "a {}", "b"]),
        ("eval 'rm x'", ["eval 'rm x'", "rm x"]),
        ("trap 'rm x' EXIT", ["trap 'rm x' EXIT", "rm x"]),
        ("trap - EXIT", ["trap - EXIT"]),
        ("watch -n1 'rm x'", ["watch -n1 'rm x'", "rm x"]),
        ("command -v rm", ["command -v rm"]),
        ("PATH=/tmp; ls", ["PATH=/tmp", "ls"]),
        ("x=1 y=2", ["x=1 y=2"]),
        ("unset x", ["unset x"]),
        ("# rm x", []),
        ("[ -f x ]", []),
    ],
)
def test_what_is_found(line: str, found: list[str]) -> None:
    """Commands as they are written, those that a command runs after it."""
    assert texts_of(line) == found


@pytest.mark.parametrize(
    "line",
    [
        "echo 'unterminated",
        "echo $(",
        "$X y",
        "${X} y",
        "$(echo rm) x",
        "{rm,-rf,x}",
        "/bin/r? x",
        r"$'\x72m' x",
        'eval "$X"',
        'bash -c "$X"',
        "sudo $X",
        "env -S 'rm x'",
        "xargs $X",
        "find . -exec $X {} +",
        "trap $X EXIT",
        "time { rm x; }",
        "coproc rm x",
        # What the grammar does not see as bash does.
        "ls\n\\rm x",
        "ls # c\n\\rm x",
        "r\\\nm x",
        "'l's\\\nx",
        "echo ${x:=`rm y`}",
        "cat <<E\n`rm x`\nE",
        "echo `echo \\`rm x\\``",
        "ls\r\nrm x",
        "cat <<E\nE x\nls '\nE\nrm x\n#'",
        "ls \\ #\nrm x",
        "x=\\\n rm y",
        # Too much of it.
        "ls " + "x" * 20_000,
        "eval " * 20 + "rm x",
        "a|" * 2000,
    ],
)
def test_what_is_not_understood(line: str) -> None:
    """Better to ask once too often."""
    assert commands(line) is None


@pytest.mark.parametrize(
    "bit",
    [
        *("$(", "(", ")", "`", "{ ", "a;", "a&&", "a|", "a>", ">", "((a", "(a)", "$[", "${", "a=("),
        *("<<E\n", "cat <<E\nE\n", '"$(', "if a;then ", "case x in ", "\\\n", '"$(a)" ', "eval "),
    ],
)
def test_size_and_depth_are_no_danger(bit: str) -> None:
    """Neither for the stack nor for memory nor for the patience of whoever waits."""
    for size in (2000, 16_000, 100_000):
        asked_of(bit * (size // len(bit)), parse(bit * (size // len(bit))))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (r"a\ b", "a b"),
        (r"r\m", "rm"),
        ("'a b'", "a b"),
        (r'"a \"b\" \x"', r'a "b" \x'),
        ("r'm'\"x\"", "rmx"),
        ("'$x'", "$x"),
        ("a=b", "a=b"),
    ],
)
def test_words_without_their_quotes(source: str, value: str) -> None:
    """What a program would be given."""
    (command,) = parse(f"x {source}").commands
    assert command.words[1].is_fixed
    assert command.values[1] == value


@pytest.mark.parametrize(
    "line",
    [
        r"printf '\056\056/x' | xargs cat",
        "printf %c%c%s . . /x | xargs cat",
        "grep . list.txt | xargs cat",
        "ls x | sed 's|.*|../y|' | xargs cat",
        "ls x | sed 's|.*|../y|' | sort | xargs cat",
        "git log -1 --format=%x2e%x2e/x | xargs cat",
        "find . | awk '{print $2}' | head | xargs -n1 rm",
    ],
)
def test_names_that_a_pipe_makes_up(line: str) -> None:
    """They may be any, whatever its first program is."""
    assert not parse(line).is_certain


@pytest.mark.parametrize(
    "line",
    [
        "find . -name x -print0 | xargs -0 rm",
        "git ls-files | grep x | sort | head -3 | xargs cat",
        "grep -rl x src | xargs cat",
        "rg -l x | xargs cat",
        r"printf 'a\nb\n' | xargs cat",
        r"printf '%s\n' a b | xargs cat",
        "ls | grep -v x | xargs rm -r",
        "git diff --name-only | xargs cat",
    ],
)
def test_names_that_a_pipe_lists(line: str) -> None:
    """They are below."""
    assert parse(line).is_certain
