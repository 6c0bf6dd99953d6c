"""Runs git on a user's repository without running its code and without writing into it.

git works in a folder of kedge's own. That borrows the repository's index and objects, and has
copies of its rules and of the settings by which files are compared; nothing else. So what the
repository configures (hooks, filters, a file system monitor, diff programs, remotes that have
missing objects) never runs, and what git writes is removed with the folder. All calls share one
deadline, and each answer has a size limit.
"""

import glob
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kedge.domain.errors import OperatorError
from kedge.engine.worktrees import find_worktree
from kedge.snapshot.repository.config import GitConfig, read_config
from kedge.snapshot.repository.discover import Repository
from kedge.snapshot.repository.git_cli import Heard, hear_git, without_configuration
from kedge.snapshot.repository.head import read_head
from kedge.snapshot.repository.signatures import LARGEST_RULES, read_small

LARGEST_TEXT = 32 << 20
"""Lines of larger files are not compared."""
_LARGEST_INDEX = 512 << 20
_LARGEST_SHALLOW = 64 << 20
_LONGEST_ANSWER = 16 << 20
_EMPTY_TREES = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_INDEX = "index"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateGit:
    """A private git folder for a user's worktree."""

    repository: Repository
    folder: str
    head: str
    """The last commit; before the first one, the empty tree."""
    empty_tree: str
    below: str
    """The part of the worktree to compare, relative to its root."""
    deadline: float
    """When the time for all calls is over, on the monotonic clock."""

    @property
    def is_late(self) -> bool:
        return time.monotonic() >= self.deadline

    def ask(
        self,
        *words: str,
        said: bytes = b"",
        index: str = _INDEX,
        most: int = _LONGEST_ANSWER,
        share: float = 1.0,
        borrows: bool = True,
    ) -> Heard:
        """Run git with `said` as its input and the named index of our folder, for at most this
        share of the remaining time; with `borrows` it can read the repository's objects."""
        now = time.monotonic()
        environment = without_configuration() | {
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_INDEX_FILE": os.path.join(self.folder, index),
        }
        if borrows:
            objects = _quoted(self.repository.objects_folder)
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = objects
        with self._stdin(said) as stdin:
            return hear_git(
                os.fsencode(self.folder),
                f"--work-tree={os.fsdecode(self.repository.root)}",
                *words,
                environment=environment,
                deadline=now + share * (self.deadline - now),
                most=most,
                stdin=stdin,
            )

    def write_index(self, name: str, entries: bytes) -> bool:
        """Add entries in the format of `git update-index --index-info` to an index; return whether
        git could."""
        if not entries:
            return True
        return self.ask("update-index", "-z", "--index-info", said=entries, index=name).status == 0

    def write_tree(self, name: str, entries: bytes) -> str | None:
        """A tree of these entries, in our own folder; None if git could not make it."""
        self.drop_index(name)
        if not entries:
            return self.empty_tree
        if not self.write_index(name, entries):
            return None
        # git does not write an object if it sees one of the same name, which may be broken.
        written = self.ask("write-tree", "--missing-ok", index=name, borrows=False)
        return written.said.decode().strip() if written.status == 0 else None

    def drop_index(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, name))

    @contextmanager
    def _stdin(self, said: bytes) -> Iterator[int]:
        """A file, not a pipe: git may answer before it has read everything."""
        if not said:
            yield subprocess.DEVNULL
            return
        with tempfile.TemporaryFile(dir=self.folder) as file:
            file.write(said)
            file.seek(0)
            yield file.fileno()


@contextmanager
def private_git(directory: str, patience: float) -> Iterator[PrivateGit | None]:
    """git for a directory's worktree, with so many seconds; None if there is no repository."""
    deadline = time.monotonic() + patience
    worktree = find_worktree(directory)
    repository = worktree.repository
    if repository is None:
        yield None
        return
    _check_rules(worktree.root)
    with tempfile.TemporaryDirectory(prefix="kedge-") as folder:
        config = read_config(repository)
        head = read_head(repository).commit
        _furnish(folder, repository, config, head)
        empty_tree = _EMPTY_TREES.get(config.object_format, "")
        yield PrivateGit(
            repository=repository,
            folder=folder,
            head=head or empty_tree,
            empty_tree=empty_tree,
            below=os.path.relpath(directory, worktree.root),
            deadline=deadline,
        )


def _check_rules(root: str) -> None:
    """Raise if one of the rule files is a pipe, on which git would block."""
    for name in (".gitignore", ".gitattributes"):
        path = os.path.join(root, name)
        with suppress(OSError):
            # git follows no links here.
            if stat.S_ISFIFO(os.lstat(path).st_mode):
                raise OperatorError(f"{path} is not a regular file: remove it and try again")


def _furnish(folder: str, repository: Repository, user: GitConfig, head: str | None) -> None:
    for name in ("refs", "objects", "info"):
        os.makedirs(os.path.join(folder, name))
    own_excludes, own_attributes = (
        _quoted(os.fsencode(os.path.join(folder, name))) for name in ("excludes", "attributes")
    )
    config = ["[core]", "repositoryformatversion = 1", "bare = false", "quotePath = false"]
    # So that git compares a file that is there although the sparse checkout leaves it out.
    config.append("sparseCheckout = true")
    config += [f"excludesFile = {own_excludes}", f"attributesFile = {own_attributes}"]
    config += user.comparing
    config.append(f"bigFileThreshold = {LARGEST_TEXT}")
    config += ["[extensions]", f"objectFormat = {user.object_format}"]
    files = {
        "HEAD": os.fsencode(head or "ref: refs/heads/none") + b"\n",
        "config": os.fsencode("\n".join(config)) + b"\n",
        # Copied, as a repository can name a pipe here, on which git would block.
        "excludes": _rules(user.excludes_file),
        "attributes": _rules(user.attributes_file),
        "info/exclude": _rules(repository.excludes_file),
        "info/attributes": _rules(repository.attributes_file),
    }
    # Without it git would look for commits that were never fetched.
    if shallow := read_small(repository.common_folder + b"/shallow", _LARGEST_SHALLOW):
        files["shallow"] = shallow
    for name, content in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    _copy_indexes(repository, os.fsencode(folder))


def _rules(path: bytes | None) -> bytes:
    return read_small(path or b"", LARGEST_RULES) or b""


def _copy_indexes(repository: Repository, folder: bytes) -> None:
    room = _LARGEST_INDEX
    for index in _indexes(repository):
        found = os.stat(index)
        room -= found.st_size
        if room < 0:
            raise OperatorError("the index of the repository is too large to read")
        copy = os.path.join(folder, os.path.basename(index))
        shutil.copyfile(index, copy)
        # git rereads files that are not older than the index; a younger copy would hide them.
        os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))


def _indexes(repository: Repository) -> list[bytes]:
    """The index files: a split index has a second file."""
    if not os.path.isfile(repository.index_file):
        return []
    shared = glob.glob(b"sharedindex.*", root_dir=repository.git_folder)
    paths = [os.path.join(repository.git_folder, name) for name in shared]
    return [repository.index_file, *filter(os.path.isfile, paths)]


def _quoted(path: bytes) -> str:
    text = os.fsdecode(path)
    for letter, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        text = text.replace(letter, escaped)
    return f'"{text}"'
