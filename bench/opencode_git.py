"""The git commands that OpenCode 1.18.33 runs for its snapshots, and nothing around them.

Read off the published binary, and seen in logs of what `opencode debug snapshot` and the reverts of
`opencode serve` start. Only git is run: the patch texts that OpenCode then makes in JavaScript are
not part of `diff_full` here.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LINKS = ("-c", "core.longpaths=true", "-c", "core.symlinks=true")
_BYTES = ("-c", "core.autocrlf=false", *_LINKS)
_NAMES = (*_BYTES, "-c", "core.quotepath=false")
_SETTINGS = (
    ("core.autocrlf", "false"),
    ("core.longpaths", "true"),
    ("core.symlinks", "true"),
    ("core.fsmonitor", "false"),
    ("feature.manyFiles", "true"),
    ("index.version", "4"),
    ("index.threads", "true"),
    ("core.untrackedCache", "true"),
)
_LARGE = 2 * 1024 * 1024
_BATCH = 100
"""How many files OpenCode gives to one git when it diffs or reverts."""
_FROM_INPUT = ("--pathspec-from-file=-", "--pathspec-file-nul")


def git(
    *arguments: str,
    folder: Path,
    given: bytes = b"",
    also: Mapping[str, str] | None = None,
    fine: Sequence[int] = (0,),
) -> bytes:
    """What one git prints."""
    return _printed(_start(arguments, folder, also), given, fine)


@dataclass(frozen=True, slots=True)
class OpenCode:
    """A worktree of the user's and OpenCode's store for it."""

    worktree: Path
    store: Path

    def begin(self) -> None:
        """Make the store, and seed it with the user's objects and index."""
        self.store.mkdir(parents=True)
        names = {"GIT_DIR": str(self.store), "GIT_WORK_TREE": str(self.worktree)}
        git("init", folder=self.worktree, also=names)
        for name, value in _SETTINGS:
            git("--git-dir", str(self.store), "config", name, value, folder=self.worktree)
        found = self._plain("rev-parse", "--path-format=absolute", "--git-common-dir")
        theirs = Path(os.fsdecode(found.strip()))
        alternates = self.store / "objects/info/alternates"
        alternates.parent.mkdir(parents=True, exist_ok=True)
        alternates.write_text(f"{theirs / 'objects'}\n")
        shutil.copyfile(theirs / "index", self.store / "index")

    def track(self) -> str:
        """Take a snapshot; gives its tree."""
        self._add()
        return self._plain(*self._own("write-tree")).decode().strip()

    def patch(self, since: str) -> list[str]:
        """The files that changed since a snapshot."""
        self._add()
        asked = self._own("diff", "--cached", "--no-ext-diff", "--name-only", since, "--", ".")
        files = self._plain(*_NAMES, *asked).decode().split("\n")[:-1]
        ignored = self._ignored(files)
        return [str(self.worktree / each) for each in files if each not in ignored]

    def restore(self, tree: str) -> None:
        """Write every file of a snapshot."""
        self._plain(*_LINKS, *self._own("read-tree", tree))
        self._plain(*_LINKS, *self._own("checkout-index", "-a", "-f"))

    def revert(self, tree: str, files: Sequence[str]) -> None:
        """Write the named files of a snapshot."""
        for batch in _batches(files):
            if len(batch) > 1:
                names = [os.path.relpath(each, self.worktree) for each in batch]
                self._plain(*_LINKS, *self._own("ls-tree", "--name-only", tree, "--", *names))
            self._plain(*_LINKS, *self._own("checkout", tree, "--", *batch))

    def diff_full(self, before: str, after: str) -> bytes:
        """What the patches between two snapshots are made from."""
        between = (before, after, "--", ".")
        asked = ("diff", "--no-ext-diff", "--name-status", "--no-renames", *between)
        self._plain(*_NAMES, *self._own(*asked))
        asked = ("diff", "--no-ext-diff", "--no-renames", "--numstat", *between)
        counts = self._plain(*_NAMES, *self._own(*asked)).decode()
        files = [line.split("\t")[2] for line in counts.splitlines()]
        self._ignored(files)
        contents = []
        for batch in _batches(files):
            wanted = "".join(f"{before}:{each}\n{after}:{each}\n" for each in batch)
            reading = self._own("cat-file", "--batch")
            contents.append(self._plain(*_BYTES, *reading, given=wanted.encode()))
        return b"".join(contents)

    def undo(self, first: str, last: str, files: Sequence[str]) -> None:
        """Revert a session from its last snapshot to its first, and tell what that did."""
        found = self.track()
        self.revert(first, files)
        self._add()
        asked = self._own("diff", "--cached", "--no-ext-diff", found, "--", ".")
        self._plain(*_NAMES, *asked)
        self.diff_full(first, last)

    def collect(self) -> None:
        """What it does once an hour."""
        self._plain(*self._own("gc", "--prune=7.days"))

    def _add(self) -> None:
        self._exclude(())
        changed, new = self._listed()
        files = list(dict.fromkeys((*changed, *new)))
        ignored = self._ignored(files)
        if ignored:
            asked = self._own("rm", "--cached", "-f", "--ignore-unmatch", *_FROM_INPUT)
            self._plain(*_BYTES, *asked, given=_specs(ignored))
        kept = [each for each in files if each not in ignored]
        if not kept:
            return
        large = {each for each in kept if _size(self.worktree / each) > _LARGE}.intersection(new)
        self._exclude(large)
        asked = self._own("add", "--all", "--sparse", *_FROM_INPUT)
        self._plain(*_BYTES, *asked, given=_specs(each for each in kept if each not in large))

    def _listed(self) -> tuple[list[str], list[str]]:
        """Files that changed and files that are new, asked of two gits at the same time."""
        changed = ("diff-files", "--name-only", "-z", "--", ".")
        new = ("ls-files", "--full-name", "--others", "--exclude-standard", "-z", "--", ".")
        both = [_start((*_NAMES, *self._own(*each)), self.worktree) for each in (changed, new)]
        first, second = (_printed(each, b"", (0,)).decode().split("\0")[:-1] for each in both)
        return first, second

    def _ignored(self, files: Sequence[str]) -> set[str]:
        if not files:
            return set()
        theirs = ("--git-dir", str(self.worktree / ".git"), "--work-tree", str(self.worktree))
        asked = (*_NAMES, *theirs, "check-ignore", "--no-index", "--stdin", "-z")
        given = "".join(f"{each}\0" for each in files).encode()
        # 1: none of them is ignored.
        found = git(*asked, folder=self.worktree, given=given, fine=(0, 1))
        return set(found.decode().split("\0")[:-1])

    def _exclude(self, large: Iterable[str]) -> None:
        """Copy the user's own excludes into the store, with files that are too large."""
        found = self._plain("rev-parse", "--path-format=absolute", "--git-path", "info/exclude")
        theirs = Path(os.fsdecode(found.strip()))
        rules = theirs.read_text().rstrip() if theirs.exists() else ""
        ours = self.store / "info/exclude"
        ours.parent.mkdir(exist_ok=True)
        ours.write_text("\n".join([rules, *(f"/{each}" for each in large)]) + "\n")

    def _own(self, *command: str) -> tuple[str, ...]:
        return ("--git-dir", str(self.store), "--work-tree", str(self.worktree), *command)

    def _plain(self, *arguments: str, given: bytes = b"") -> bytes:
        return git(*arguments, folder=self.worktree, given=given)


def _start(
    arguments: Sequence[str], folder: Path, also: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    # The user's own settings would make two results incomparable.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    apart = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.Popen(
        ["git", *arguments],
        cwd=folder,
        env={**own, **apart, **(also or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _printed(process: subprocess.Popen[bytes], given: bytes, fine: Sequence[int]) -> bytes:
    printed, complaint = process.communicate(given)
    if process.returncode not in fine:
        raise RuntimeError(f"{process.args!r} gave {process.returncode}: {complaint.decode()}")
    return printed


def _batches(files: Sequence[str]) -> Iterator[Sequence[str]]:
    return (files[at : at + _BATCH] for at in range(0, len(files), _BATCH))


def _specs(files: Iterable[str]) -> bytes:
    return "".join(f":(top,literal){each}\0" for each in files).encode()


def _size(path: Path) -> int:
    return path.lstat().st_size if path.exists() else 0
