"""Objects in users' object folders that kedge 0.1 left there and that snapshots still need.

That version acknowledged a first snapshot while its blobs were only in the user's repository, and
copied them afterwards. If it was killed in between, its notes name the folders, and git's list of
alternates is made from the notes. Nothing is borrowed any more; what was borrowed is read from
there, and copied as soon as possible.
"""

import fcntl
import os
from pathlib import Path

from kedge.snapshot.objects.durable import only_one, replace_file, sync_folder
from kedge.snapshot.objects.layout import Layout
from kedge.snapshot.objects.packs import BorrowedPacks

_UNFINISHED = "tmp_kedge_"


class Borrowed:
    """The folders that notes name, and the objects in them."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._opened: dict[Path, BorrowedPacks] = {}

    def _notes(self) -> list[Path]:
        try:
            names = os.listdir(self._layout.borrowing)
        except FileNotFoundError:
            return []
        return [self._layout.borrowing / name for name in names if not name.startswith(_UNFINISHED)]

    def left(self) -> list[Path]:
        """The notes of processes that have ended."""
        notes = self._notes()
        if not notes:
            return []
        with only_one(self._layout.alternates_lock):  # as for writing a note
            return [note for note in notes if _is_left(note)]

    def forget(self, notes: list[Path]) -> None:
        """Remove notes whose objects are all copied."""
        if notes:
            with only_one(self._layout.alternates_lock):
                for note in notes:
                    note.unlink(missing_ok=True)
                sync_folder(self._layout.borrowing)
                self._list_alternates()

    def _list_alternates(self) -> None:
        lines = b"".join([_line(folder) for folder in self._folders()])
        if lines:
            replace_file(self._layout.alternates, lines, beside=f"{_UNFINISHED}alternates")
        elif self._layout.alternates.exists():
            self._layout.alternates.unlink()
            sync_folder(self._layout.alternates.parent)

    def _folders(self) -> list[Path]:
        found = set()
        for note in self._notes():
            try:
                found.add(Path(os.fsdecode(note.read_bytes())))
            except FileNotFoundError:
                continue  # forgotten since it was listed
        return sorted(found)

    def _packs(self) -> list[BorrowedPacks]:
        self._opened = {
            folder: self._opened.get(folder) or BorrowedPacks(folder) for folder in self._folders()
        }
        return list(self._opened.values())

    def lenders(self) -> list[BorrowedPacks]:
        """The folders as they are now, for reading many objects from them."""
        return [BorrowedPacks(folder) for folder in self._folders()]

    def read(self, id: bytes) -> tuple[bytes, bytes] | None:
        """Kind and content of an object, if one of the folders has it."""
        for packs in self._packs():
            found = packs.read(id)
            if found is not None:
                return found
        return None

    def has(self, id: bytes) -> bool:
        """Whether one of the folders has an object."""
        return any(packs.exists(id) for packs in self._packs())


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
