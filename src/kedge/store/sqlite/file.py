"""The database file as it was opened, to notice when it is taken away or replaced.

SQLite goes on writing to a file that was deleted, as if nothing were wrong; so does everybody who
has opened one. What is stored there is lost with the last process that has it open.
"""

import math
import os
import time
from pathlib import Path
from typing import TypeAlias

from kedge.domain.errors import StoreGone

LOOK_EVERY = 0.5
"""Seconds after which a reader looks again whether the file is there."""

_Identity: TypeAlias = tuple[int, int]


class OpenFile:
    """A database file that is open, and the log beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = str(path)
        self._log = f"{path}-wal"
        self._file_identity = _identity(self._name)
        self._log_identity = _identity(self._log)
        self._seen = time.monotonic()

    def look(self) -> None:
        """Raise if the file or its log is gone, unless they were seen a moment ago."""
        if time.monotonic() - self._seen >= LOOK_EVERY:
            self.check()

    def check(self) -> None:
        """Raise if the file or its log is gone; until it is back, every look does."""
        self._seen = -math.inf
        self.check_file()
        if _identity(self._log) != self._log_identity:
            raise StoreGone(
                f"{self._log} was deleted while kedge used it, and with it what was stored last;"
                " start kedge again to go on with what is left"
            )
        self._seen = time.monotonic()

    def check_file(self) -> None:
        """Raise if the file is gone: before each commit, so it has to be quick."""
        found = _identity(self._name)
        if found == self._file_identity:
            return
        if found is None:
            raise StoreGone(
                f"{self._path} is gone: it was deleted, moved or unmounted while kedge used it, and"
                " nothing can be stored; put it back as it was, or start kedge again"
            )
        raise StoreGone(
            f"{self._path} is another file than the one that kedge opened: somebody replaced it;"
            " nothing is stored until you start kedge again"
        )


def _identity(path: str) -> _Identity | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
