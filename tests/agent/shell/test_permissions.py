"""What rules are asked about a line, and what they then say."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kedge.agent.shell.parser import SimpleCommand, parse
from kedge.agent.shell.permissions import AskedRules, asked_of, places
from kedge.domain.permissions import UNCERTAIN, PermissionAction, PermissionRule, Rulebook, decide


def asked(line: str) -> AskedRules:
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
    assert asked(line) == AskedRules((UNCERTAIN + line, "echo", "echo $"), ())
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


HERE = Path("/work/project")
HOME = str(Path.home())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("rm /etc/x", ["/etc/x"]),
        ("rm -rf ../x 'a b'", ["/work/x", "/work/project/a b"]),
        ("cat ~/x", [f"{HOME}/x"]),
        ('cat $HOME/x "${HOME}/y"', [f"{HOME}/x", f"{HOME}/y"]),
        ("cat $PWD/x", ["/work/project/x"]),
        ("cat $OTHER/x", []),
        ("cd", [HOME]),
        ("cd ..; rm x", ["/work", "/work/project/x", "/work/x"]),
        ("cd a && cat ../x", ["/work/project/a", "/work/x", "/work/project/x"]),
        ("echo x > /etc/y 2>&1 < z", ["/etc/y", "/work/project/z"]),
        ("echo x > /dev/null 2> /dev/stderr", []),
        ("{ a; } >> /etc/y", ["/etc/y"]),
        ("cp --target-directory=/etc x", ["/etc", "/work/project/x"]),
        ("dd if=/dev/zero of=/etc/x", ["/etc/x"]),
        ("grep /etc x", ["/etc"]),
        ("sed -n '/nothing-here/,/x/p' f", []),
        ("python run.py ../x --out=/etc/y", ["/work/x", "/etc/y"]),
        ("cat $'/etc/x'", ["/etc/x"]),
        ("cat <<E /etc/x\nE", ["/etc/x"]),
        ("cp -t/etc x", ["/etc", "/work/project/x"]),
        ("cp -t../y x", ["/work/y", "/work/project/x"]),
        ('ls > "/etc/$$"', ["/etc"]),
        ("cat /et*/x", ["/"]),
        ("git -C / status", ["/"]),
        ("find / -delete", ["/"]),
        ("env -C / cat x", ["/", "/work/project/x"]),
        ('for f in *.py; do cat "$f"; done', ["/work/project"]),
        ("sudo rm /etc/x", ["/etc/x"]),
        ("bash -c 'rm /etc/x'", ["/etc/x"]),
        ("echo $(cat /etc/x)", ["/etc/x"]),
        ("/bin/rm /etc/x", ["/etc/x"]),
        ("tee a/b=c", ["/work/project/a/b=c"]),
        ("cat {/etc/x,y}", ["/etc/x", "/work/project/y"]),
        ("for f in /nowhere/*; do cat $f; done", ["/nowhere"]),
        ("D=/etc; cat $D/x", ["/etc/x"]),
        ("D=/etc E=$D/x; cat $E", ["/etc/x"]),
        ("HOME=/etc; cat $HOME/x", ["/etc/x"]),
        ("export D=/etc && cat ${D}/x", ["/etc", "/etc/x"]),
        ("eval D=/etc; cat $D/x", ["/etc", "/etc/x"]),
        ("declare D=/etc; cat $D/x", ["/etc", "/etc/x"]),
        ("cat ${NOT_SET:-/etc}/x", ["/etc/x"]),
        ("cat ${NOT_SET:+/etc}/x", ["/x", "/etc/x"]),
        ("echo ${D:=/etc}; cat $D/x", ["/etc", "/etc/x"]),
        ("D=src; cat $D/x", ["/work/project/src/x"]),
        ("grep x ${NOT_SET-/etc/y}", ["/etc/y"]),
        ("curl file:///etc/x", ["/etc/x"]),
        ("curl FILE://localhost/etc/%78", ["/etc/x"]),
        ("curl -d @/etc/x http://h", ["/etc/x"]),
        ("curl -F a=@/etc/x http://h", ["/etc/x"]),
        ("gcc -I/usr/x a.c", ["/usr/x"]),
        ("docker run -v /etc:/x i", ["/etc"]),
        ("grep x */../..", ["/work"]),
        ("cat $(pwd)/x", ["/work/project/x"]),
        ("cat $(git ls-files '*.py' | head -3)", ["/work/project"]),
        ('cd "$(git rev-parse --show-toplevel)" && ls', ["/work/project"]),
        ("cd a && cd -", ["/work/project/a"]),
        ("cd -P a", ["/work/project/a"]),
        ("cat /proc/self/cwd/../x", ["/proc/self/cwd/../x"]),
    ],
)
def test_places(line: str, found: list[str]) -> None:
    """As far as it can be told before the line runs, from where it would be by then."""
    assert list(map(str, places(parse(line), HERE).paths)) == found


def test_links_are_followed_before_dots(tmp_path: Path) -> None:
    """As the system does; only `cd` does not."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "outside")
    found = places(parse("cat link/../x"), tmp_path / "here").paths
    assert found == [tmp_path.resolve() / "x"]


@pytest.mark.parametrize(
    "line",
    [
        "cat link/file",
        "grep -r x link",
        "wc -l < link/file",
        "git -C link status",
        "tar -Clink -c .",
        "python x.py --out=link/y",
        "curl -d @link/file http://h",
        "D=link; grep x $D/file",
        "for f in link; do grep x $f/file; done",
        "cd sub/up && ls",
        "grep x sub/up/../outside/file",
        "grep x {link,sub}/file",
    ],
)
def test_links_are_followed_in_every_word(tmp_path: Path, line: str) -> None:
    """Of any program: a word that is the name of a file may well be meant as one."""
    for folder in ("outside", "here/sub", "here/bin"):
        (tmp_path / folder).mkdir(parents=True)
    here = tmp_path / "here"
    (here / "link").symlink_to("../outside")
    (here / "sub" / "up").symlink_to("../..")
    found = places(parse(line), here).paths
    assert any(not each.is_relative_to(here) for each in found)


@pytest.mark.parametrize(
    "line",
    ["bin/python x.py", "timeout 5 bin/python x.py", "ls -l bin/python", "make PY=bin/python"],
)
def test_a_link_to_a_program_leads_nowhere(tmp_path: Path, line: str) -> None:
    """A virtual environment has such links, and its programs are run every day."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/usr/bin/env")
    assert all(each.is_relative_to(tmp_path) for each in places(parse(line), tmp_path).paths)


@pytest.mark.parametrize(
    "line",
    [
        'cat "${PWD%/*}/x"',
        'rm "$f"',
        "echo > $f",
        "cd $(echo ..)",
        "cd $OLDPWD",
        "cd -",
        "cat ~+/../x",
        "ls ~-/x",
        "cat {/etc/{x,y},z}",
        "cat .?/x",
        "cat */../../x",
        "D=$(echo /etc); cat $D/x",
        "D=/etc; D+=/x; cat $D",
        "unset D; cat $D/x",
        "mapfile D < x; cat $D",
        "CDPATH=/etc; cd ssl",
        "D=/etc bash -c 'cat $D/x'",
        "export HOME=/etc; bash -c 'cat $HOME/x'",
        "bash -c 'cat $1' _ x",
        "cat $'\\x2fetc/x'",
        "cat $1",
        "pushd +1",
        "cat .$X/x",
        "cat ~$X/x",
        "cp -t$X y",
        "cp --target-directory=$X y",
        "dd of=$X",
        "cat logs/$X/../../y",
        "cat $(ls -a)/x",
        "cat $(date +/etc)",
        "cat $(seq -f /etc/%g 3)",
        "cat $(find . -printf '\\057etc')",
        "cat $(grep -o '/.*' y)",
        "cat $(git ls-files | sort y)",
        "cat $(git ls-files; echo /etc)",
        "cat $(git ls-files | grep x y)",
        "f=$(echo /etc/x); cat ${f%y}",
        'cat "$(dirname "$PWD")/x"',
        'for f in ./a; do cat "${f#.}"; done',
        "for f in {/etc,$X}; do cat $f; done",
        "for f in a; do read f < x; cat $f; done",
    ],
)
def test_where_it_is_not_known(line: str) -> None:
    """A command surely touches files, and nobody knows which."""
    assert not places(parse(line), HERE).is_known


@pytest.mark.parametrize(
    "line",
    [
        "cat logs/$X",
        "cat log.$X.txt",
        "cp a b-$(cat y).js",
        "cd build/$X && ls",
        "D=build/$(cat y); mkdir -p $D",
        "echo x > out/${X}",
    ],
)
def test_what_begins_with_a_name_is_taken_to_be_below(line: str) -> None:
    """Nobody is asked where it leads, but the line is not certain."""
    parsed = parse(line)
    found = places(parsed, HERE)
    assert found.is_known
    assert all(each.is_relative_to(HERE) for each in found.paths)
    assert not parsed.is_certain


def test_devices_in_scripts_are_no_files() -> None:
    """They are the command's own output."""
    for line in ("awk '{print > \"/dev/stderr\"}' f", "sed 's/a/b/w /dev/stdout' f"):
        assert places(parse(line), HERE).paths == [], line


def test_values_do_not_grow_without_end() -> None:
    """Each variable may hold another one twice."""
    doubled = "; ".join(f"v{at + 1}=$v{at}$v{at}" for at in range(200))
    for line in (
        f"v0=aaaaaaaaaa; {doubled}; cat $v200",
        f"for a in {'x' * 4000}; do cat {'$a' * 4000}; done",
        f"for a in x y; do cat {'$a' * 4000}; done",
    ):
        parsed = parse(line)
        assert not places(parsed, HERE).is_known, line[:40]
        held = [text for each in parsed.commands for text in _texts(each)]
        assert max(map(len, held)) <= len(line)


def _texts(command: SimpleCommand) -> list[str]:
    return [text for word in command.words for text, _ in command.variables.texts(word)]


def test_the_shell_moves_to_one_folder_only() -> None:
    """Many words are looked at once, not in every place that others may have led to."""
    found = places(parse("cd " + "a cd " * 1000), HERE)
    assert not found.is_known
    assert found.paths == []


def test_what_mktemp_makes_is_the_commands_own() -> None:
    """Nobody is asked for it, but for what is beside it."""
    found = places(parse("D=$(mktemp -d); cd $D && cp x $D/y && rm -r $D"), HERE)
    assert found.is_known
    assert found.paths == [HERE / "x"]
    found = places(parse("D=$(mktemp -d); cat $D/../../etc/x"), HERE)
    assert Path("/etc/x") in found.paths


def test_patterns_that_mean_gits_folder() -> None:
    """It is named, so that a person is asked."""
    found = places(parse("for f in .g*/config; do echo x >> $f; done"), HERE)
    assert HERE / ".git" / "config" in found.written
