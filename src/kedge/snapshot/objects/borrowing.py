"""The users' object folders that snapshots may still need objects from, and who needs them.

Every process that borrows leaves a note in the store; git's list of alternates is made from the
notes. A note goes when its process has copied all it needs. One that a dead process left goes when
a collection finds that nothing is missing from the store.
"""

import fcntl
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from kedge.snapshot.objects.durable import make_folder, only_one, replace_file, sync_folder
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packs import BorrowedPacks

_UNFINISHED = "tmp_kedge_"


class Lenders:
    """The folders that this store borrows from, whichever process asked for it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._notes = layout.root / "borrowing"
        self._unique = secrets.token_hex(8)
        self._opened: dict[Path, BorrowedPacks] = {}
        self._held: list[int] = []
        make_folder(self._notes)

    def borrow(self, folder: Path) -> None:
        """Count on the objects in this folder until `give_back`."""
        with only_one(self._layout.alternates_lock):
            name = f"{self._unique}-{len(self._own_notes())}"
            if folder not in map(self._folder, self._own_notes()):
                path = self._notes / name
                replace_file(path, os.fsencode(folder), beside=f"{_UNFINISHED}{name}")
                self._hold(path)
            self._list_alternates()

    def forget_parent(self) -> None:
        """In a forked child: what was borrowed so far is its parent's to give back."""
        self._unique = secrets.token_hex(8)

    def give_back(self) -> None:
        """Need the folders no more; what this process had of them is copied."""
        self._remove(self._own_notes())

    def give_all_back(self, before: float) -> None:
        """Need none of the folders that were borrowed before that time; nothing is missing."""
        self._remove([note for note in self._all_notes() if _is_older(note, before)])

    def _remove(self, notes: list[Path]) -> None:
        if notes:
            with only_one(self._layout.alternates_lock):
                for note in notes:
                    note.unlink(missing_ok=True)
                sync_folder(self._notes)
                self._list_alternates()

    def _all_notes(self) -> list[Path]:
        return [note for note in self._notes.iterdir() if not note.name.startswith(_UNFINISHED)]

    def _own_notes(self) -> list[Path]:
        return [note for note in self._all_notes() if note.name.startswith(self._unique)]

    @staticmethod
    def _folder(note: Path) -> Path:
        return Path(os.fsdecode(note.read_bytes()))

    def _hold(self, note: Path) -> None:
        """Be seen to be alive for as long as this process is."""
        fd = os.open(note, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._held.append(fd)

    def left_by_the_dead(self) -> list[Path]:
        """Notes of processes that are gone."""
        with only_one(self._layout.alternates_lock):  # who borrows right now holds its note soon
            others = set(self._all_notes()) - set(self._own_notes())
            return [note for note in others if _is_left(note)]

    def give_back_for(self, notes: list[Path]) -> None:
        """Need no more what these notes are about; it is copied."""
        self._remove(notes)

    def close(self) -> None:
        """Let go of the notes; who reads them next takes their writer for dead."""
        while self._held:
            os.close(self._held.pop())

    def folders(self) -> list[Path]:
        """All folders that somebody borrows from."""
        found = set()
        for note in self._all_notes():
            try:
                found.add(self._folder(note))
            except FileNotFoundError:
                continue  # given back since it was listed
        return sorted(found)

    def _list_alternates(self) -> None:
        lines = b"".join([_line(folder) for folder in self.folders()])
        if lines:
            replace_file(self._layout.alternates, lines, beside=f"{_UNFINISHED}alternates")
        elif self._layout.alternates.exists():
            self._layout.alternates.unlink()
            sync_folder(self._layout.alternates.parent)

    def packs(self) -> list[BorrowedPacks]:
        """The folders, ready to be read."""
        folders = self.folders()
        self._opened = {
            folder: self._opened.get(folder) or BorrowedPacks(folder) for folder in folders
        }
        return list(self._opened.values())

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if somebody lends it."""
        for packs in self.packs():
            found = packs.read(id)
            if found is not None:
                return found
        return None

    def lent(self, ids: Iterable[bytes]) -> set[bytes]:
        """Those of the objects that somebody lends."""
        wanted = set(ids)
        found = set[bytes]()
        for packs in self.packs():
            found |= {id for id in wanted - found if packs.exists(id)}
        return found


def _is_older(note: Path, before: float) -> bool:
    try:
        return note.stat().st_mtime < before
    except FileNotFoundError:
        return False  # given back since it was listed


def _is_left(note: Path) -> bool:
    try:
        fd = os.open(note, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def _line(folder: Path) -> bytes:
    path = os.fsencode(folder)
    if path.startswith((b"#", b'"')) or b"\n" in path:
        escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
        return b'"%b"\n' % escaped
    return path + b"\n"
