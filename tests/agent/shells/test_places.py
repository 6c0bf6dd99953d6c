"""Which files and folders a line names."""

from pathlib import Path

import pytest

from kedge.agent.shells.parsing import parse
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
        ('for f in *.py; do cat "$f"; done', ["/work/project/_"]),
        ("sudo rm /etc/x", ["/etc/x"]),
        ("bash -c 'rm /etc/x'", ["/etc/x"]),
        ("echo $(cat /etc/x)", ["/etc/x"]),
        ("/bin/rm /etc/x", ["/etc/x"]),
        ("tee a/b=c", ["/work/project/a/b=c"]),
    ],
)
def test_places(line: str, found: list[str]) -> None:
    """As far as it can be told before the line runs, from where it would be by then."""
    assert list(map(str, places(parse(line), HERE))) == found


def test_links_are_followed_before_dots(tmp_path: Path) -> None:
    """As the system does; only `cd` does not."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "outside")
    found = places(parse("cat link/../x"), tmp_path / "here")
    assert found == [tmp_path.resolve() / "x"]


@pytest.mark.parametrize(
    "line",
    [
        "D=/etc; cat $D/x",
        "HOME=/etc; cat $HOME/x",
        'cat "${PWD%/*}/x"',
        'rm "$f"',
        "echo > $f",
        "cd $(echo ..)",
        "cd $OLDPWD",
        "cd -",
        "cat ~+/../x",
        "ls ~-/x",
        "cat {/etc/x,y}",
        "cat .?/x",
        "cat */../../x",
        "for f in /etc/*; do cat $f; done",
        "for f in a; do read f < x; cat $f; done",
    ],
)
def test_where_it_is_not_known(line: str) -> None:
    """A command that surely touches files, and nobody knows which, is not understood."""
    assert not parse(line).is_certain
