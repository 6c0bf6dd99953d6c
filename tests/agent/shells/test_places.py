"""Which files and folders a line names."""

from pathlib import Path

import pytest

from kedge.agent.shells.parsing import Command, parse
from kedge.agent.shells.places import places

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


def _texts(command: Command) -> list[str]:
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
