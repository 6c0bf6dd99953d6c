"""Lines that hide a command, or a change of what commands mean, from whoever looks at them."""

import pytest

from kedge.agent.shell.parser import parse

P = "touch /tmp/never"


@pytest.mark.parametrize(
    "line",
    [
        # Quotes that end elsewhere than they seem to.
        rf"echo $'a\\'; {P} #'",
        rf"echo a$'b\\'; {P} #'",
        f"echo \"${{x:-'$({P})'}}\"",
        f"echo \"${{x:-'`{P}`'}}\"",
        f"echo \"${{x:-$'$({P})'}}\"",
        f"ls <<E\n${{x:-'$({P})'}}\nE",
        f'echo $"$({P})"',
        # Text that is evaluated once more.
        f"[[ 'a[$({P})]' -eq 0 ]] && ls",
        f"[[ -v 'a[$({P})]' ]] && ls",
        f"[ -v 'a[$({P})]' ] && ls",
        '[ -v "$x" ] && ls',
        "[ ! -v x ] && ls",
        "[ $x ] && ls",
        "[ a < b ] && ls",
        f"(( 'a[$({P})]' )); ls",
        f"ls $(( 'a[$({P})]' ))",
        f"echo $[ 'a[$({P})]' ]",
        f"ls ${{a['$({P})']}}",
        f"ls \"${{a['$({P})']}}\"",
        f"for x in 'a[$({P})]'; do echo $((x)); done",
        f"for x in 'a[$({P})]'; do ls ${{!x}}; done",
        f"for x in 'a[$({P})]'; do ls; done",
        f"for ((i='a[$({P})]'; i < 0; )); do ls; done",
        f"let 'a[$({P})]'",
        f"test -v 'a[$({P})]'",
        'test "$x" "$y"',
        f"printf -v 'a[$({P})]' x",
        f"read 'a[$({P})]' <<< x",
        f"unset 'a[$({P})]'",
        f"declare 'a[$({P})]=1'",
        f"command declare 'a[$({P})]=1'",
        f"declare -i x='a[$({P})]'",
        f"echo ${{x:='$({P})'}} ${{x@P}}",
        f"x='$({P})'; ls",
        f"ls() {{ {P}; }}; ls",
        # Variables that are set by something else than an assignment.
        "for PATH in /tmp; do ls; done",
        "for HOME in /tmp; do git status; done",
        "select PATH in /tmp; do ls; done",
        "echo $((PATH=5)); ls",
        "echo ${PATH:=x}",
        "ls {PATH}>/dev/null",
        "coproc PATH { ls; }",
        # Lines that end where the grammar goes on.
        f"true >|{{\n\\\n{P}\n:",
        f"ls <<< $\n{P}",
        f"ls > $\n{P}",
        f"ls $\n{P}",
        # Words behind the beginning of a text.
        f"env <<E {P}\nE",
        "xargs <<E rm\nx\nE",
        "cat <<E /etc/passwd\nE",
        # Shells that read what they run.
        f"bash <<E\n{P}\nE",
        f'bash <<< "{P}"',
        f"echo {P} | sh",
        f"bash -s <<< '{P}'",
        "bash",
        "bash -i",
        "bash -- x",
        "bash /dev/stdin",
        "bash --rcfile x -c ls",
        f"zsh -c '{P}'",
        f"fish -c '{P}'",
        f". /dev/stdin <<< '{P}'",
        f". <(echo {P})",
        "source $x",
        # Options that are not known.
        f"env -iS '{P}'",
        f"env -vS '{P}'",
        f"env --spl '{P}'",
        f"timeout --sig KILL 5 {P}",
        f"nice --adj 5 {P}",
        f"stdbuf --out L {P}",
        f"xargs --max-arg 1 {P}",
        f"xargs --process-slot-var X {P}",
        f"env --uns X {P}",
        f"sudo -s {P}",
        f"nice -$x {P}",
        # Programs that run others.
        f"flock x {P}",
        f"taskset 1 {P}",
        f"chroot / {P}",
        f"script -qc '{P}' x",
        f"su -c '{P}'",
        f"strace {P}",
        f"mapfile -C '{P}' < x",
        f"compgen -C '{P}'",
        "hash -p /bin/rm ls; ls x",
        f"alias ls='{P}'",
        f"jobs -x {P}",
        f"echo {P} | xargs env",
        f"echo {P} | xargs nice timeout 5",
        f"echo {P} | xargs -I{{}} {{}} x",
        f"echo {P} | xargs -I X sh -c X",
        "find . -exec {} +",
        "find . -exec env {} +",
        "find . -exec sh -c 'cat {}' +",
        "find . $x",
        f"bash -c '$0 x' {P}",
        f"bash -c '\"$@\"' _ {P}",
        f'f() {{ "$@"; }}; f {P}',
    ],
)
def test_what_hides_something_is_not_understood(line: str) -> None:
    """Whatever rules allow the names that are in it."""
    assert not parse(line).is_certain


@pytest.mark.parametrize(
    "line",
    [
        f'bash -euo pipefail -c "{P}"',
        f'bash -eo pipefail -c "{P}"',
        f'bash -O extglob -c "{P}"',
        f"watch -n 1 {P}",
        f"watch -n1 '{P}'",
        f"env -iu X {P}",
        f"sudo -nu root {P}",
        f"exec -la n {P}",
        f"timeout -vk 5 5 {P}",
        f"xargs -rn 1 {P}",
        f"xargs -0n1 {P}",
        f"ionice -tc 3 {P}",
        f"stdbuf -oL {P}",
        f"nice --adjustment=5 {P}",
        f"find . -exec {P} {{}} +",
    ],
)
def test_what_a_program_runs_is_seen(line: str) -> None:
    """However its options are written."""
    parsed = parse(line)
    assert parsed.is_certain
    assert any(command.text.startswith(P) for command in parsed.commands)


@pytest.mark.parametrize(
    "line",
    [
        "git status && npm test 2>&1 | tail -20",
        'cd sub && python -m pytest -q tests/x.py::y -k "a or b"',
        'for f in *.py; do wc -l "$f"; done',
        'for f in a b; do cat "$f" >> "$f.bak"; done',
        "FOO=1 make test",
        "if [ -f x ]; then cat x; fi",
        'if [ "$a" = b ] || [ $? -ne 0 ]; then ls; else ls -l; fi',
        'grep -rn "foo" src | head -5',
        "grep -rn 'foo$' src; grep \"^a.*b$\" x",
        "ls -la; pwd",
        "cat <<'E' > f\n$(x) `y` $z\nE",
        "cat <<E > f\nhello $USER\nE",
        "python <<'E'\nprint(1)\nE",
        "git commit -m \"$(cat <<'E'\nfix: it's\n\nmore\nE\n)\"",
        "git show HEAD@{1} stash@{0}",
        "git log --oneline -5 --pretty=format:'%h %s'",
        "find . -name '*.py' -not -path './x/*' -exec grep -l y {} +",
        "find . -type f | xargs grep -n foo",
        "ls | xargs -I{} cp {} out/{}",
        "sed -n '1,20p' f; awk '{print $1}' f; sed -i 's/a/b/g' f",
        "curl -s http://localhost:8080/x | jq '.a[0]'",
        'while read -r line; do echo "$line"; done < f',
        "case $1 in a) ls;; *) pwd;; esac",
        "export A=b; x=$(git rev-parse HEAD); echo $x",
        "sleep 1 & wait $!",
        "(cd sub && npm run build) || exit 1",
        "npm run build > out.log 2>&1; tail -5 out.log",
        "diff <(ls a) <(ls b)",
        "timeout 60 pytest -x; time ls",
        "printf '%s\\n' \"$x\"",
        "set -e; ls",
        "echo 'a $(b)' \"it's\" \\$x",
    ],
)
def test_what_agents_write_every_day_is_understood(line: str) -> None:
    """Nobody should be asked about a line only because it is one."""
    assert parse(line).is_certain
