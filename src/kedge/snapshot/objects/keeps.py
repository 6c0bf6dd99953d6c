"""Keep-commits: how they hold a snapshot, how they are written, how a chain of them is read, and
which objects they reach.

A keep's tree is a wrapper with the entries `files`, `notes` and `base`. Its depth is one more than
its parent's, so of two commits of one ref the newer one is known without walking. A hold keeps
single blobs. An inheritance holds what another ref holds by also having its commits as parents. A
release is a commit of the empty tree without a parent that continues the count: it holds nothing,
and no commit with less depth can take its place. It names what it released, because another process
may be about to follow that without knowing of the release: it is not collected for a while. Where
two processes continued from the same commit, the next commit has both ends as parents; if there is
none until they are sealed, a merge is made.
"""

import heapq
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kedge.domain.errors import SnapshotStoreDamaged
from kedge.snapshot.objects import formats
from kedge.snapshot.objects.formats import (
    COMMIT,
    EMPTY_TREE,
    FOLDER_MODE,
    TREE,
    Commit,
    NewObject,
    object_id,
    parse_commit,
    parse_tree,
)
from kedge.snapshot.objects.journal import Tip

_SUBJECT = re.compile(rb"kedge (keep|hold|inheritance|release|merge) (\d+)")
_RELEASED = re.compile(rb"^released: ([0-9a-f]{40})$", re.MULTILINE)
_KEY = re.compile(r"[a-z][a-z0-9-]*")

ReadObject: TypeAlias = Callable[[bytes], tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptObjects:
    """The content of a keep: two trees, a blob, and the keeper's fields."""

    files: bytes
    notes: bytes
    base: bytes
    """The blob with the usual permission bits."""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """A snapshot that is held, and the commit that holds it."""

    commit: bytes
    depth: int
    seconds: int
    held: KeptObjects

    @property
    def tip(self) -> Tip:
        return Tip(self.commit, self.depth)

    @property
    def files(self) -> bytes:
        return self.held.files

    @property
    def notes(self) -> bytes:
        return self.held.notes

    @property
    def base(self) -> bytes:
        return self.held.base

    @property
    def fields(self) -> Mapping[str, str]:
        return self.held.fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A commit of any type in the chain of a ref."""

    id: bytes
    word: str
    depth: int
    commit: Commit

    @property
    def tip(self) -> Tip:
        return Tip(self.id, self.depth)

    @property
    def is_keep(self) -> bool:
        return self.word == "keep"

    @property
    def is_inheritance(self) -> bool:
        return self.word == "inheritance"

    @property
    def is_release(self) -> bool:
        return self.word == "release"


def new_keep(
    held: KeptObjects, standing: Sequence[Tip], seconds: int
) -> tuple[Keep, list[NewObject]]:
    """A keep that follows the standing commits, and the objects that it consists of."""
    entries = [(b"files", FOLDER_MODE, held.files), (b"notes", FOLDER_MODE, held.notes)]
    tree = formats.encode_tree([*entries, (b"base", 0o100644, held.base)])
    objects: list[NewObject] = [(TREE, object_id(TREE, tree), tree)]
    if EMPTY_TREE in (held.files, held.notes):
        objects.append((TREE, EMPTY_TREE, b""))
    depth = _depth_after(standing)
    message = _encode_message(depth, held.fields)
    id, commit = _new_commit(objects[0][1], standing, seconds, message)
    objects.append((COMMIT, id, commit))
    return Keep(commit=id, depth=depth, seconds=seconds, held=held), objects


def new_hold(
    blobs: Collection[bytes],
    standing: Sequence[Tip],
    seconds: int,
    *,
    trees: Collection[bytes] = (),
) -> tuple[Tip, list[NewObject]]:
    """A commit that holds single blobs and trees in addition to the standing commits."""
    entries = [(blob.hex().encode(), 0o100644, blob) for blob in set(blobs) - set(trees)]
    entries += [(each.hex().encode(), FOLDER_MODE, each) for each in set(trees)]
    tree = formats.encode_tree(entries)
    tree_id = object_id(TREE, tree)
    depth = _depth_after(standing)
    id, commit = _new_commit(tree_id, standing, seconds, b"kedge hold %d\n" % depth)
    return Tip(id, depth), [(TREE, tree_id, tree), (COMMIT, id, commit)]


def new_inheritance(
    standing: Sequence[Tip], inherited: Sequence[Tip], seconds: int
) -> tuple[Tip, list[NewObject]]:
    """A commit that holds what another ref holds in addition to the standing commits."""
    parents = [*standing, *inherited]
    depth = _depth_after(parents)
    id, commit = _new_commit(EMPTY_TREE, parents, seconds, b"kedge inheritance %d\n" % depth)
    return Tip(id, depth), [(TREE, EMPTY_TREE, b""), (COMMIT, id, commit)]


def _depth_after(standing: Sequence[Tip]) -> int:
    return 1 + max((tip.depth for tip in standing), default=0)


def _new_commit(
    tree: bytes, parents: Sequence[Tip], seconds: int, message: bytes
) -> tuple[bytes, bytes]:
    ids = [parent.commit for parent in parents]
    commit = formats.encode_commit(tree, ids, seconds, message)
    return object_id(COMMIT, commit), commit


def _encode_message(depth: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"kedge keep {depth}", ""]
    for key, value in fields.items():
        if not _KEY.fullmatch(key) or "\n" in value or "\0" in value:
            raise ValueError(f"a keep cannot say {key!r}: {value[:100]!r}")
        lines.append(f"{key}: {value}")
    return "\n".join([*lines, ""]).encode("utf-8", "surrogateescape")


def new_release(standing: Sequence[Tip], seconds: int) -> tuple[Tip, list[NewObject]]:
    """A commit that holds nothing and replaces all commits before it."""
    depth = _depth_after(standing)
    lines = [f"kedge release {depth}", "", *(f"released: {tip.commit.hex()}" for tip in standing)]
    id, commit = _new_commit(EMPTY_TREE, [], seconds, "\n".join([*lines, ""]).encode())
    return Tip(id, depth), [(TREE, EMPTY_TREE, b""), (COMMIT, id, commit)]


def released_by(commit: Commit) -> list[bytes]:
    """The commits that a release released; none if it is not a release."""
    if not commit.message.startswith(b"kedge release "):
        return []
    return [bytes.fromhex(id.decode()) for id in _RELEASED.findall(commit.message)]


def new_merge(winner: Link, other: Link) -> tuple[bytes, bytes]:
    """Id and content of a commit that holds both; the same for every process that makes it."""
    both = [winner.tip, other.tip]
    seconds = max(winner.commit.seconds, other.commit.seconds)
    message = b"kedge merge %d\n" % _depth_after(both)
    return _new_commit(winner.commit.tree, both, seconds, message)


def read_link(read: ReadObject, id: bytes) -> Link:
    """A commit of a chain."""
    commit = formats.parse_commit(read(id)[1])
    subject = _SUBJECT.match(commit.message)
    if subject is None:
        raise SnapshotStoreDamaged(f"the commit {id.hex()} was not made by kedge")
    return Link(id=id, word=subject[1].decode(), depth=int(subject[2]), commit=commit)


def read_keep(read: ReadObject, link: Link) -> Keep:
    """The content of a keep-commit."""
    kind, wrapper = read(link.commit.tree)
    entries = {name: id for name, _, id in formats.parse_tree(wrapper)} if kind == TREE else {}
    if entries.keys() != {b"files", b"notes", b"base"}:
        raise SnapshotStoreDamaged(f"the commit {link.id.hex()} does not hold a snapshot")
    lines = link.commit.message.decode("utf-8", "surrogateescape").split("\n")[2:]
    held = KeptObjects(
        files=entries[b"files"],
        notes=entries[b"notes"],
        base=entries[b"base"],
        fields=dict(line.split(": ", 1) for line in lines if ": " in line),
    )
    return Keep(commit=link.id, depth=link.depth, seconds=link.commit.seconds, held=held)


def walk(read: ReadObject, tips: Iterable[Tip], known: Callable[[bytes], bool]) -> Iterator[Link]:
    """The commits of a chain, deepest first, without known ones and those below them."""
    seen = set[bytes]()
    heap: list[tuple[int, bytes, Link]] = []

    def push(id: bytes) -> None:
        if id not in seen and not known(id):
            seen.add(id)
            link = read_link(read, id)
            heapq.heappush(heap, (-link.depth, id, link))

    for tip in tips:
        push(tip.commit)
    while heap:
        link = heapq.heappop(heap)[2]
        yield link
        for parent in link.commit.parents:
            push(parent)


def supersedes(read: ReadObject, newer: Tip, older: Tip) -> bool:
    """Whether the older commit can be dropped, because the newer one holds or released it."""
    beside = False
    for link in walk(read, [newer], lambda _: False):
        if link.id == older.commit:
            return True
        # What another ref released before it was inherited was not released under this one.
        beside = beside or link.depth <= older.depth or link.is_inheritance
        if link.depth < older.depth:
            break
    return not beside or read_link(read, older.commit).is_release


_REPOSITORY_MODE = 0o160000
"""A commit of another repository, which does not occur here."""


def reach(
    read: ReadObject, roots: Iterable[bytes], seen: set[bytes], *, since: float = math.inf
) -> set[bytes]:
    """Add all objects that the roots need to `seen`, and yield the new ones; blobs are not read.

    What was released `since` this time counts as needed. A commit or tree that cannot be read
    raises an error: what depends on it would be taken for garbage.
    """
    found = {id for id in roots if id not in seen}
    todo = list(found)
    seen |= found
    while todo:
        kind, content = read(todo.pop())
        for id, is_blob in needs(kind, content, since):
            if id not in seen:
                seen.add(id)
                found.add(id)
                if not is_blob:
                    todo.append(id)
    return found


def needs(kind: bytes, content: bytes, since: float = math.inf) -> Iterable[tuple[bytes, bool]]:
    """The objects that an object refers to directly, each with whether it is a blob."""
    if kind == TREE:
        return [
            (id, mode != FOLDER_MODE)
            for _, mode, id in parse_tree(content)
            if mode != _REPOSITORY_MODE
        ]
    if kind == COMMIT:
        commit = parse_commit(content)
        released = released_by(commit) if commit.seconds > since else []
        return [(id, False) for id in (commit.tree, *commit.parents, *released)]
    return []
