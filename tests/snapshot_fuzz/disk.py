"""Reads a folder as it is, whatever any rule says; the oracle and the judges build on it."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

Fingerprint = dict[bytes, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A file or link as it is on disk."""

    blob: str
    """The id that git would give to its bytes."""
    mode: int
    """As `lstat` gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something in a folder, as `lstat` sees it."""

    path: bytes
    """Relative to the folder that was walked."""
    mode: int
    size: int
    links: int

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_special(self) -> bool:
        return not (self.is_folder or stat.S_ISREG(self.mode) or stat.S_ISLNK(self.mode))


def walk(root: bytes) -> Iterator[Entry]:
    """Everything below a folder, folders before what they hold, sorted; `.git` is not entered."""
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except PermissionError:
            continue
        below = []
        for name in names:
            path = os.path.join(folder, name)
            found = os.lstat(os.path.join(root, path))
            yield Entry(path=path, mode=found.st_mode, size=found.st_size, links=found.st_nlink)
            if stat.S_ISDIR(found.st_mode) and name != b".git":
                below.append(path)
        waiting += reversed(below)


def read_leaf(root: bytes, entry: Entry) -> Leaf | None:
    """The content of a file or link; None if it may not be read."""
    path = os.path.join(root, entry.path)
    try:
        if stat.S_ISLNK(entry.mode):
            return Leaf(object_id(b"blob", os.readlink(path)), entry.mode)
        with open(path, "rb") as file:
            return Leaf(object_id(b"blob", file.read()), entry.mode)
    except PermissionError:
        return None


def object_id(kind: bytes, content: bytes) -> str:
    """The id of a git object."""
    header = b"%s %d\0" % (kind, len(content))
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def with_hidden_names(root: bytes, paths: Iterable[bytes], links: Mapping[int, int]) -> set[bytes]:
    """Those of some files that have another name than these paths, or had one a moment ago.

    `links` says how many names a file had then, by its inode.
    """
    found = {path: os.lstat(os.path.join(root, path)) for path in paths}
    known = Counter(status.st_ino for status in found.values())
    return {
        path
        for path, status in found.items()
        if max(status.st_nlink, links.get(status.st_ino, 1)) > known[status.st_ino]
    }


def fingerprint(folder: bytes) -> Fingerprint:
    """What can be seen of everything below a folder from outside, to tell whether it was touched.

    Times are part of it, but for the last access, which reading may change.
    """
    seen: Fingerprint = {}
    for here, _, names in os.walk(folder):
        for path in (here, *(os.path.join(here, name) for name in names)):
            found = os.lstat(path)
            content = b""
            if stat.S_ISREG(found.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read()).digest()
            seen[path] = (
                found.st_mode,
                found.st_ino,
                found.st_mtime_ns,
                found.st_ctime_ns,
                content,
            )
    return seen
