"""Git's object formats: ids, trees and commits as bytes. Pure functions; the store does the I/O.

Ids are the raw 20 bytes of SHA-1. Commits have one fixed author, because kedge writes keep-commits
and they say nothing about people.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import TypeAlias

from kedge.domain.errors import SnapshotStoreDamaged

BLOB = b"blob"
TREE = b"tree"
COMMIT = b"commit"
TAG = b"tag"

FOLDER_MODE = 0o040000
ID_LENGTH = 20

Content: TypeAlias = bytes | bytearray | memoryview
Entry: TypeAlias = tuple[bytes, int, bytes]
"""A line of a tree: name, git's mode and id."""

NewObject: TypeAlias = tuple[bytes, bytes, Content]
"""Kind, id and content of an object for the store."""

_IDENTITY = b"kedge <kedge@localhost>"
_COMMIT = re.compile(
    rb"tree (?P<tree>[0-9a-f]{40})\n(?P<parents>(?:parent [0-9a-f]{40}\n)*)"
    rb"author [^\n]*\ncommitter [^\n]* (?P<seconds>\d+) [+-]\d{4}\n(?:[^\n]+\n)*\n(?P<message>.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The content of a commit, without its author."""

    tree: bytes
    parents: tuple[bytes, ...]
    seconds: int
    message: bytes


def object_id(kind: bytes, data: Content) -> bytes:
    """Git's id for an object of this kind with this content."""
    digest = sha1(b"%s %d\0" % (kind, memoryview(data).nbytes), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def blob_id(data: Content) -> bytes:
    """Git's id for a file with this content."""
    return object_id(BLOB, data)


EMPTY_TREE = object_id(TREE, b"")
EMPTY_BLOB = object_id(BLOB, b"")


def _git_order(entry: Entry) -> bytes:
    return entry[0] + b"/" if entry[1] == FOLDER_MODE else entry[0]


def encode_tree(entries: Iterable[Entry]) -> bytes:
    """A tree of these entries, given in any order."""
    ordered = sorted(entries, key=_git_order)
    names = {name for name, _, _ in ordered}
    if len(names) != len(ordered):
        raise ValueError("a tree holds each name only once")
    joined = b"".join(names)
    if b"\0" in joined or b"/" in joined or b"" in names:
        raise ValueError("a name in a tree is not empty and has neither NUL nor '/' in it")
    return b"".join([b"%o %b\0%b" % (mode, name, id) for name, mode, id in ordered])


def parse_tree(data: bytes) -> list[Entry]:
    """The entries of a tree, in git's order."""
    entries = []
    position, end = 0, len(data)
    find = data.index
    try:
        while position < end:
            space = find(b" ", position)
            zero = find(b"\0", space)
            mode = int(data[position:space], 8)
            position = zero + 1 + ID_LENGTH
            entries.append((data[space + 1 : zero], mode, data[zero + 1 : position]))
    except ValueError as error:
        raise SnapshotStoreDamaged("an object that should be a tree is none") from error
    if position != end:
        raise SnapshotStoreDamaged("a tree object ends in the middle of an entry")
    return entries


def encode_commit(tree: bytes, parents: Sequence[bytes], seconds: int, message: bytes) -> bytes:
    """A commit by kedge with this time, in seconds since the epoch."""
    by = b"%b %d +0000" % (_IDENTITY, seconds)
    above = b"".join([b"parent %b\n" % parent.hex().encode() for parent in parents])
    head = b"tree %b\n%bauthor %b\ncommitter %b\n\n" % (tree.hex().encode(), above, by, by)
    return head + message


def parse_commit(data: bytes) -> Commit:
    """The parsed content of a commit."""
    match = _COMMIT.fullmatch(data)
    if match is None:
        raise SnapshotStoreDamaged("an object that should be a commit is none")
    parents = match["parents"].split()[1::2]
    return Commit(
        tree=bytes.fromhex(match["tree"].decode()),
        parents=tuple(bytes.fromhex(parent.decode()) for parent in parents),
        seconds=int(match["seconds"]),
        message=match["message"],
    )
