"""The location of kedge's data, and the few numbers that a user may want to change."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from kedge.domain.errors import InvalidInput
from kedge.engine.validation import check_path

_SHORTEST_LEASE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Numbers with sensible defaults. Times are in seconds."""

    lease_time: float = 30.0
    """How long an owner on another machine keeps its sessions without renewing its lease."""
    retention: float = 7 * 86400.0
    """How long a deleted session can be restored."""
    queue_length: int = 1024
    """Events that wait for one subscriber before it has to read from the log again."""
    stop_patience: float = 10.0
    """How long to wait for a running session to stop when it is aborted or deleted."""
    outage_patience: float = 30.0
    """How long calls wait for a PostgreSQL server that is down before they fail."""
    prompt_age: float = 600.0
    """How old a prompt may be that a server runs after a restart, because no run had begun it."""
    snapshots: bool = True
    """Whether steps take snapshots and calls record their changes to files."""
    snapshot_budget: float = 10.0
    """How long one snapshot may take before the worktree counts as degraded."""
    snapshot_file_size: int = 32 * 2**20
    """Larger files are not covered by snapshots; in bytes."""
    snapshot_files: int = 500_000
    """A worktree with more files than this is not protected."""
    snapshot_disk: int = 10 * 2**30
    """The target size of a project's snapshot store, in bytes; what sessions need is kept beyond
    it."""

    def __post_init__(self) -> None:
        if not isinstance(self.snapshots, bool):
            raise InvalidInput("the setting snapshots must be True or False", field="snapshots")
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "snapshots":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInput(f"the setting {name} must be a number", field=name)
            if not 0 <= value < math.inf:
                raise InvalidInput(f"the setting {name} must not be negative", field=name)
        if self.lease_time < _SHORTEST_LEASE:
            raise InvalidInput(
                f"the setting lease_time must be at least {_SHORTEST_LEASE}", field="lease_time"
            )
        if self.queue_length != int(self.queue_length) or self.queue_length < 1:
            raise InvalidInput(
                "the setting queue_length must be a whole number from 1 on", field="queue_length"
            )


def data_folder(given: str | os.PathLike[str] | None) -> Path:
    """The data folder: as given, else `KEDGE_DATA_DIR`, else the user's data home."""
    if given is not None:
        return absolute(check_path(given, "data_dir"))
    if named := os.environ.get("KEDGE_DATA_DIR"):
        return absolute(Path(named))
    home = os.environ.get("XDG_DATA_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path.home() / ".local" / "share"
    return base / "kedge"


def absolute(path: Path) -> Path:
    """The absolute path, with `~` and `~name` expanded."""
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise InvalidInput(f"{path}: there is no such home; write the path out") from error


def database_address(given: str | os.PathLike[str] | None) -> str | None:
    """The database: as given, else `KEDGE_DATABASE_URL`; None for the file in the data folder."""
    if given is None:
        return os.environ.get("KEDGE_DATABASE_URL") or None
    path = check_path(given, "database")
    # Not as a path, which would turn the two slashes of a URL into one.
    return given if isinstance(given, str) else str(path)


def make_private_folder(folder: Path) -> None:
    """Make a folder in the data folder, and that itself if need be, for nobody else to read."""
    # One by one: `parents=True` makes the folders above with the permissions of any other.
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
