"""A worktree in memory: files, symlinks and folders, changed only as a real one could be."""

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self, TypeAlias

from kedge.domain.file_states import Absent, Present
from kedge.engine.revert.plan import Plan
from kedge.snapshot.files.reader import Blocked, Disk, Folder, is_same
from kedge.snapshot.objects.formats import blob_id

State: TypeAlias = Present | Absent
FILE = stat.S_IFREG | 0o644
LINK = stat.S_IFLNK | 0o777


def prefixes(path: bytes) -> Iterator[bytes]:
    """The folders above a path, the nearest first."""
    while path := path.rpartition(b"/")[0]:
        yield path


class Blobs(dict[str, bytes]):
    """Every content that was ever on disk, as the object store keeps them."""

    def put(self, content: bytes) -> str:
        """Keep a content; its id."""
        id = blob_id(content).hex()
        self[id] = content
        return id

    def file(self, content: bytes, mode: int = FILE) -> Present:
        """The state of a path with this content."""
        return Present(self.put(content), mode)


@dataclass
class Tree:
    """What is on disk. Every change is checked as strictly as a file system would."""

    files: dict[bytes, Present] = field(default_factory=dict)
    folders: set[bytes] = field(default_factory=set)

    def copy(self) -> Self:
        return type(self)(dict(self.files), set(self.folders))

    def state(self, path: bytes) -> State:
        """The file or symlink at a path."""
        return self.files.get(path, Absent())

    def disk(self, path: bytes) -> Disk:
        """What is at a path, as `Snapshots.look` says it."""
        blocking = [folder for folder in prefixes(path) if folder in self.files]
        if blocking:
            return Blocked(blocking[0])
        if path in self.folders:
            return Folder(frozenset(self.below(path)))
        return self.state(path)

    def below(self, path: bytes) -> list[bytes]:
        """The files and symlinks below a path."""
        return sorted(each for each in self.files if each.startswith(path + b"/"))

    def delete(self, path: bytes) -> None:
        """Remove a file or symlink; its folder stays."""
        del self.files[path]

    def write(self, path: bytes, state: Present) -> list[bytes]:
        """Put a file or symlink at a path; the folders that had to be made."""
        assert path not in self.folders, f"a folder is at {path!r}"
        made = [folder for folder in prefixes(path) if folder not in self.folders]
        for folder in made:
            assert folder not in self.files, f"{folder!r} is in the way of {path!r}"
        self.folders.update(made)
        self.files[path] = state
        return made

    def remove_if_empty(self, folder: bytes) -> None:
        """Remove a folder unless something is in it."""
        if not any(each.startswith(folder + b"/") for each in (*self.files, *self.folders)):
            self.folders.discard(folder)

    def remove_if_hollow(self, folder: bytes) -> None:
        """Remove a folder in which there are only folders."""
        if not self.below(folder):
            self.folders -= {each for each in self.folders if each.startswith(folder + b"/")}
            self.folders.discard(folder)

    def change(self, changes: Iterable[tuple[bytes, State]]) -> list[bytes]:
        """Make paths hold states, deletions first; the folders that had to be made."""
        made: list[bytes] = []
        wanted = dict(changes)
        for path, state in wanted.items():
            if isinstance(state, Absent):
                self.delete(path)
        for path, state in wanted.items():
            if isinstance(state, Present):
                self.remove_if_hollow(path)
                made += self.write(path, state)
        return made

    def carry_out(self, plan: Plan) -> list[bytes]:
        """Apply a plan as the applier does, but let nothing pass that is not as expected."""
        made: list[bytes] = []
        assert [step.number for step in plan.steps] == list(range(len(plan.steps)))
        assert len({step.path for step in plan.steps}) == len(plan.steps)
        deletions = [step for step in plan.steps if isinstance(step.want, Absent)]
        assert list(plan.steps[: len(deletions)]) == deletions
        for step in plan.steps:
            assert not is_same(self.state(step.path), step.want), "a step that does nothing"
        for step in deletions:
            assert is_same(self.state(step.path), step.expect)
            self.delete(step.path)
        for folder in plan.folders:
            self.remove_if_empty(folder)
        for step in plan.steps[len(deletions) :]:
            assert is_same(self.state(step.path), step.expect)
            assert isinstance(step.want, Present)
            self.remove_if_hollow(step.path)
            made += self.write(step.path, step.want)
        return made
