"""`Attributes` against `git check-attr`: it never misses a conversion, and seldom fears one."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.snapshot.ignore.attributes import CONVERTING, Attributes

FOLDERS = (b"", b"a", b"a/b", b"b")
NAMES = (b"a", b"b", b"A", b"a.x", b"a b", b'a"', b"\xff", b"a\n", b"#a", b"ba", b"a.X")
PATHS = tuple(
    b"/".join(filter(None, (folder, name + b"~"))) for folder in FOLDERS for name in NAMES
)

# The names end in a tilde, so that none is also a folder.
atoms = st.sampled_from(
    [
        *(b"a", b"b", b"A", b".x", b"*", b"*", b"**", b"?", b"/", b"/", b"**/", b"/**", b"~", b"~"),
        *(b"[ab]", b"[!a]", b"[", b"\\", b"\\a", b"\xff", b"#", b"!", b'"'),
    ]
)
bare = st.lists(atoms, min_size=1, max_size=5).map(b"".join)
quoted = st.lists(
    st.one_of(atoms, st.sampled_from([b" ", b"\\n", b"\\377", b"\\141", b'\\"', b"\\\\", b"\\q"])),
    min_size=1,
    max_size=5,
).map(lambda parts: b'"' + b"".join(parts) + b'"')
patterns = st.one_of(bare, bare, quoted)
sound = patterns.filter(lambda pattern: b'"' not in pattern[1:-1])
sets = [
    *(b"text", b"text=auto", b"eol=lf", b"crlf", b"crlf=input", b"ident", b"filter=lfs", b"text="),
    *(b"working-tree-encoding=UTF-16", b"diff", b"merge=union", b"binary", b"m", b"n", b"k"),
]
clears = [b"-text", b"!text", b"-crlf", b"!eol", b"-filter", b"-m", b"!m", b"-binary", b"!n"]
MACROS = [
    b"",
    b"[attr]m text",
    b"[attr]m n",
    b"[attr]n -text ident",
    b"[attr]n\tk",
    b"[attr]k eol=lf",
]


def attribute_files(
    words: Iterable[bytes],
    macros: Iterable[bytes] = MACROS,
    patterns: st.SearchStrategy[bytes] = patterns,
) -> st.SearchStrategy[bytes]:
    """Contents of attribute files that use these words and patterns and define these macros."""
    lines = st.builds(
        lambda blank, pattern, words, end: blank + pattern + b" " + b"\t ".join(words) + end,
        st.sampled_from([b"", b"", b" ", b"\t"]),
        patterns,
        st.lists(st.sampled_from(list(words)), min_size=1, max_size=3),
        st.sampled_from([b"", b" ", b"\r"]),
    )
    return st.builds(
        lambda mark, lines: mark + b"\n".join(lines),
        st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
        st.lists(st.one_of(lines, lines, st.sampled_from(list(macros))), max_size=5),
    )


@pytest.fixture(scope="module")
def git_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The git folder that every example's worktree borrows."""
    folder = tmp_path_factory.mktemp("repository")
    _git(folder, "init", "--quiet", ".")
    return folder / ".git"


def contents(files: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[bytes, bytes]]:
    """A .gitattributes for some of the folders."""
    return st.dictionaries(st.sampled_from(FOLDERS), files)


@given(
    own=contents(attribute_files([*sets, *clears])),
    info=attribute_files([*sets, *clears]),
    user=attribute_files([*sets, *clears]),
    ignore_case=st.booleans(),
)
def test_no_conversion_is_missed(
    git_folder: Path, own: dict[bytes, bytes], info: bytes, user: bytes, ignore_case: bool
) -> None:
    """Every file to which git gives a converting attribute is one that may be converted."""
    converted = _converted_by_git(git_folder, own, info, user, ignore_case)
    assert converted <= _converted_by_us(own, (info, user), ignore_case)


@given(
    own=contents(attribute_files(sets, [b""], sound)),
    info=attribute_files(sets, [b""], sound),
    user=attribute_files(sets, [b"[attr]m n\n[attr]n ident\n[attr]k diff\n"], sound),
    ignore_case=st.booleans(),
)
def test_where_nothing_is_taken_back_it_is_exact(
    git_folder: Path, own: dict[bytes, bytes], info: bytes, user: bytes, ignore_case: bool
) -> None:
    """Without lines that turn a conversion off again or are in error, the answers are git's."""
    taken_back = {b"binary"}  # It is a macro that says -text.
    own, info, user = (
        {folder: _without(content, taken_back) for folder, content in own.items()},
        _without(info, taken_back),
        _without(user, taken_back),
    )
    converted = _converted_by_git(git_folder, own, info, user, ignore_case)
    assert converted == _converted_by_us(own, (info, user), ignore_case)


def test_a_line_for_some_files_leaves_the_others_alone() -> None:
    """`*.bat ident` says nothing of other files, and line ends are told by the size."""
    attributes = Attributes.at_root(own=b"*.bat ident\n*.png binary\n* text=auto eol=crlf\n")
    assert attributes.may_convert(b"run.bat")
    assert not attributes.may_convert(b"run.sh")
    assert not attributes.may_convert(b"run.png")


def test_a_pattern_for_folders_gives_files_nothing() -> None:
    """Attributes are not inherited from folders: `docs/ ident` concerns no file."""
    attributes = Attributes.at_root(own=b"docs/ ident\n/lib ident\n")
    assert not attributes.may_convert(b"docs")
    assert not attributes.below(b"docs").may_convert(b"a")
    assert not attributes.below(b"lib").may_convert(b"a")


def test_macros_may_lead_through_one_another_in_a_circle() -> None:
    """A macro that ends in a converting attribute converts, whatever else it names."""
    macros = b"[attr]one two\n[attr]two three one\n[attr]three filter=x\n[attr]four four\n"
    attributes = Attributes.at_root(files=[macros], own=b"*.a one\n*.b four\n")
    assert attributes.may_convert(b"x.a")
    assert not attributes.may_convert(b"x.b")


def _without(content: bytes, words: set[bytes]) -> bytes:
    for word in words:
        content = content.replace(word, b"diff")
    return content


def _converted_by_us(
    own: dict[bytes, bytes], files: tuple[bytes, ...], ignore_case: bool
) -> set[bytes]:
    root = Attributes.at_root(files=files, own=own.get(b"", b""), ignore_case=ignore_case)
    found = set()
    for path in PATHS:
        *parents, name = path.split(b"/")
        attributes, folder = root, b""
        for parent in parents:
            folder = folder + b"/" + parent if folder else parent
            attributes = attributes.below(parent, own.get(folder, b""))
        if attributes.may_convert(name):
            found.add(path)
    return found


def _converted_by_git(
    git_folder: Path, own: dict[bytes, bytes], info: bytes, user: bytes, ignore_case: bool
) -> set[bytes]:
    (git_folder / "info").mkdir(exist_ok=True)
    (git_folder / "info" / "attributes").write_bytes(info)
    (git_folder / "user").write_bytes(user)
    with TemporaryDirectory(dir=git_folder.parent) as name:
        root = Path(name)
        for folder in FOLDERS:
            (root / os.fsdecode(folder)).mkdir(parents=True, exist_ok=True)
        for folder, content in own.items():
            (root / os.fsdecode(folder) / ".gitattributes").write_bytes(content)
        said = _git(
            root,
            f"--git-dir={git_folder}",
            f"--work-tree={root}",
            *("-c", f"core.attributesFile={git_folder / 'user'}"),
            *("-c", f"core.ignorecase={str(ignore_case).lower()}"),
            *("check-attr", "--stdin", "-z", *(os.fsdecode(each) for each in CONVERTING)),
            given=b"\0".join(PATHS),
        )
    fields = said.split(b"\0")[:-1]
    answers = zip(fields[0::3], fields[2::3], strict=True)
    return {path for path, value in answers if value not in (b"unspecified", b"unset")}


def _git(cwd: Path, *arguments: str, given: bytes = b"") -> bytes:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "HOME": str(cwd),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env=environment, input=given, capture_output=True, check=True
    )
    return done.stdout
