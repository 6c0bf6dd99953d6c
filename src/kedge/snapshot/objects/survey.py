"""What takes the space of a store: which session holds how much, what a collection would free now,
and why it leaves the rest. Nothing is changed."""

import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kedge.domain.errors import ObjectMissing
from kedge.snapshot.objects.gc import Sweep
from kedge.snapshot.objects.journal import Tip
from kedge.snapshot.objects.keeps import needs, read_link
from kedge.snapshot.objects.layout import size_of
from kedge.snapshot.objects.marks import ObjectMarks
from kedge.snapshot.objects.packs import read_index
from kedge.snapshot.objects.view import StoreView

_SHARED = 1
_FIRST = 2

Tell = Callable[[int, int], None]


@dataclass(slots=True, kw_only=True)
class RefSpace:
    """A ref, and what it holds."""

    ref: str
    snapshots: int = 0
    alone: int = 0
    """Bytes that no other ref holds."""
    is_release: bool = False
    """Whether it holds nothing but what was released a moment ago."""


@dataclass(slots=True, kw_only=True)
class Survey:
    """The space of one store, in bytes."""

    root: Path
    packs: int = 0
    journals: int = 0
    live_writers: int = 0
    """Processes that write to it now; their journals stay."""
    holders: list[RefSpace] = field(default_factory=list)
    """The largest first."""
    shared: int = 0
    """Held by several refs."""
    young: int = 0
    """Held by none, in packs that are too young: a process may be about to use it."""
    scattered: int = 0
    """Held by none, among so much else that rewriting the pack is not worth it yet."""
    freed: int = 0
    """What a collection would free now."""
    dropped: list[str] = field(default_factory=list)
    """Refs whose time is over: a collection removes them, and the next one frees what they held."""
    missing: int = 0
    """Objects that cannot be read; a collection fails then."""


def survey(
    view: StoreView, *, now: float, keep_taken_for: float, budget: int, tell: Tell
) -> Survey:
    """Look at a store; `now` is in seconds since 1970, `keep_taken_for` in seconds."""
    found = Survey(
        root=view.layout.root,
        packs=size_of(view.layout.packs),
        journals=size_of(view.layout.journals),
        live_writers=sum(_is_written(path) for path in view.layout.journals.glob("*.journal")),
    )
    marks = ObjectMarks(view)
    _walk(view, marks, found, tell)
    if not found.missing:
        sweep = Sweep(
            layout=view.layout,
            read=view.read,
            is_own=marks.has,
            journal_tips=lambda: _journal_tips(view),
            now=now,
            keep_taken_for=keep_taken_for,
            is_over_budget=found.packs + found.journals > budget,
        )
        preview = sweep.preview()
        found.freed, found.dropped = preview.freed, list(preview.dropped)
        found.young, found.scattered = preview.young, preview.scattered
    _weigh(view, marks, found)
    return found


def _is_written(path: Path) -> bool:
    """Whether the process that writes a journal lives."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _journal_tips(view: StoreView) -> dict[str, set[Tip]]:
    view.refresh()
    found: dict[str, set[Tip]] = {}
    for journal in view.journals():
        for name, tip in journal.refs.items():
            found.setdefault(name, set()).add(tip)
    return found


def _walk(view: StoreView, marks: ObjectMarks, found: Survey, tell: Tell) -> None:
    total, done = len(marks), 0
    for n, (name, tips) in enumerate(sorted(view.tips().items())):
        holder = RefSpace(ref=name)
        found.holders.append(holder)
        for kind, id in _reached(view, marks, tips, n + _FIRST, found):
            done += 1
            if done % 512 == 0:
                tell(min(done, total), total)
            if kind == b"commit":
                link = read_link(view.read, id)
                holder.snapshots += link.is_keep
                holder.is_release = link.is_release and id in tips


def _reached(
    view: StoreView, marks: ObjectMarks, tips: set[bytes], own: int, found: Survey
) -> Iterator[tuple[bytes, bytes]]:
    """The objects that a ref reaches, each marked as its own, or as shared with one before it.

    What is shared already needs no second look: all below it is shared as well.
    """
    todo = [(tip, False) for tip in tips]
    while todo:
        id, is_blob = todo.pop()
        mark = marks.get(id)
        if mark in (own, _SHARED):
            continue
        marks.set(id, _SHARED if mark else own)
        if is_blob:
            yield b"blob", id
            continue
        try:
            kind, content = view.read(id)
        except ObjectMissing:
            found.missing += 1
            continue
        yield kind, id
        todo += needs(kind, content)


def _weigh(view: StoreView, marks: ObjectMarks, found: Survey) -> None:
    for index in sorted(view.layout.packs.glob("pack-*.idx")):
        for id, size in read_index(index):
            mark = marks.get(id)
            if mark == _SHARED:
                found.shared += size
            elif mark >= _FIRST:
                found.holders[mark - _FIRST].alone += size
            # It may be in another pack too, and counts once.
            marks.set(id, 0)
    found.holders.sort(key=lambda holder: (-holder.alone, holder.ref))
