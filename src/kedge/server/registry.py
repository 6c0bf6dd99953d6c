"""Where the servers of this machine listen: a file for each in the data folder, so that programs
find the server of a database."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kedge.engine.os_process import process_start
from kedge.engine.settings import make_private_folder

_FOLDER = "servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """A server, as it described itself."""

    url: str
    database: str
    """Where its sessions are; without a password."""
    root: str | None
    """The folder outside of which it refuses clients."""
    has_password: bool
    pid: int
    start: str


@contextmanager
def registered(data: Path, server: KnownServer) -> Iterator[None]:
    """Have the server found while the block lasts."""
    folder = data / _FOLDER
    make_private_folder(folder)
    path = folder / f"{server.pid}-{server.start.replace(' ', '-')}-{id(server):x}.json"
    path.write_text(json.dumps(asdict(server)), encoding="utf-8")
    try:
        yield
    finally:
        # The data folder may have been taken away.
        with suppress(FileNotFoundError):
            path.unlink()


def running_servers(data: Path, database: str) -> list[KnownServer]:
    """The servers of a database that run on this machine. What killed ones left is removed."""
    found = []
    for path in sorted((data / _FOLDER).glob("*.json")):
        try:
            server = KnownServer(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            # It is being written or removed, or by another version.
            continue
        if process_start(server.pid) != server.start:
            path.unlink(missing_ok=True)
        elif server.database == database:
            found.append(server)
    return found


def this_server(url: str, database: str, root: str | None, *, has_password: bool) -> KnownServer:
    """The description of a server in this process."""
    return KnownServer(
        url=url,
        database=database,
        root=root,
        has_password=has_password,
        pid=os.getpid(),
        start=process_start(os.getpid()) or "",
    )
