"""What is on disk at a path now, in the words of snapshots; always hashed, never remembered."""

from kedge.snapshot.disk import Obstacle
from kedge.snapshot.files.reading import Failure, hash_file
from kedge.snapshot.values import Absent, Outcome, Present, State

OBSTACLES = {
    Failure.FOLDER: Obstacle(Outcome.CONFLICT, "there is a folder"),
    Failure.SPECIAL: Obstacle(Outcome.CONFLICT, "there is a socket, a pipe or a device"),
    Failure.UNSTABLE: Obstacle(Outcome.CONFLICT, "it keeps changing"),
    Failure.UNREADABLE: Obstacle(Outcome.SKIPPED, "it cannot be read"),
}


def look(dir_fd: int, name: bytes) -> Present | Absent | Obstacle:
    """What is at a name of an open folder."""
    found = hash_file(dir_fd, name)
    if found is Failure.ABSENT:
        return Absent()
    if isinstance(found, Failure):
        return OBSTACLES[found]
    mode, blob = found
    return Present(blob.hex(), mode)


def is_same(disk: Present | Absent | Obstacle, state: State) -> bool:
    """Whether type, permission bits and content are those of the state."""
    if isinstance(disk, Present) and isinstance(state, Present) and disk.is_link and state.is_link:
        # A symlink's own permission bits mean nothing and differ between systems.
        return disk.blob == state.blob
    return disk == state
