"""Trees of made-up files for the tests of diffs: in memory and in a real git."""

import os
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

from kedge.snapshot.diffs.trees import Node
from kedge.snapshot.objects.formats import (
    BLOB,
    FOLDER_MODE,
    TREE,
    Entry,
    blob_id,
    encode_tree,
    object_id,
)

FILE, PROGRAM, LINK = 0o100644, 0o100755, 0o120000

Files = dict[bytes, tuple[int, bytes]]
"""Paths with git's mode and the content."""


class Objects:
    """Git objects in memory, which know how often one was read."""

    def __init__(self) -> None:
        self.kept: dict[bytes, tuple[bytes, bytes]] = {}
        self.reads = 0

    def read(self, id: bytes) -> bytes:
        self.reads += 1
        return self.kept[id][1]

    def write(self, kind: bytes, content: bytes) -> bytes:
        id = object_id(kind, content)
        self.kept[id] = (kind, content)
        return id

    def write_files(self, files: Files) -> bytes:
        """The tree of these files, of which none is a folder of another."""
        folders: dict[bytes, list[Entry]] = {b"": []}
        for path, (mode, content) in files.items():
            self._enter(folders, path, mode, self.write(BLOB, content))
        # A folder is complete once all that are longer than it are.
        for path in sorted(folders, key=lambda path: path.count(b"/") + bool(path), reverse=True):
            id = self.write(TREE, encode_tree(folders[path]))
            if path:
                self._enter(folders, path, FOLDER_MODE, id)
        return id

    @staticmethod
    def _enter(folders: dict[bytes, list[Entry]], path: bytes, mode: int, id: bytes) -> None:
        folder, _, name = path.rpartition(b"/")
        folders.setdefault(folder, []).append((name, mode, id))
        while folder:
            folder = folder.rpartition(b"/")[0]
            folders.setdefault(folder, [])


def nodes(files: Files) -> dict[bytes, Node]:
    """What a tree says of these files."""
    return {path: (mode, blob_id(content)) for path, (mode, content) in files.items()}


class Git:
    """A bare repository and the real git, with nothing of the machine's configuration."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        subprocess.run(["git", "init", "-q", "--bare", folder], check=True, env=self._environment())

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }

    @contextmanager
    def holding(self, objects: Objects) -> Iterator[None]:
        """With these objects in the repository, and taken out again: few ids stay unambiguous."""
        written = []
        for id, (kind, content) in objects.kept.items():
            name = id.hex()
            file = self._folder / "objects" / name[:2] / name[2:]
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(zlib.compress(b"%b %d\0%b" % (kind, len(content), content), 1))
            written.append(file)
        yield
        for file in written:
            file.unlink()

    def diff(self, old: bytes, new: bytes, *options: str) -> bytes:
        """What `git diff` prints between two trees."""
        command = ["git", "-c", "core.quotepath=false", "diff", "--no-ext-diff", "--no-renames"]
        return subprocess.run(
            [*command, "--no-color", *options, old.hex(), new.hex()],
            cwd=self._folder,
            env=self._environment(),
            check=True,
            stdout=subprocess.PIPE,
        ).stdout


_NAMES = st.sampled_from(
    b'a|a.b|a0|b|-|a b|\t|\n\x01|\x7f|\xff|"|back\\|\xc3\xa9|\xf0\x9f\x99\x82 x'.split(b"|")
)
PATHS = st.lists(_NAMES, min_size=1, max_size=4).map(b"/".join)

_LINES = st.sampled_from(
    b"|x|y|  x|\ty|}|def f():|$dollar  |_low|class C:\r|\r|\xff\xfe|\xe2\x82|\xc3\xa9|"
    b"@@ -1 +1 @@|--- a/x|\\ No newline|LONG".replace(b"LONG", b"long " * 30).split(b"|")
)
_MODES = st.sampled_from([FILE, FILE, FILE, PROGRAM, LINK])


@st.composite
def contents(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A content and what became of it."""
    old = draw(st.lists(_LINES, max_size=40))
    new = list(old)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(new)))
        new[place : place + draw(st.integers(0, 3))] = draw(st.lists(_LINES, max_size=3))
    return draw(_joined(old)), draw(_joined(new))


def _joined(lines: list[bytes]) -> st.SearchStrategy[bytes]:
    text = b"\n".join(lines)
    return st.sampled_from([text + b"\n", text + b"\n", text, text + b"\0"])


@st.composite
def worktrees(draw: st.DrawFn) -> tuple[Files, Files]:
    """The files of a worktree and what became of them."""
    old: Files = {}
    new: Files = {}
    for path in draw(st.lists(PATHS, max_size=8, unique=True)):
        before, after = draw(contents())
        mode = draw(_MODES)
        if draw(st.integers(0, 4)) and _is_free(old, path):
            old[path] = (mode, before)
        if draw(st.integers(0, 4)) and _is_free(new, path):
            new[path] = (draw(st.sampled_from([mode, draw(_MODES)])), after)
    return old, new


def _is_free(files: Files, path: bytes) -> bool:
    return not any(
        path.startswith(other + b"/") or other.startswith(path + b"/") for other in files
    )
