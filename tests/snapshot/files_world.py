"""A worktree to write in, a tree outside that must never change, and a say before every system
call of the code under test: to edit files like a person would, or to die."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kedge.domain.file_states import Absent, FileStep, Present, State
from kedge.snapshot.files import atomic, reader, steps
from kedge.snapshot.files import root as opening
from kedge.snapshot.files import steps as names
from kedge.snapshot.files import writer as folders
from kedge.snapshot.files import writer as writing
from kedge.snapshot.files.reader import look_at
from kedge.snapshot.files.root import Root
from kedge.snapshot.files.writer import Writer, clean_up
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Result

TAG = "plan_1"
_MODULES = (folders, atomic, opening, reader, atomic, steps, writing)
# `fsync` is left out: it runs in threads, and changes nothing that the next call does not show.
_CALLS = {
    "open", "lstat", "fstat", "read", "readlink", "write", "rename", "unlink", "link", "symlink",
    "mkdir", "rmdir", "fchmod", "fchown",
}  # fmt: skip


class Killed(BaseException):
    """The process ended here."""


class World:
    """A root, the canary beside it, and an object store in memory."""

    def __init__(self, base: Path) -> None:
        self.path = base / "root"
        self.outside = base / "outside"
        self.path.mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "canary").write_bytes(b"canary")
        self.blobs: dict[str, bytes] = {}

    def present(self, data: bytes, mode: int = 0o100644) -> Present:
        """The state of a file with this content, which the store then has."""
        blob = blob_id(data).hex()
        self.blobs[blob] = data
        return Present(blob, mode)

    def link(self, target: bytes) -> Present:
        return self.present(target, 0o120777)

    def lay(self, path: bytes, state: State) -> None:
        """Make a path be in a state."""
        place = self.at(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(state, Present) and state.is_link:
            place.symlink_to(os.fsdecode(self.blobs[state.blob]))
        elif isinstance(state, Present):
            place.write_bytes(self.blobs[state.blob])
            place.chmod(stat.S_IMODE(state.mode))

    def at(self, path: bytes) -> Path:
        return self.path / os.fsdecode(path)

    def state(self, path: bytes) -> object:
        """What is at a path; its folder must be there."""
        place = os.fsencode(self.at(path))
        fd = os.open(os.path.dirname(place), os.O_RDONLY)
        try:
            return look_at(fd, os.path.basename(place))
        finally:
            os.close(fd)

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        with (
            Root(os.fsencode(self.path)) as root,
            Writer(root, self.blobs.__getitem__, tag=TAG) as writer,
        ):
            yield writer

    def put(self, *steps: FileStep) -> list[Result]:
        with self.writer() as writer:
            return writer.put(steps)

    def put_one(self, path: bytes, expect: State, want: State) -> Result:
        return self.put(FileStep(number=0, path=path, expect=expect, want=want))[0]

    def clean_up(
        self, *steps: FileStep, is_stored: Callable[[str], bool] | None = None
    ) -> list[Result]:
        with Root(os.fsencode(self.path)) as root:
            return clean_up(root, steps, tag=TAG, is_stored=is_stored)

    def contents(self) -> list[bytes]:
        """The bytes of all files and symlinks below the root."""
        found = []
        for folder, below, files in os.walk(os.fsencode(self.path)):
            for name in [*below, *files]:
                place = os.path.join(folder, name)
                if os.path.islink(place):
                    found.append(os.readlink(place))
                elif os.path.isfile(place):
                    found.append(Path(os.fsdecode(place)).read_bytes())
        return found

    def own_names(self) -> list[bytes]:
        """What kedge left lying about."""
        tree = os.walk(os.fsencode(self.path))
        return [name for _, below, files in tree for name in [*below, *files]
                if names.is_own_name(name)]  # fmt: skip

    def assert_outside_untouched(self) -> None:
        assert os.listdir(self.outside) == ["canary"]
        assert (self.outside / "canary").read_bytes() == b"canary"
        assert stat.S_IMODE((self.outside / "canary").stat().st_mode) == 0o644


class _Boundaries:
    """Stands in for `os` and calls back before every system call that matters."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever `os` has
        real = getattr(os, name)
        if name not in _CALLS:
            return real

        def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - passed through
            self._before()
            return real(*arguments, **options)

        return call


@contextmanager
def watched(before: Callable[[], None]) -> Iterator[None]:
    """Call back before each system call of the code under test."""
    rename_with = atomic._rename_with

    def rename(dir_fd: int, name: bytes, new: bytes, flag: int) -> bool:
        before()
        return rename_with(dir_fd, name, new, flag)

    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            patch.setattr(module, "os", _Boundaries(before))
        patch.setattr(atomic, "_rename_with", rename)
        yield


def dying_at(count: int) -> Callable[[], None]:
    """Let that many system calls through; then none ever again."""
    left = count

    def before() -> None:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1

    return before


@contextmanager
def file_system(kind: str) -> Iterator[None]:
    """`swapping` is what this machine has; `linking` cannot swap, `plain` has no hard links too.

    None of them syncs: a killed process does not lose what it wrote, and the disk takes long.
    """

    def no_link(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        if kind != "swapping":
            patch.setattr(atomic, "_rename_with", lambda *arguments: False)
        if kind == "plain":
            patch.setattr(os, "link", no_link)
        yield


def step(number: int, path: bytes, expect: State, want: State) -> FileStep:
    """A step, in one line of a test."""
    return FileStep(number=number, path=path, expect=expect, want=want)


ABSENT = Absent()
