"""Where the whole output of commands is kept that is too long to be stored; removed with the
session."""

import os
import shutil
from pathlib import Path

_FOLDER = "tool-output"


def output_path(data: Path, session_id: str, part_id: str) -> Path:
    """Where the whole output of a call is kept."""
    return data / _FOLDER / session_id / part_id


def open_output(path: Path) -> int:
    """A new file for the output of a call, readable by its owner alone."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def remove_outputs(data: Path, session_id: str) -> None:
    """Keep no output of a session that is gone for good."""
    # Another engine may do the same just now; what could not be removed is tried again later.
    shutil.rmtree(data / _FOLDER / session_id, ignore_errors=True)


def sessions_with_outputs(data: Path) -> list[str]:
    """The sessions of which output is kept."""
    folder = data / _FOLDER
    return sorted(os.listdir(folder)) if folder.is_dir() else []
