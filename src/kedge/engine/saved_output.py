"""Keeps the whole output of calls that is too long to be stored with them."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

OLDEST = 7 * 86_400.0
"""Seconds for which an output is kept after it was last written to."""
_FOLDER = "tool-output"


def output_folder(data: Path, session_id: str) -> Path:
    """Where the outputs of a session are kept."""
    return data / _FOLDER / session_id


def output_path(data: Path, session_id: str, part_id: str) -> Path:
    """Where the whole output of a call is kept."""
    return output_folder(data, session_id) / part_id


def open_output(path: Path) -> int:
    """A new file for the output of a call, readable by its owner alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        # An empty folder may have been removed just now, with the old outputs that were in it.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def remove_old_outputs(data: Path, before: float) -> None:
    """Keep no output that was last written to before this time, in seconds since 1970."""
    for session_id in sessions_with_outputs(data):
        folder = output_folder(data, session_id)
        # Another engine may do the same just now; what could not be removed is tried again later.
        for entry in _entries(folder):
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(entry.path)
        with suppress(OSError):
            os.rmdir(folder)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def remove_outputs(data: Path, session_id: str) -> None:
    """Keep no output of a session that is gone for good."""
    # Another engine may do the same just now; what could not be removed is tried again later.
    shutil.rmtree(output_folder(data, session_id), ignore_errors=True)


def sessions_with_outputs(data: Path) -> list[str]:
    """The sessions of which output is kept."""
    folder = data / _FOLDER
    return sorted(os.listdir(folder)) if folder.is_dir() else []
