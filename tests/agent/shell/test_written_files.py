"""Which files a line surely writes."""

from pathlib import Path

import pytest

from kedge.agent.shell.parser import parse
from kedge.agent.shell.permissions import places

HERE = Path("/work/project")


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("echo x > f", ["f"]),
        ("echo x >> f 2> g", ["f", "g"]),
        ("echo x >| f", ["f"]),
        ("echo x &> f", ["f"]),
        ("echo x >& f", ["f"]),
        ("{ a; } > f", ["f"]),
        ("> f", ["f"]),
        ("exec 3> f", ["f"]),
        ("ls < f", []),
        ("ls > /dev/null 2>&1", []),
        ("bash -c 'echo x > f'", ["f"]),
        ("echo x | sudo tee -a f g", ["f", "g"]),
        ("sed -i s/a/b/ f g", ["f", "g"]),
        ("sed -ni.bak -e s/a/b/ f", ["f"]),
        ("sed --in-place=.x s/a/b/ f", ["f"]),
        ("sed -n s/a/b/w\\ f g", ["f"]),
        ("sed 'w f' g", ["f"]),
        ("sed s/i/w/ f", []),
        ("sort -o f g", ["f"]),
        ("sort -uof g", ["f"]),
        ("sort --output=f g", ["f"]),
        ("find a b -name x -delete", ["a", "b"]),
        ("find -delete", ["."]),
        ("find . -fprint f", ["f"]),
        ("git log --output=f", ["f"]),
        ("git diff --output f", ["f"]),
        ("git rm -q f", ["f"]),
        ("git restore f", ["f"]),
        ("git restore --staged f", []),
        ("git reset --hard", ["."]),
        ("git status", []),
        ("git commit -m x", []),
        ("dd if=a of=f", ["f"]),
        ("cp a f", ["f", "f/a"]),
        ("cp -t f a", ["f", "f/a"]),
        ("mv a f", ["a", "f"]),
        ("rm -rf f g", ["f", "g"]),
        ("ln -s a f", ["f", "f/a"]),
        ("install -m 644 a f", ["f", "f/a"]),
        ("install -d f g", ["f", "g"]),
        ("touch -d now f", ["f"]),
        ("mkdir -p f", ["f"]),
        ("truncate -s 0 f", ["f"]),
        ("chmod +x f", ["f"]),
        ("rsync -a a/ f", ["f", "f/a"]),
        ("rsync -n a f", []),
        ("curl -so f http://h", ["f"]),
        ("curl -s http://h", []),
        ("wget -O - http://h", []),
        ("wget -O f http://h", ["f"]),
        ("tar cf f a", ["f"]),
        ("tar tf f", []),
        ("gzip -k f", ["f"]),
        ("gzip -dc f", []),
        ("cat f; grep x f; ls; head f; wc f", []),
        ("rm --help", []),
        ("openssl s_client -connect h:443", []),
        ("openssl x509 -in cert.pem -noout -text", []),
        ("openssl req -nodes -keyout f -out g", ["f", "g"]),
        ("curl -XPOST http://h", []),
        ("curl -XDELETE http://h", []),
        ("curl -uadmin:foo http://h", []),
        ("curl -Hcontent-type:json http://h", []),
        ("time grep -o foo g", []),
        ("time pytest -o log_cli=true", []),
        ("ruby -Ilib -Itest test/foo_test.rb", []),
        ("perl -MList::Util=sum -lane 'print' g", []),
        ("perl -Mstrict -e 'print 1'", []),
        ("perl x.pl -i", []),
        ("awk '{print ($1 > 3)}' g", []),
        ('awk \'{print $1, ($2 > 5 ? "a" : "b")}\' g', []),
        ("awk '{print > \"/dev/stderr\"}' g", []),
        ("rsync --list-only src/", []),
        ("cpio -itv < a", []),
        ("vim -R g", []),
        ("script -q /dev/null npm test", []),
        ("mktemp -t foo.XXXX", []),
        ("zip -sf a.zip", []),
        ("sed -i '' s/foo/bar/ f", ["f"]),
        ("sed -bi s/a/b/ f", ["f"]),
        ("tar -c -f f a", ["f"]),
        ("tar --create -f f a", ["f"]),
        ("tar -C a -cf f b", ["f"]),
        ("tar czf f a", ["f"]),
        ("tar cbf 20 f a", ["f"]),
        ("tar -C f -xf a.tar", ["f"]),
        ("tar xf a.tar -C f", ["f"]),
        ("tar --remove-files -cf /dev/null f", ["f"]),
        ("tar -tvf a.tar", []),
        ("tar -xOf a.tar", []),
        ("git checkout HEAD~1 f", ["f"]),
        ("git checkout main", []),
        ("git checkout -b x main", []),
        ("git config -f f a.b c", ["f"]),
        ("git config user.name x", []),
        ("git merge-file f a b", ["f"]),
        ("git interpret-trailers --in-place f", ["f"]),
        ("git worktree add f", ["f"]),
        ("git worktree add -b x f main", ["f"]),
        ("git worktree list", []),
        ("git clone https://h/x/f.git", ["f"]),
        ("git clone --depth 1 https://h/x.git f", ["f"]),
        ("python3 -m json.tool a f", ["f"]),
        ("python3 -m json.tool a", []),
        ("python3 -m pytest a b", []),
        ("python3 x.py a b", []),
        ("history -w f", ["f"]),
        ("fallocate -l 1 f", ["f"]),
        ("gzexe f", ["f"]),
        ("ar rc f a.o", ["f"]),
        ("ar t a.a", []),
        ("cmake -E echo x", []),
        ("cmake --build build", []),
        ("sed '# x\\\nw f' g", ["f"]),
        ("wget -O- -o f http://h", ["f"]),
        ("D=a; echo x > $D/f", ["a/f"]),
        ("cd a; touch f", ["f", "a/f"]),
    ],
)
def test_what_is_written(line: str, written: list[str]) -> None:
    """Redirected, or named as what a program changes."""
    found = places(parse(line), HERE)
    assert [str(path.relative_to(HERE)) for path in found.written] == written
    assert found.unplaced == []


@pytest.mark.parametrize(
    "line",
    [
        'echo x > "$f"',
        "tee $f",
        "find . | xargs rm",
        "find . -exec rm {} +",
        "sed -i s/a/b/",
        "sed '1e touch f' g",
        "perl -pi -e s/a/b/ f",
        "patch -p1",
        "git apply x.patch",
        "tar xf x",
        "unzip x",
        "wget http://h",
        "curl -O http://h/f",
        "awk '{print > \"f\"}' g",
        "split x",
        "perl -i.bak -pe s/a/b/ f",
        "perl -0777pi -e s/a/b/ f",
        "ruby -pi -e x f",
        "rename.ul a b f",
        "cmake -E copy a f",
        "python3 -m zipfile -e a.zip f",
        "python3 -m gzip f",
        "curl -sLO http://h/f",
        'awk \'BEGIN{ print "x" \\\n > "f" }\'',
        "awk 'BEGIN{ print /}/ > \"f\" }'",
        "awk '{ print $1,\n$2 > \"f\" }' g",
        'awk \'{ print(1) > "/dev/stderr" "/../f" }\' g',
    ],
)
def test_what_is_written_somewhere(line: str) -> None:
    """That it writes is certain, but not what."""
    assert places(parse(line), HERE).unplaced != []


def test_a_pattern_may_be_gits_own_folder(tmp_path: Path) -> None:
    """The shell replaces it by the only file that it means."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").touch()
    found = places(parse("echo x > .gi?/config"), tmp_path)
    assert tmp_path / ".git" / "config" in found.written
