"""Asks the real git which files of a repository its rules let in; it decides nothing itself."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.snapshot_fuzz.git import ask_git

_GITLINK = b"160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruled:
    """What the rules of one repository say; paths are relative to its root."""

    files: frozenset[bytes]
    """Tracked, or neither tracked nor ignored."""
    ignored_folders: frozenset[bytes]
    modules: frozenset[bytes]
    """Folders that the index holds as repositories of their own."""
    tracked: frozenset[bytes]
    """What the index holds, whether it is on disk or not."""


def ruled_by_git(root: bytes, git_folder: bytes | None, folders: Iterable[bytes]) -> Ruled:
    """Ask about the worktree `root`; without a git folder as if it were a new repository."""
    with _rule_space(root, git_folder) as space:
        staged = _staged(space)
        modules = frozenset(path for path, mode in staged if mode == _GITLINK)
        if modules:
            _forget(space, modules)
        files = space.ask(b"ls-files", b"-z", b"--cached", b"--others", b"--exclude-standard")
        # A path that ends with a slash is a nested repository, which has rules of its own.
        names = (path for path in files.split(b"\0") if path and not path.endswith(b"/"))
        return Ruled(
            files=frozenset(names),
            ignored_folders=_ignored(space, folders),
            modules=modules,
            tracked=frozenset(path for path, _ in staged),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    root: bytes
    git_folder: bytes
    index: bytes

    def ask(self, *arguments: bytes, stdin: bytes = b"", good: tuple[int, ...] = (0,)) -> bytes:
        where = [b"--git-dir=" + self.git_folder, b"--work-tree=" + self.root]
        return ask_git(
            [*where, b"-c", b"core.fsmonitor=false", *arguments],
            folder=self.root,
            stdin=stdin,
            good=good,
            environment={"GIT_INDEX_FILE": self.index},
        )


@contextmanager
def _rule_space(root: bytes, git_folder: bytes | None) -> Iterator[_Space]:
    """The user's rules with a copy of the user's index."""
    with tempfile.TemporaryDirectory(prefix="kedge-oracle-") as scratch:
        index = os.fsencode(scratch) + b"/index"
        if git_folder is None:
            git_folder = os.fsencode(scratch) + b"/git"
            ask_git([b"init", b"-q", b"--bare", git_folder], folder=b"/")
        elif os.path.exists(git_folder + b"/index"):
            with open(git_folder + b"/index", "rb") as source, open(index, "wb") as copy:
                copy.write(source.read())
        yield _Space(root=root, git_folder=git_folder, index=index)


def _staged(space: _Space) -> list[tuple[bytes, bytes]]:
    lines = space.ask(b"ls-files", b"-z", b"--stage").split(b"\0")
    return [(line.split(b"\t", 1)[1], line.split(b" ", 1)[0]) for line in lines if line]


def _forget(space: _Space, paths: Iterable[bytes]) -> None:
    """Take paths out of the copied index: git does not look below a folder it holds as a module."""
    space.ask(b"update-index", b"-z", b"--force-remove", b"--stdin", stdin=b"\0".join(paths))


def _ignored(space: _Space, folders: Iterable[bytes]) -> frozenset[bytes]:
    # The `./` keeps a name that begins with a colon from being taken for a pathspec with magic.
    asked = b"\0".join(b"./" + path for path in folders)
    if not asked:
        return frozenset()
    said = space.ask(b"check-ignore", b"-z", b"--stdin", b"--no-index", stdin=asked, good=(0, 1))
    return frozenset(path.removeprefix(b"./") for path in said.split(b"\0") if path)
