"""What rules are asked about a line, and what they then say."""

from collections.abc import Sequence

import pytest

from kedge.agent.shells.parsing import parse
from kedge.agent.shells.rules import Asked, asked_of
from kedge.domain.permission_rules import UNCERTAIN, Rulebook, decide
from kedge.domain.permissions import PermissionAction, PermissionRule


def asked(line: str) -> Asked:
    """What is asked about a line."""
    return asked_of(line, parse(line))


def decided(line: str, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> PermissionAction:
    """What rules say of a line: the strictest of what they say of its patterns."""
    rules = [
        PermissionRule(permission="bash", pattern=pattern, action="allow") for pattern in allow
    ]
    rules += [PermissionRule(permission="bash", pattern=pattern, action="deny") for pattern in deny]
    actions = {decide("bash", pattern, rules).action for pattern in asked(line).patterns}
    strictness: list[PermissionAction] = ["deny", "ask", "allow"]
    return next(each for each in strictness if each in actions)


@pytest.mark.parametrize(
    "line",
    [
        "ls && rm -rf x",
        "ls; rm x",
        "ls | rm x",
        "ls $(rm x)",
        "ls `rm x`",
        "ls <(rm x)",
        "ls\n\\rm x",
        "ls 'open",
        "bash -c 'ls; rm x'",
        "ls() { rm x; }; ls",
        "PATH=. ls",
        "export PATH=.; ls",
        "./ls",
        "$X ls",
        "sudo ls",
        "env ls",
    ],
)
def test_a_rule_for_one_command_allows_no_other(line: str) -> None:
    """`ls *` allows `ls` and nothing that hides behind it."""
    assert decided(line, allow=["ls *"]) == "ask"


@pytest.mark.parametrize(
    "line",
    ["ls", "ls -la | ls", "ls > f", "ls 'a b' \"c\"", "(ls; ls x)", "for x in a; do ls $x; done"],
)
def test_a_rule_for_a_command_allows_it(line: str) -> None:
    """However often, and wherever in the line."""
    assert decided(line, allow=["ls *"]) == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "rm x",
        "'rm' x",
        r"\rm x",
        'r"m" x',
        "/bin/rm x",
        "A=1 rm x",
        "sudo rm x",
        "env A=1 nice rm x",
        "echo x | xargs rm",
        "find . -exec rm {} +",
        "bash -c 'rm x'",
        "eval rm x",
        "if true; then rm x; fi",
        "rm   x",
        "> f rm x",
        "rm x; echo 'open",
        "((rm x); (ls))",
        "if ! rm x; then 'open",
        "rm x;" + "x" * 20_000,
    ],
)
def test_a_denied_command_is_denied_in_every_disguise(line: str) -> None:
    """Also where everything else is allowed, and where the line is not understood."""
    assert decided(line, allow=["*"], deny=["rm *"]) == "deny"


def test_what_is_not_understood_is_asked_about() -> None:
    """Only a rule for everything allows it, and nothing is allowed for good by it."""
    line = "echo $("
    assert asked(line) == Asked((UNCERTAIN + line, "echo", "echo $"), ())
    assert decided(line, allow=["echo *"]) == "ask"
    assert decided(line, allow=["*"]) == "allow"


@pytest.mark.parametrize("line", ["x=rm; $x -rf y", "echo `echo \\`rm x\\``", "cat x | sh"])
def test_what_is_not_understood_could_be_what_is_denied(line: str) -> None:
    """So it is asked about where anything is denied or asked for, unless that was taken back."""
    everything = PermissionRule(permission="*", pattern="*", action="allow")
    denied = PermissionRule(permission="bash", pattern="rm *", action="deny")
    elsewhere = PermissionRule(permission="read", pattern="x", action="deny")
    text = UNCERTAIN + line
    assert text in asked(line).patterns
    assert Rulebook(((everything, elsewhere),)).decide("bash", text).action == "allow"
    assert Rulebook(((everything, denied),)).decide("bash", text).action == "ask"
    assert Rulebook(((everything,), (denied,))).decide("bash", text).action == "ask"
    assert Rulebook(((everything,),), ((denied,),)).decide("bash", text).action == "ask"
    assert Rulebook(((denied,), (everything,))).decide("bash", text).action == "allow"


@pytest.mark.parametrize("permission", ["edit", "external_directory"])
def test_what_is_not_understood_could_write_and_leave(permission: str) -> None:
    """Where that is denied, a person is asked; not where only some of it is."""
    everything = PermissionRule(permission="*", pattern="*", action="allow")
    text = UNCERTAIN + "cat x | sh"
    narrow = PermissionRule(permission=permission, pattern="*.lock", action="deny")
    assert Rulebook(((everything, narrow),)).decide("bash", text).action == "allow"
    assert Rulebook(((everything, narrow),)).decide("edit", text).action == (
        "ask" if permission == "edit" else "allow"
    )
    exception = PermissionRule(permission=permission, pattern="x", action="allow")
    for pattern in ("*", "/*"):
        denied = PermissionRule(permission=permission, pattern=pattern, action="deny")
        asking = PermissionRule(permission=permission, pattern=pattern, action="ask")
        assert Rulebook(((everything, denied),)).decide("bash", text).action == "ask"
        assert Rulebook(((everything, denied, exception),)).decide("bash", text).action == "ask"
        assert Rulebook(((everything,),), ((denied,),)).decide("bash", text).action == "ask"
        assert Rulebook(((denied, everything),)).decide("bash", text).action == "allow"
        assert Rulebook(((everything, asking),)).decide("bash", text).action == "allow"


def test_a_line_without_commands_is_asked_about() -> None:
    """It has nothing that a rule could name."""
    assert asked("# nothing").patterns == (UNCERTAIN + "# nothing", "# nothing")


@pytest.mark.parametrize(
    ("line", "always"),
    [
        ("echo x > f", ["echo *"]),
        ("rm -rf x", ["rm *"]),
        ("git checkout -b x", ["git checkout *"]),
        ("git stash pop", ["git stash pop *"]),
        ("git -C x push", ["git -C x push"]),
        ("git", ["git"]),
        ("npm run build -- -v", ["npm run build *"]),
        ("python -c 'x y'", ["python -c 'x y'"]),
        ("python run.py 1", ["python run.py *"]),
        ("aws s3 ls", ["aws s3 ls *"]),
        ("A=1 make all x", ["A=1 make all *", "make all *"]),
        ("/bin/ls x", ["/bin/ls *", "ls *"]),
        ("ls a; ls b", ["ls *"]),
        ("git $x", ["git $x"]),
        ("X=1", ["X=1"]),
        # What it does is not in its words,
        ("python3 <<'E'\nprint(1)\nE", []),
        ("python3 - <<'E'\nprint(1)\nE", []),
        ("python3", []),
        ("python3 -", []),
        ("python3 < x", []),
        ("cat x | python3 y", ["cat *"]),
        ("cat x | (ls; node)", ["cat *", "ls *"]),
        ("psql <<< 'drop table x'", []),
        ("cat x | sh", []),
        # or would mean others as a pattern.
        ("python3 -c 'print(2*3)'", ["(exactly) python3 -c 'print(2*3)'"]),
        ("git 'st*' x", ["(exactly) git 'st*' x"]),
        ("X='*' ls", ["(exactly) X='*' ls", "ls *"]),
        ("sed 's/a.*e/b/e' f", ["(exactly) sed 's/a.*e/b/e' f"]),
        ("find . -name '*.pyc' -delete", ["(exactly) find . -name '*.pyc' -delete"]),
        # Scripts that only print what they read,
        ("sed -n '1,40p' f", ["sed *"]),
        ("sed 's/a.*//' f", ["sed *"]),
        ("awk '{print $1}' f", ["awk *"]),
        ("cat f | awk '{print $1}'", ["cat *"]),
        # not others, nor those that nobody reads.
        ("sed -i s/a/b/ f", ["sed -i s/a/b/ f"]),
        ("awk '{print > \"f\"}' g", ["awk '{print > \"f\"}' g"]),
        ("uv run awk 1 f", ["uv run awk 1 *"]),
        ("uv run sed p f", ["uv run sed p *"]),
        ("command -v rg", ["command -v *"]),
        ("docker compose ps", ["docker compose ps *"]),
        ("docker compose logs api", ["docker compose logs *"]),
        ("docker compose exec c ls", ["docker compose exec c ls"]),
        ("docker container run i ls", ["docker container run i ls"]),
        ("docker --context x run i ls", ["docker --context x run i ls"]),
        ("docker build -t a .", ["docker build *"]),
        ("PYTHONPATH=src pytest a", ["PYTHONPATH=src pytest *", "pytest *"]),
        ("PYTHONPATH=/x pytest a", ["PYTHONPATH=/x pytest a", "pytest *"]),
        (
            "CARGO_TERM_COLOR=never cargo test",
            ["CARGO_TERM_COLOR=never cargo test *", "cargo test *"],
        ),
        ("cmake -DCMAKE_BUILD_TYPE=Debug", ["cmake *"]),
    ],
)
def test_what_is_allowed_for_good(line: str, always: list[str]) -> None:
    """The words that tell what a command does, with any arguments after them."""
    assert list(asked(line).always) == always


@pytest.mark.parametrize(
    "line",
    [
        "ls -la",
        "git push origin",
        "A=1 make all x",
        "/bin/ls x",
        "echo 'a b' > f",
        "X=1",
        "sed 's/a.*/b/e' f",
        "X='*' ls",
    ],
)
def test_what_was_allowed_for_good_is_not_asked_again(line: str) -> None:
    """Whatever was allowed for a line allows that line."""
    assert decided(line, allow=asked(line).always) == "allow"
