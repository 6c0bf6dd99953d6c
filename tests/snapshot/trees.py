"""A worktree on disk with its in-memory twin, for tests of the twin."""

import os
from collections.abc import Callable
from pathlib import Path

from kedge.snapshot.files.reader import stamp_of
from kedge.snapshot.files.root import Root
from kedge.snapshot.objects.formats import BLOB, TREE, object_id
from kedge.snapshot.worktree.covered_files import FileLimits
from kedge.snapshot.worktree.repositories import Spaces
from kedge.snapshot.worktree.state import WorktreeState
from kedge.snapshot.worktree.watch import Inotify, Rescan, Watch

# Tests that count reads cannot wait until files are old enough to be trusted.
LIMITS = FileLimits(file_size=1000, files=10_000, window_ns=0)
WATCHES: dict[str, Callable[[], Watch]] = {"inotify": Inotify, "scan": Rescan}


class Twin:
    """A folder, and what the in-memory tree says of it."""

    def __init__(self, root: Path, watch: Watch, limits: FileLimits = LIMITS) -> None:
        self.root = root
        self.objects: dict[bytes, bytes] = {}
        path = os.fsencode(root)
        self.worktree = WorktreeState(
            Root(path), Spaces(path, path + b"-data"), watch, self._put_blob, limits
        )

    def _put_blob(self, content: bytes) -> bytes:
        return self._put(BLOB, content)

    def _put_tree(self, content: bytes) -> bytes:
        return self._put(TREE, content)

    def _put(self, kind: bytes, content: bytes) -> bytes:
        id = object_id(kind, content)
        self.objects[id] = content
        return id

    def write(self, path: str, content: str = "x\n") -> Path:
        """Write a file of the folder, so that its stat data show it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        before = stamp_of(file.stat()) if file.exists() else None
        file.write_text(content)
        while stamp_of(file.stat()) == before:
            # The file system's clock has not moved on yet, and with `LIMITS` nobody looks twice.
            file.write_text(content)
        return file

    def files(self) -> dict[str, str]:
        """The covered files after a refresh, with their content."""
        self.worktree.refresh()
        top = self.worktree.top
        return {
            os.fsdecode(folder.path + b"/" + name)[len(str(self.root)) + 1 :]: self.objects[
                file.blob
            ].decode()
            for folder in top.everything()
            for name, file in folder.files.items()
        }

    def snapshot(self) -> tuple[bytes, bytes]:
        """Both trees after a refresh."""
        self.worktree.refresh()
        trees = self.worktree.write(self._put_tree, self._put_blob)
        return trees.files, trees.notes
