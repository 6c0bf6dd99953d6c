"""Where kedge keeps its data and the few numbers that a user may want to change."""

import os
from dataclasses import dataclass
from pathlib import Path

from kedge.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Numbers with sensible defaults. Times are in seconds."""

    lease_time: float = 30.0
    """How long a silent owner on another machine keeps its sessions."""
    retention: float = 7 * 86400.0
    """How long a deleted session can be restored."""
    queue_length: int = 1024
    """Events that wait for one subscriber before it is sent back to the log."""
    stop_patience: float = 10.0
    """How long to wait for a running session to stop when it is aborted or deleted."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise InvalidInput(f"the setting {name} must not be negative", field=name)


def data_folder(given: str | os.PathLike[str] | None) -> Path:
    """The data folder: as given, else `KEDGE_DATA_DIR`, else the user's data home."""
    if given is not None:
        return Path(given).expanduser().absolute()
    if named := os.environ.get("KEDGE_DATA_DIR"):
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_DATA_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path.home() / ".local" / "share"
    return base / "kedge"


def database_address(given: str | os.PathLike[str] | None) -> str | None:
    """The database: as given, else `KEDGE_DATABASE_URL`; None for the file in the data folder."""
    return os.fspath(given) if given is not None else os.environ.get("KEDGE_DATABASE_URL") or None
