"""The snapshots of all projects: whether their stores are whole, and hold what sessions need."""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias

from kedge.domain.errors import SnapshotError
from kedge.engine.doctor.findings import Progress, Report
from kedge.snapshot.objects.checkup import (
    REACHED,
    StoreTrouble,
    bytes_to_check,
    distrust,
    is_used,
    lacking,
    troubles_of_files,
)
from kedge.snapshot.objects.formats import EMPTY_TREE
from kedge.snapshot.objects.keeps import read_link
from kedge.snapshot.objects.layout import Layout, size_of, unfinished
from kedge.snapshot.objects.marks import ObjectMarks
from kedge.snapshot.objects.refs import session_ref
from kedge.snapshot.objects.view import StoreView, stores_in

_COLLECTION = 1800.0
"""Seconds to wait for a collection that runs."""
_DAY = 86_400.0
_MIB = 2**20
_CODES = {
    "layout": "store-incomplete",
    "pack": "pack-damaged",
    "pack-without-index": "pack-without-index",
    "index-without-pack": "index-without-pack",
    "journal": "journal-damaged",
    "ref": "ref-damaged",
    "borrowed": "store-borrows",
}

_FILES = {"HEAD", "config"}
"""Without these, git cannot read a store, but kedge can."""

Holding: TypeAlias = Literal["kept", "unkept", "lost"]


class Stores:
    """The stores of a data folder, examined; usable until it is closed. Collections wait."""

    def __init__(self, data: Path, report: Report, progress: Progress) -> None:
        self._data = data
        self._report = report
        self._progress = progress
        self._stack = ExitStack()
        self._opened: dict[str, tuple[StoreView, ObjectMarks]] = {}
        self._told: set[str] = set()
        self.lacks_objects = False
        """Whether some refs lack objects, so that what these lead to was not reached."""
        self.held: set[str] = set()
        """The refs of sessions for which something is kept."""
        self.released: set[str] = set()

    def examine(self) -> None:
        """Examine all stores."""
        for root in stores_in(self._data):
            try:
                self._examine(root)
            except (SnapshotError, OSError, ValueError) as error:
                self._report.add("store-incomplete", f"{root}: {error}", str(root))

    def _examine(self, root: Path) -> None:
        view = StoreView(root)
        if not is_used(view.layout):
            return  # another process may be making it
        troubles = self._files(view)
        if any(each.kind == "layout" and each.path.name not in _FILES for each in troubles):
            self._report.unchecked.append(f"the snapshots in {root}: its folders are missing")
            return
        self._stack.enter_context(view.without_collections(_COLLECTION))
        self._stack.callback(view.close)
        marks = ObjectMarks(view)
        self._opened[root.name] = view, marks
        for each in troubles:
            if each.kind == "pack":
                distrust(view, marks, each.path)
        self._walk(root.name, view, marks)
        self._leftovers(view.layout)

    def _files(self, view: StoreView) -> list[StoreTrouble]:
        total, done = bytes_to_check(view), 0

        def tell(size: int) -> None:
            nonlocal done
            done += size
            self._progress(f"packs of {view.layout.root.name[:12]}", done // _MIB, total // _MIB)

        troubles = list(troubles_of_files(view, tell))
        for each in troubles:
            about = str(view.layout.root) if each.kind == "layout" else str(each.path)
            self._report.add(_CODES[each.kind], f"{each.path} {each.how}", about)
        return troubles

    def _walk(self, project: str, view: StoreView, marks: ObjectMarks) -> None:
        total, done = len(marks), 0

        def tell(count: int) -> None:
            nonlocal done
            done += count
            if done % 512 == 0:
                self._progress(f"snapshots of {project[:12]}", done, total)

        for each in lacking(view, marks, tell):
            self.lacks_objects = True
            name = f"{project} {each.ref}"
            if name not in self._told:
                self._told.add(name)
                what = f"{each.ref} of {project} needs {each.count} objects that cannot be read"
                self._report.add("objects-missing", f"{what}: {', '.join(each.some)}", name)
        for name, tips in view.tips().items():
            self._note(view, name, tips)

    def _note(self, view: StoreView, name: str, tips: set[bytes]) -> None:
        try:
            is_over = all(read_link(view.read, tip).is_release for tip in tips)
        except SnapshotError:
            is_over = False  # told already
        (self.released if is_over else self.held).add(name)

    def _leftovers(self, layout: Layout) -> None:
        before = time.time() - _DAY
        left = []
        for path in unfinished(layout):
            try:
                if path.stat().st_mtime < before and path.suffix != ".pack":
                    left.append(path)
            except FileNotFoundError:
                continue  # its process was about to finish it
        if left:
            what = f"{len(left)} unfinished files are in {layout.root}, such as {left[0].name}"
            self._report.add("files-left", what, str(layout.root))
        for note in (layout.root / "plans").glob("*/*.damaged"):
            self._report.add("restore-damaged", f"{note} cannot be read", str(note))

    def look_again(self) -> None:
        """Walk through what was kept since."""
        for project, (view, marks) in self._opened.items():
            marks.refresh()
            self._walk(project, view, marks)

    def keeps_for(self, session_id: str) -> bool:
        """Whether anything is kept for a session here."""
        return session_ref(session_id) in self.held

    def has_released(self, session_id: str) -> bool:
        """Whether all that was kept for a session was released on purpose."""
        name = session_ref(session_id)
        return name in self.released and name not in self.held

    def holding(self, id: str) -> Holding:
        """Whether an object is kept, only there, or not to be had."""
        raw = bytes.fromhex(id)
        if raw == EMPTY_TREE or any(
            marks.get(raw) == REACHED for _, marks in self._opened.values()
        ):
            return "kept"
        there = any(marks.get(raw) == 0 and marks.has(raw) for _, marks in self._opened.values())
        return "unkept" if there else "lost"

    def close(self) -> None:
        """Let collections go on."""
        self._stack.close()


def sizes(data: Path) -> dict[str, int]:
    """The space that each project's snapshots take, in bytes."""
    found = {}
    for root in stores_in(data):
        layout = Layout(root)
        folders: Iterable[Path] = (layout.packs, layout.journals)
        found[root.name] = sum(size_of(each) for each in folders if each.is_dir())
    return found
