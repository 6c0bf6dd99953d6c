"""Decides which entries of a folder git would leave out of `git add --all`, on the way down.

Only rules are applied here. That git always leaves out `.git`, and never a file that it already
tracks, is up to the caller; so is reading the files: git ignores a `.gitignore` that is a symlink.
"""

from collections.abc import Collection, Iterator
from functools import lru_cache

from kedge.snapshot.ignore.rules import FOLDER, Level, Pattern, Rules

_BOM = b"\xef\xbb\xbf"


class Ignore:
    """The ignore rules that apply inside one folder."""

    __slots__ = ("_fold", "_levels", "_same_below")

    def __init__(self, levels: tuple[Level, ...], *, fold: bool) -> None:
        """Take the rules of this folder and of its parents, the deepest first."""
        self._levels = levels
        self._fold = fold
        self._same_below = all(level.path is None for level in levels)

    @classmethod
    def at_root(
        cls,
        *,
        excludes_file: bytes = b"",
        info_exclude: bytes = b"",
        own: bytes = b"",
        ignore_case: bool = False,
    ) -> "Ignore":
        """Take the contents of core.excludesFile, info/exclude and the root's .gitignore."""
        # All three are relative to the root, so they can be read as one file.
        rules = _rules_of(excludes_file, info_exclude, own, fold=ignore_case)
        return cls((Level.own(rules),) if rules else (), fold=ignore_case)

    def below(self, name: bytes, own: bytes = b"") -> "Ignore":
        """The rules inside the sub-folder `name` whose .gitignore holds `own`."""
        if self._same_below and not own:
            return self
        if self._fold:
            name = name.lower()
        levels = tuple([level.below(name) for level in self._levels])
        rules = _rules_of(own, fold=self._fold) if own else None
        return Ignore((Level.own(rules), *levels) if rules else levels, fold=self._fold)

    def excluded_files(self, names: Collection[bytes]) -> list[bytes]:
        """The files of this folder that are ignored."""
        if not self._fold:
            # Nearly all names match nothing, which can be checked quickly for all of them together.
            rest = [each for level in self._levels for each in level.may_match(names)]
            names = dict.fromkeys(rest)
        return [name for name in names if self.excludes(name, False)]

    def excludes(self, name: bytes, is_folder: bool) -> bool:
        """Whether an entry of this folder is ignored; a symlink is not a folder."""
        if is_folder:
            name += FOLDER
        if self._fold:
            name = name.lower()
        for level in self._levels:
            pattern = level.match(name)
            if pattern is not None:
                return not pattern.negated
        return False


@lru_cache(maxsize=1024)
def _rules_of(*files: bytes, fold: bool) -> Rules:
    """The rules in these contents, later ones stronger; cached, as many folders have the same."""
    return Rules(
        [Pattern.parse(line, fold=fold) for content in files for line in _patterns_in(content)]
    )


def _patterns_in(content: bytes) -> Iterator[bytes]:
    """The patterns in an ignore file, without comments, line ends and trailing spaces."""
    for line in content.removeprefix(_BOM).split(b"\n"):
        if line and not line.startswith(b"#"):
            # To git a line is a C string, which ends at a NUL byte.
            pattern = _trimmed(line.removesuffix(b"\r").partition(b"\0")[0])
            if pattern:
                yield pattern


def _trimmed(line: bytes) -> bytes:
    """A line without trailing spaces, except for an escaped one."""
    bare = line.rstrip(b" ")
    backslashes = len(bare) - len(bare.rstrip(b"\\"))
    return line[: len(bare) + backslashes % 2]
