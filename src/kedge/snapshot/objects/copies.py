"""The files of a store in an order in which they can be copied beside processes that write, so that
the copy has everything that was stored before it was begun. Collections must wait meanwhile.

Journals come first: what is sealed after that is in refs and packs, which come later. Of a journal
only the records are copied that are whole: what is written right now belongs to nothing yet.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kedge.snapshot.objects.checkup import is_used
from kedge.snapshot.objects.journal import Journal
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.view import StoreView

_UNFINISHED = ("tmp_", ".tmp-")


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file to copy."""

    path: Path
    size: int
    """How much of it; more may be written meanwhile."""


def files_to_copy(view: StoreView) -> Iterator[CopiedFile]:
    """The files of a store; some may be gone when they are opened, and are not needed then."""
    layout = view.layout
    if not is_used(layout):
        return
    yield from _journals(layout)
    for folder in layout.ref_folders:
        yield from _files(folder, skip=".lock")
    yield from _files(layout.borrowing)
    for path in (layout.root / "packed-refs", layout.root / "config", layout.root / "HEAD"):
        yield from _file(path)
    yield from _objects(layout.objects)


def _journals(layout: Layout) -> Iterator[CopiedFile]:
    for path in sorted(layout.journals.glob("*.journal")):
        try:
            journal = Journal(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            continue  # sealed since it was listed
        try:
            journal.verify()
            size = path.stat().st_size if journal.why_damaged() else journal.end
        except FileNotFoundError:
            continue
        finally:
            journal.close()
        yield CopiedFile(path, size)


def _objects(folder: Path) -> Iterator[CopiedFile]:
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _objects(path)
        elif not path.name.startswith(_UNFINISHED):
            yield from _file(path)


def _files(folder: Path, skip: str = "\0") -> Iterator[CopiedFile]:
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if not path.name.endswith(skip) and not path.name.startswith(_UNFINISHED):
                yield from _file(path)


def _file(path: Path) -> Iterator[CopiedFile]:
    try:
        yield CopiedFile(path, path.stat().st_size)
    except FileNotFoundError:
        return
