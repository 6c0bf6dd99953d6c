"""`Ignore` against git itself: random repositories, random patterns, and the worst of both."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.snapshot.ignore.folders import Ignore

# Few letters, so that names and rules meet; and everything that is special somewhere.
ATOMS = [
    *(b"a", b"b", b"A", b"B", b"ab", b".", b".x", b"-", b"]", b"\xff", b"\xc3\xa9", b"\t", b" "),
    *(b"*", b"*", b"**", b"***", b"?", b"/", b"/", b"**/", b"/**", b"/**/", b"a/", b"/b"),
    *(b"[ab]", b"[!a]", b"[^b]", b"[a-c]", b"[A]", b"[A-B]", b"[]a]", b"[!]a]", b"[]", b"["),
    *(b"[[:alpha:]]", b"[[:upper:]]", b"[^[:lower:]]", b"[[:none:]]", b"[[:]", b"[[:a]", b"[/]"),
    *(b"[\\a]", b"[a\\-b]", b"[A-\\b]", b"[--a]", b"[a-]", b"[b-a]", b"[!", b"[\\]]", b"[*]"),
    *(b"\\", b"\\a", b"\\A", b"\\*", b"\\?", b"\\[", b"\\/", b"\\ ", b"\\#", b"#", b"!", b"\0"),
]
NAMES = [
    *(b"a", b"b", b"c", b"A", b"B", b"ab", b"aB", b"ba", b"aa", b"abc", b".x", b"a.x", b"a.X"),
    *(b"b.x", b"a b", b"a ", b" ", b"-", b"]", b"[", b"*", b"**", b"?", b"\\", b"a\\", b"#", b"#a"),
    *(b"!", b"!a", b"\n", b"a\n", b"a\r", b"\t", b"\xff", b"a\xff", b"\xc3\xa9"),
]
COMPONENTS = [b"a", b"b", b"ab", b"*", b"**", b"a*", b"*b", b"?", b"[ab]", b"a**"]
ENDINGS = [b"", b"", b"", b"", b"/", b"/", b" ", b"  ", b"\\ ", b"\\  ", b"\\\\ ", b"\r", b" \r"]

STARTS = [b"", b"", b"!", b"!", b"/", b"!/"]

soups = st.lists(st.sampled_from(ATOMS), max_size=6).map(b"".join)
usual = st.lists(st.sampled_from(COMPONENTS), min_size=1, max_size=4).map(b"/".join)
patterns = st.builds(
    lambda start, middle, end: start + middle + end,
    st.sampled_from(STARTS),
    st.one_of(soups, usual),
    st.sampled_from(ENDINGS),
)
rule_files = st.builds(
    lambda mark, lines, newline, end: mark + newline.join(lines) + end,
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"]),
    st.lists(patterns, max_size=5),
    st.sampled_from([b"\n", b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\n"]),
)


@dataclass(frozen=True, kw_only=True)
class Folder:
    own: bytes
    entries: "dict[bytes, Folder | bool]"
    """A folder, or a file; one that is true is a symlink to a folder."""


def folders(depth: int) -> st.SearchStrategy[Folder]:
    """Folders with at most so many levels of folders below."""
    files = st.sampled_from([False] * 9 + [True])
    return st.builds(
        Folder,
        own=st.one_of(st.just(b""), rule_files),
        entries=st.dictionaries(
            st.one_of(st.sampled_from([b"a", b"b", b"ab"]), st.sampled_from(NAMES)),
            st.one_of(files, folders(depth - 1)) if depth else files,
            min_size=2,
            max_size=7,
        ),
    )


@pytest.fixture(scope="module")
def git_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The git folder that every example's worktree borrows."""
    folder = tmp_path_factory.mktemp("repository")
    _git(folder, "init", "--quiet", ".")
    return folder / ".git"


@given(tree=folders(3), info=rule_files, excludes=rule_files, ignore_case=st.booleans())
def test_it_finds_what_git_would_add(
    git_folder: Path, tree: Folder, info: bytes, excludes: bytes, ignore_case: bool
) -> None:
    """In any tree with any rules, what is not ignored is what git lists as untracked."""
    (git_folder / "info" / "exclude").write_bytes(info)
    (git_folder / "excludes").write_bytes(excludes)
    with TemporaryDirectory(dir=git_folder.parent) as name:
        root = Path(name)
        _write(os.fsencode(root), tree)
        listed = _git(
            root,
            f"--git-dir={git_folder}",
            f"--work-tree={root}",
            *("-c", f"core.excludesFile={git_folder / 'excludes'}"),
            *("-c", f"core.ignorecase={str(ignore_case).lower()}"),
            *("ls-files", "--others", "--exclude-standard", "-z"),
        )
    root_rules = Ignore.at_root(
        excludes_file=excludes, info_exclude=info, own=tree.own, ignore_case=ignore_case
    )
    assert set(_walk(tree, root_rules)) == set(listed.split(b"\0")[:-1])


PATHS = [
    *NAMES,
    *(b"a/b", b"a/a", b"b/a", b"a/.x", b"ab/a.x", b"a/b/a", b"a/b/c", b"a/a/b", b"A/B", b"aa/b/a"),
    *(b"a/b/a/b", b"b/b/b/b", b"a/ab/ba/a.x", b"ba/a/a/a/b"),
]


@given(lines=st.lists(patterns, min_size=25, max_size=25), ignore_case=st.booleans())
def test_every_pattern_means_what_it_means_to_git(
    git_folder: Path, lines: list[bytes], ignore_case: bool
) -> None:
    """Twenty-five patterns, each alone in a folder, ignore just the paths that git says they do."""
    (git_folder / "info" / "exclude").write_bytes(b"")
    with TemporaryDirectory(dir=git_folder.parent) as name:
        root = Path(name)
        for number, line in enumerate(lines):
            (root / str(number)).mkdir()
            (root / str(number) / ".gitignore").write_bytes(line)
        asked = [b"%d/%s" % (number, path) for number in range(len(lines)) for path in PATHS]
        said = _git(
            root,
            f"--git-dir={git_folder}",
            f"--work-tree={root}",
            *("-c", f"core.ignorecase={str(ignore_case).lower()}"),
            *("-c", "core.excludesFile=/dev/null"),
            *("check-ignore", "--no-index", "-z", "--stdin"),
            given=b"\0".join(asked),
        )
    ours = [
        b"%d/%s" % (number, path)
        for number, line in enumerate(lines)
        for path in PATHS
        if _ignored(line, path, ignore_case)
    ]
    assert ours == said.split(b"\0")[:-1]


def test_a_folder_without_rules_of_its_own_costs_nothing() -> None:
    """Where no rule depends on the path, the rules below are the very same object."""
    rules = Ignore.at_root(own=b"/build\n*.log\ncache/\n")
    inside = rules.below(b"src")
    assert inside.below(b"kedge") is inside
    assert inside.excludes(b"x.log", is_folder=False)
    assert rules.excludes(b"build", is_folder=False)
    assert not inside.excludes(b"build", is_folder=False)


def test_a_rule_for_folders_leaves_files_and_symlinks_alone() -> None:
    """`x/` ignores the folder x and nothing else of that name."""
    rules = Ignore.at_root(own=b"x/")
    assert rules.excludes(b"x", is_folder=True)
    assert not rules.excludes(b"x", is_folder=False)


@pytest.mark.parametrize("rule", [b"a/*", b"/a/*", b"a/**", b"**/a/*", b"a/*/", b"a/?"])
def test_a_rule_for_what_is_in_a_folder_leaves_the_folder(rule: bytes) -> None:
    """`a/*` lets one look into the folder a, where a later rule may take something back."""
    rules = Ignore.at_root(own=rule + b"\n!a/b\n")
    assert not rules.excludes(b"a", is_folder=True)
    inside = rules.below(b"a")
    assert not inside.excludes(b"b", is_folder=True)
    assert inside.excludes(b"c", is_folder=True)


def test_the_deeper_file_has_the_last_word() -> None:
    """A .gitignore overrules those above it, which overrule info/exclude and the user's file."""
    root = Ignore.at_root(excludes_file=b"a\nb\nc\n", info_exclude=b"!b\n", own=b"!c\n")
    inner = root.below(b"in", b"c\n!a\n")
    assert [root.excludes(name, is_folder=False) for name in (b"a", b"b", b"c")] == [
        True,
        False,
        False,
    ]
    assert [inner.excludes(name, is_folder=False) for name in (b"a", b"b", b"c")] == [
        False,
        False,
        True,
    ]


HOSTILE = {
    "stars in a name": b"*a" * 100 + b"*b",
    "stars and sets": b"[ab]*" * 100 + b"c",
    "stars in a path": b"/" + b"*a" * 100 + b"*b/c",
    "double stars": b"**/a*/" * 100 + b"b",
    "both": b"/**/*a*a*a*b*/**/*a*a*c/**/*a*a*/**/x",
    "escaped slashes": b"**\\/a" * 100 + b"b",
    "a long row of stars": b"*" * 1_000_000 + b"b",
    "a long row of double stars": b"**/" * 300_000 + b"b",
    "a name too long": b"a" * 1_000_000,
    "wildcards too many": b"?*" * 500_000,
    "an open bracket": b"[" + b"[:" * 500_000 + b"]",
    "many plain rules": b"".join(b"name%d\n!/path/%d\n" % (n, n) for n in range(20_000)),
    "many wild rules": b"".join(b"a*%d?b\n" % n for n in range(5_000)),
}


@pytest.mark.parametrize("rules", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_rules_are_answered_in_time(rules: bytes) -> None:
    """No rule file makes its reading or a question blow up, however long the name and path."""
    began = process_time()
    folder = Ignore.at_root(own=rules)
    for _ in range(1500):
        folder = folder.below(b"a")
    assert not folder.excludes(b"a" * 250, is_folder=False)
    assert not folder.excludes(b"a" * 250, is_folder=True)
    assert process_time() - began < 10


def _git(cwd: Path, *arguments: str, given: bytes = b"") -> bytes:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "HOME": str(cwd),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env=environment, input=given, capture_output=True, check=False
    )
    # `check-ignore` ends with 1 where nothing is ignored.
    assert done.returncode in ((0, 1) if "check-ignore" in arguments else (0,)), done.stderr
    return done.stdout


def _write(path: bytes, folder: Folder) -> None:
    if folder.own:
        Path(os.fsdecode(path), ".gitignore").write_bytes(folder.own)
    for name, entry in folder.entries.items():
        target = path + b"/" + name
        if isinstance(entry, Folder):
            os.mkdir(target)
            _write(target, entry)
        elif entry:
            os.symlink(b".", target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))


def _walk(folder: Folder, rules: Ignore, path: bytes = b"") -> Iterator[bytes]:
    if folder.own and not rules.excludes(b".gitignore", is_folder=False):
        yield path + b".gitignore"
    files = [name for name, entry in folder.entries.items() if not isinstance(entry, Folder)]
    ignored = [name for name in files if rules.excludes(name, is_folder=False)]
    assert sorted(rules.excluded_files(files)) == sorted(ignored)
    for name, entry in folder.entries.items():
        if rules.excludes(name, is_folder=isinstance(entry, Folder)):
            continue
        if isinstance(entry, Folder):
            yield from _walk(entry, rules.below(name, entry.own), path + name + b"/")
        else:
            yield path + name


def _ignored(line: bytes, path: bytes, ignore_case: bool) -> bool:
    rules = Ignore.at_root(ignore_case=ignore_case).below(b"0", line)
    *parents, name = path.split(b"/")
    for parent in parents:
        if rules.excludes(parent, is_folder=True):
            return True
        rules = rules.below(parent)
    return rules.excludes(name, is_folder=False)
