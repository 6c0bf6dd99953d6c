"""What the checks are written with: a worktree to fill, its snapshots, and what git says of it."""

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kedge.domain.errors import KedgeError
from kedge.domain.file_states import Absent, Present, State, Uncovered
from kedge.snapshot import Snapshots
from kedge.snapshot.values import Change, Snapshot, SnapshotSettings
from tests.snapshot_fuzz.disk import Leaf, object_id
from tests.snapshot_fuzz.git import ask_git
from tests.snapshot_fuzz.oracle import tree_id

Content = bytes | Leaf
_YOUNG = 0.1
# How long a snapshot takes says more of the machine's load than of the snapshot.
DEFAULTS = SnapshotSettings(budget=600)
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class Opener(Protocol):
    """Opens the snapshots of a worktree; `data` is the folder for what they keep.

    Worktrees that are opened with the same `data` belong to one project.
    """

    def __call__(self, root: Path, data: Path, settings: SnapshotSettings) -> Snapshots: ...


@dataclass(frozen=True, slots=True)
class Scene:
    """An empty folder of a check's own, and how snapshots are opened."""

    folder: Path
    opener: Opener

    @property
    def root(self) -> Path:
        """The worktree."""
        return self.folder / "root"

    @contextmanager
    def snapshots(
        self, root: Path | None = None, settings: SnapshotSettings = DEFAULTS
    ) -> Iterator[Snapshots]:
        """The snapshots of the worktree, or of another one of the same project."""
        with self.opener(root or self.root, self.folder / "data", settings) as snapshots:
            yield snapshots

    # The worktree

    def repository(self, path: str = "") -> None:
        """Make a folder of the worktree a git repository."""
        (self.root / path).mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", path=path)

    def plain(self) -> None:
        """Make the worktree a folder without git."""
        self.root.mkdir()

    def git(self, *words: str | bytes, path: str = "") -> str:
        """What git prints in a folder of the worktree."""
        arguments = [os.fsencode(word) for word in words]
        return ask_git(arguments, folder=bytes(self.root / path)).decode(errors="replace").strip()

    def write(self, path: str | bytes, content: bytes = b"one\n", mode: int = 0o644) -> Path:
        """Write a file in place, with its folders; gives its path in full."""
        full = self.at(path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(content)
        full.chmod(mode)
        return full

    def link(self, path: str | bytes, target: str | bytes) -> Path:
        """Make a symbolic link."""
        full = self.at(path)
        full.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.fsencode(target), bytes(full))
        return full

    def at(self, path: str | bytes) -> Path:
        """A path of the worktree in full."""
        return self.root / os.fsdecode(path)

    def commit(self, path: str = "") -> None:
        """Commit everything."""
        self.git("add", "-A", path=path)
        self.git("commit", "-q", "--allow-empty", "-m", "a commit", path=path)

    def clear(self) -> None:
        """Remove everything but the worktree's own `.git`."""
        for path in self.root.iterdir():
            if path.name == ".git":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def on_disk(self) -> dict[bytes, bytes]:
        """Every file of the worktree with its bytes, and links with their targets after `-> `."""
        found = {}
        for folder, folders, names in os.walk(bytes(self.root)):
            folders[:] = [name for name in folders if name != b".git"]
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for path in (os.path.join(folder, name) for name in [*names, *links]):
                found[os.path.relpath(path, bytes(self.root))] = _bytes_of(path)
        return found


def _bytes_of(path: bytes) -> bytes:
    if os.path.islink(path):
        return b"-> " + os.readlink(path)
    with open(path, "rb") as file:
        return file.read()


SnapshotCheck = Callable[[Scene], None]


# What is expected


def plain(content: bytes, mode: int = 0o644) -> Leaf:
    """A file as it should be in a snapshot."""
    return Leaf(object_id(b"blob", content), stat.S_IFREG | mode)


def linked(target: bytes) -> Leaf:
    """A link as it should be in a snapshot."""
    return Leaf(object_id(b"blob", target), stat.S_IFLNK | 0o777)


def tree_of(files: Mapping[str, Content]) -> str:
    """The id of the git tree that holds exactly these files; bytes stand for a plain file."""
    return tree_id({os.fsencode(path): _leaf(content) for path, content in files.items()})


def present(content: Content) -> Present:
    """The state of a path that holds this."""
    leaf = _leaf(content)
    return Present(leaf.blob, leaf.mode)


def changed(snapshots: Snapshots, one: Snapshot, two: Snapshot) -> dict[bytes, tuple[State, State]]:
    """What changed between two snapshots, by path."""
    return {each.path: (each.before, each.after) for each in snapshots.changes(one, two)}


def settle(snapshots: Snapshots) -> None:
    """Take snapshots until nothing is so young any more that it is looked at again for that."""
    enough = time.monotonic() + _YOUNG
    while time.monotonic() < enough:
        snapshots.track()
    # The last one of these may have begun when something still was.
    snapshots.track()


def created(changes: Iterable[Change]) -> set[bytes]:
    """The paths that an undo would delete."""
    return {
        each.path
        for each in changes
        if isinstance(each.before, Absent) and isinstance(each.after, Present)
    }


def is_uncovered(state: State) -> bool:
    """Whether nothing is known of the path."""
    return isinstance(state, Uncovered)


def _leaf(content: Content) -> Leaf:
    return plain(content) if isinstance(content, bytes) else content


@contextmanager
def refused(kind: type[KedgeError]) -> Iterator[None]:
    """The block must raise this error."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """The process's environment with other variables, for the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
