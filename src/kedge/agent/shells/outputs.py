"""What commands write whose output becomes part of a word, `$(…)`, as far as their words tell."""

import os
import re
import shlex
import tempfile
from collections.abc import Sequence

BELOW = "…"
"""Stands for names in the folder of the command or below: of files, or of nothing, as numbers."""
SCRATCH = "…scratch"
"""The name of what `mktemp` makes: new, and the command's own."""

HERE = "./."
"""The folder of the command as an absolute path: without its end it would be another."""
_FOLDERS = {
    "pwd": HERE,
    "pwd -P": HERE,
    "git rev-parse --git-dir": f"{HERE}/.git",
    "git rev-parse --show-toplevel": HERE,
}
"""Commands that tell where they are."""
_SIMPLE = re.compile(
    r"arch|hostname(?: -[fs])?|id -[gnu]+|nproc(?: --all)?|uname(?: -[mnrsv]+)?|whoami"
    r"|seq(?: -w)?(?: -?[\d.]+){1,3}"
    r"|date(?: -u| -I\w*| --utc| -d (?:'[^']*'|\"[^\"$`]*\"))*"
    r"(?: (?:\+[\w%:.-]+|'\+[^'/]+'|\"\+[\w%:. -]+\"))?"
    r"|git rev-parse(?: --short(?:=\d+)?| --abbrev-ref| --verify| -q)*(?: [\w@^.-]+)?"
    r"|git branch --show-current|git rev-list --count [\w.-]+"
    r"|git describe(?: --(?:tags|always|dirty))*"
    r"|git log -1 --(?:format|pretty)=['\"]?(?:format:)?%[hHct]+['\"]?(?: [\w.-]+)?"
    r"|wc -[clw]+ < [\w-][\w./-]*"
)
"""Commands that write numbers, dates, hashes and names that cannot lead away."""
_QUIET = re.compile(r"\s*2>\s*/dev/null(?=$|[\s|])")
_QUOTED = re.compile(r"'[^']*'")
_ODD = re.compile(r"[$`\\{}\n;&<>()]|\|\|")
_LEADS_AWAY = re.compile(r"(?:^|[=:,])[/~]|(?:^|[/=:])\.\.(?:/|$)")
_FILTERS = {
    "sort": re.compile(r"-[bdfginruRVhz]+"),
    "uniq": re.compile(r"-[cdiu]+"),
    "head": re.compile(r"-?[nc]?|-n?\d+|-?\d+"),
    "tail": re.compile(r"-?[nc]?|-n?\+?\d+|[-+]?\d+"),
    "wc": re.compile(r"-[clmw]+"),
}
"""Programs that let through some lines or count them, and the only words that they may have."""
_GREP_FILTER = re.compile(r"-[EFGPaivwxc]+|-m\d*|-e|\d+")
_LIST_FILES = re.compile(r"-[acEFGHiIlLnPRrsvwxz]*[lL][acEFGHiIlLnPRrsvwxz]*|--files-w\S+")
_RG_FILES = re.compile(r"-[FHILSUainsuvwx.]*l[FHILSUainsuvwx.]*|--files\S*")
_FIND_ODD = re.compile(r"-(?:printf|fprint\w*|exec\w*|ok\w*|files0-from|fls|ls)")
_FD_ODD = re.compile(
    r"-[xX].*|--exec\S*|--format\S*|--base-dir\S*|--search-path\S*|-C.*|--path-sep\S*"
)
_NO_HEADS = frozenset({"--pretty=", "--pretty=format:", "--format=", "--no-commit-id"})


def output(line: str) -> frozenset[str] | None:
    """All that a command line may write; None where that is not known."""
    line = _QUIET.sub("", line.strip())
    if line in _FOLDERS:
        return frozenset({_FOLDERS[line]})
    if _SIMPLE.fullmatch(line) and ".." not in line:
        return frozenset({BELOW})
    if _ODD.search(_QUOTED.sub("", line)):
        return None
    try:
        stages = [shlex.split(stage) for stage in _stages(line)]
    except ValueError:
        return None
    first, *filters = stages
    if first[:1] == ["mktemp"] and not filters:
        return frozenset({os.path.join(tempfile.gettempdir(), SCRATCH)})
    words = [word for stage in stages for word in stage]
    is_below = _lists(first) and all(map(_lets_through, filters))
    return frozenset({BELOW}) if is_below and not any(map(_LEADS_AWAY.search, words)) else None


def _stages(line: str) -> list[str]:
    """The commands of a pipe."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", lambda match: "_" * len(match[0]), line)
    ends = [*(at for at, sign in enumerate(bare) if sign == "|"), len(line)]
    return [line[start:end].strip("|") for start, end in zip([0, *ends], ends, strict=False)]


def _lists(words: Sequence[str]) -> bool:
    """Whether a command writes names of files below the folders that it names."""
    match words:
        case ["ls", *rest]:
            return not any(re.match(r"-\w*[afl]|--all|--format|-\w*[xm]", word) for word in rest)
        case ["find", *rest]:
            return not any(map(_FIND_ODD.fullmatch, rest))
        case ["fd" | "fdfind", *rest]:
            return not any(map(_FD_ODD.fullmatch, rest))
        case ["rg", *rest]:
            is_odd = any(word.startswith(("--path-sep", "--context-sep")) for word in rest)
            return any(map(_RG_FILES.fullmatch, rest)) and not is_odd
        case ["grep" | "egrep" | "fgrep", *rest]:
            return any(map(_LIST_FILES.fullmatch, rest))
        case ["git", verb, *rest]:
            return _git_lists(verb, rest)
        case _:
            return False


def _git_lists(verb: str, rest: Sequence[str]) -> bool:
    if verb == "grep":
        return any(map(_LIST_FILES.fullmatch, rest))
    if verb == "ls-files":
        return not any(re.match(r"--format|-\w*[st]|--stage|--eol|--debug", word) for word in rest)
    is_named = "--name-only" in rest and not any(word.startswith("--line-prefix") for word in rest)
    has_heads = verb in ("diff-tree", "log", "show") and not _NO_HEADS & set(rest)
    return is_named and not has_heads and verb in ("diff", "diff-tree", "log", "show")


def _lets_through(words: Sequence[str]) -> bool:
    name, rest = words[0] if words else "", words[1:]
    if name in ("grep", "egrep", "fgrep"):
        # One pattern, and no file: that would be read instead.
        return sum(not _GREP_FILTER.fullmatch(word) for word in rest) <= 1 and not any(
            word.startswith("-") and not _GREP_FILTER.fullmatch(word) for word in rest
        )
    allowed = _FILTERS.get(name)
    return allowed is not None and all(map(allowed.fullmatch, rest))
