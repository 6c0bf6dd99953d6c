"""Programs that run others: what is asked about them, and what is never allowed for good."""

import pytest

from kedge.agent.shell.parser import parse
from kedge.agent.shell.permissions import asked_of
from kedge.domain.permissions import (
    DOES_MORE,
    IN_GIT,
    UNCERTAIN,
    PermissionAction,
    PermissionRule,
    Rulebook,
    remembered,
)


def rule(pattern: str, action: PermissionAction, permission: str = "bash") -> PermissionRule:
    """A rule."""
    return PermissionRule(permission=permission, pattern=pattern, action=action)


def patterns_of(line: str) -> tuple[str, ...]:
    """What is asked about a line."""
    return asked_of(line, parse(line)).patterns


@pytest.mark.parametrize(
    "line",
    [
        "timeout $X ls",
        "timeout -k $X 5 ls",
        "sudo -u $U ls",
        "sudo -u $(id -un) ls",
        "xargs -n $X ls",
        "xargs -I $X ls",
        "env A=$X ls",
        "env -u $X ls",
        "nice -n $N ls",
        "nice $N ls",
        "ionice -c $C ls",
        "stdbuf -o$L ls",
        "exec -a $N ls",
        "watch -n $N ls",
        "doas -u $U ls",
        "time -p $X",
    ],
)
def test_wrappers_with_words_that_are_not_fixed(line: str) -> None:
    """Such a word may be several, and then another one is the command."""
    assert not parse(line).is_certain


@pytest.mark.parametrize(
    "line",
    [
        "python -c 'x'",
        "python3.11 -Bc 'x'",
        "cat x | python",
        "python -m timeit 'x'",
        "perl -pe 's/a/b/' f",
        "node -e x",
        "ruby -ne x f",
        "php -r x",
        "awk 'BEGIN{system(\"ls\")}'",
        "awk '{print | \"sh\"}' f",
        "awk 'BEGIN{\"ls\" | getline x}'",
        "awk -f x.awk f",
        "sed '1e ls' f",
        "sed 's/a/b/e' f",
        "sed -f x.sed f",
        "vim -c '!ls'",
        "git -c core.pager=x log",
        "git -c alias.x='!ls' x",
        "git --exec-path=x log",
        "git config alias.x '!ls'",
        "git rebase -x ls HEAD~1",
        "git bisect run ls",
        "git submodule foreach ls",
        "git clone ext::x y",
        "git $x",
        "GIT_SSH_COMMAND=x git fetch",
        "LD_PRELOAD=x ls",
        "PATH=x:$PATH ls",
        "export PATH=x",
        "read PATH",
        "BASH_ENV=x bash y.sh",
        "PAGER=x git log",
        "EDITOR=x git commit",
        "npm exec -- ls",
        "npx -c ls",
        "pnpm dlx x",
        "ssh h ls",
        "tar -xf x --to-command=ls",
        "tar cf x --checkpoint-action=exec=ls y",
        "tar -I x -cf y z",
        "rsync -e x a b",
        "sort --compress-program=x f",
        "make SHELL=x",
        "make -f -",
        "make -f <(echo x)",
        "find . -delete",
        "docker run -v /:/x i",
        "cmake -P x.cmake",
        "python3 -W ignore -c x",
        "python3 -X dev -c x",
        "python3 -W ignore <<< x",
        "python3 -i empty <<< x",
        "cat x | python3 -m asyncio",
        "perl -I lib -e x",
        "perl5.36-x86_64-linux-gnu -e x",
        "ruby -I lib -e x",
        "node --title x -e y",
        "node -C x -e y",
        "node --conditions x -e y",
        "node --title x --conditions y -e z",
        "node --title x <<< y",
        "node --experimental-loader=data:x y.js",
        "npm --script-shell=x test",
        "sed -ie '1e ls' f",
        "sed -i.e '1e ls' f",
        "sed '# x\\\n1e ls' f",
        "sed 'r x\\\n1e ls' f",
        "sed --fil=x.sed p",
        'awk \'BEGIN{ /"/; system("ls"); /"/ }\'',
        'awk \'BEGIN{ # "\nsystem("ls") # "\n}\'',
        "awk 'BEGIN { x = 1 \\\n/ system(\"ls\") / 1 }'",
        'awk \'{ if (1) /"/; system("ls"); /"/ }\' f',
        'awk \'/[/"]/; {system("ls")} /[/"]/\' f',
        'awk \'{ return /"/; system("ls"); /"/ }\' f',
    ],
)
def test_what_does_more_is_marked(line: str) -> None:
    """A rule for everything does not mean it where something else is denied; a rule that names it
    does, and what was allowed for good only if it was this very command."""
    (marked, *_) = [each for each in patterns_of(line) if each.startswith(DOES_MORE)]
    name = marked.removeprefix(DOES_MORE).split()[0]
    everything, denied = rule("*", "allow"), rule("rm *", "deny")
    assert Rulebook(((everything,),)).decide("bash", marked).action == "allow"
    assert Rulebook(((everything, denied),)).decide("bash", marked).action == "ask"
    assert Rulebook(((everything,),), ((denied,),)).decide("bash", marked).action == "ask"
    named = rule(f"{name} *", "allow")
    assert Rulebook(((everything, denied, named),)).decide("bash", marked).action == "allow"
    assert (
        Rulebook(((everything, rule(f"{name} *", "deny")),)).decide("bash", marked).action == "deny"
    )
    assert not remembered("bash", marked, [named])
    assert remembered("bash", marked, [rule(marked.removeprefix(DOES_MORE), "allow")])


@pytest.mark.parametrize(
    "line",
    [
        "python run.py -c x",
        "python -m pytest -k c",
        "node build.js -e",
        "awk '/a|b/ {print $1}' f",
        "awk -F, 'NR>1 && $2 > 3 || $1 ~ /x\\/y|z/ {print $1}' f",
        "sed -n '1,20p;/a/,/b/{s/x/y/g;p}' f",
        "sed -E 's|a/b|c|g; s/e/w/' f",
        "sed '/x/a\\\ntext e w' f",
        "sed -e '$!N' -e 'P;D' f",
        "git -c core.quotepath=off -c color.ui=always -C x log",
        "git -c core.pager=cat log",
        "git config user.name x",
        "git config --get core.pager",
        "GIT_PAGER=cat git log",
        "GIT_AUTHOR_NAME=x git commit",
        "A=1 make all",
        "make -j4 test",
        "npm run build",
        "tar -xzf x -C y",
        "sort -u f",
        "find . -name x",
        "diff <(ls a) <(ls b)",
        "printf '%s' x",
        "perl --version",
        "cmake -S . -B build -DCMAKE_BUILD_TYPE=Debug",
        "npx prettier -c src",
        "python3 -W ignore x.py -c y",
        "python3 -X dev x.py",
        "python3 -Wignore -m pytest -c x.ini",
        "python -i x.py",
        "ruby -Ilib -Itest test/foo_test.rb",
        "perl -Ilibe x.pl",
        "node --inspect app.js -e prod",
        "node --test tests/x.js",
        "node --title=x app.js",
        "node --title x",
        "npx eslint -c .eslintrc.js src",
        "npx vitest -c vitest.config.ts run",
        "pnpm eslint -c x.js src",
        "npm test -- -c jest.config.js",
        "awk -vfile=x '{print}' f",
        "awk '{print ($1) / 2}' f",
        "awk '$1 ~ /\"|x/' f",
    ],
)
def test_what_does_no_more_is_not_marked(line: str) -> None:
    """People should not be asked for ordinary commands."""
    assert not any(each.startswith((DOES_MORE, UNCERTAIN)) for each in patterns_of(line))


@pytest.mark.parametrize(
    "line",
    [
        "ssh h rm x",
        "npm exec -- rm x",
        "npx -c 'rm x'",
        "yarn exec rm x",
        "git rebase -x 'rm x' HEAD~1",
        "git rebase -ix 'rm x' HEAD~1",
        "git bisect run rm x",
        "git submodule foreach 'rm x'",
        "git -c core.pager='rm x' log",
        "git -c alias.y='!rm x' y",
        "tar -xf x --to-command='rm x'",
        "rsync -e 'rm x' a b",
        "split --filter='rm x' f",
        "kubectl exec p -- rm x",
        "npm exec -c 'rm x'",
        "npm exec -p y -c 'rm x'",
        "npx -p y -c 'rm x'",
        "pnpm -r exec rm x -f",
        "xargs -I{} sh -c 'rm x {}'",
    ],
)
def test_the_inner_command_is_asked_for(line: str) -> None:
    """Where the words tell what it is."""
    assert any(each.startswith("rm x") for each in patterns_of(line))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("uv run rm x", "rm x"),
        ("poetry run -q rm x", "rm x"),
        ("npx rm x", "rm x"),
        ("git -C y --no-pager push o", "git push o"),
        ("uv run " + "x " * 5000, None),
    ],
)
def test_what_may_be_denied_besides(line: str, hint: str | None) -> None:
    """Nobody is asked about it."""
    asked = asked_of(line, parse(line))
    assert hint is None or hint in asked.hints
    assert hint not in asked.patterns
    assert sum(map(len, asked.hints)) <= 12 * len(line)


@pytest.mark.parametrize(
    ("line", "always"),
    [
        ("python3.11 run.py x", ["python3.11 run.py *"]),
        (".venv/bin/python run.py", [".venv/bin/python run.py *", "python run.py *"]),
        ("uv run python x.py y", ["uv run python x.py *"]),
        ("sudo python x.py", ["sudo python x.py *", "python x.py *"]),
        ("sudo rm x", ["sudo rm *", "rm *"]),
        ("xargs grep x", ["xargs grep *", "grep *"]),
        ("env A=1 ls", ["env A=1 ls", "ls *"]),
        ("npx tsc -p .", ["npx tsc *"]),
        ("ssh h ls", ["ssh h ls", "ls *"]),
        ("source x.sh", ["source x.sh"]),
        ("eval ls", ["eval ls", "ls *"]),
        ("PATH=x ls", ["PATH=x ls", "ls *"]),
        ("git -c core.pager=x log", ["git -c core.pager=x log", "x *"]),
        ("find . -delete", ["find . -delete"]),
        ("/usr/bin/git push x", ["/usr/bin/git push *", "git push *"]),
        ("go run x.go y", ["go run x.go *"]),
    ],
)
def test_no_interpreter_is_allowed_for_good(line: str, always: list[str]) -> None:
    """With whatever it is given; only what it was given this time."""
    assert list(asked_of(line, parse(line)).always) == always


def test_gits_own_files_are_always_asked_for() -> None:
    """No rule allows to write them, nor what was allowed for good; a rule may deny it."""
    text = f"{IN_GIT}.git/config"
    for pattern in ("*", ".git/*", ".git/config"):
        allowed = rule(pattern, "allow", "edit")
        assert Rulebook(((allowed,),)).decide("edit", text).action == "ask"
        assert not remembered("edit", text, [allowed])
    assert Rulebook(((rule(".git/*", "deny", "edit"),),)).decide("edit", text).action == "deny"
