"""The whole output of calls, kept in files when it is too long to be stored with them."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from kedge.engine.settings import make_private_folder

OLDEST = 7 * 86_400.0
"""Seconds for which an output is kept after the last write."""
_FOLDER = "tool-output"


def output_folder(data: Path, session_id: str) -> Path:
    """The folder of a session's outputs."""
    return data / _FOLDER / session_id


def output_path(data: Path, session_id: str, part_id: str) -> Path:
    """The file of a call's whole output."""
    return output_folder(data, session_id) / part_id


def open_output(path: Path) -> int:
    """A new file for the output of a call, readable by its owner alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    make_private_folder(path.parent)
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        # The empty folder may have been removed just now, together with old outputs.
        make_private_folder(path.parent)
        return os.open(path, flags, 0o600)


def remove_old_outputs(data: Path, before: float) -> None:
    """Remove outputs that were last written to before this time, in seconds since 1970."""
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
    """Remove the outputs of a purged session."""
    # Another engine may do the same just now; what could not be removed is tried again later.
    shutil.rmtree(output_folder(data, session_id), ignore_errors=True)


def sessions_with_outputs(data: Path) -> list[str]:
    """The sessions that have outputs."""
    folder = data / _FOLDER
    return sorted(os.listdir(folder)) if folder.is_dir() else []
