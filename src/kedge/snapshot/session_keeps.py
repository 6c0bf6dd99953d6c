"""Changes for which sessions snapshots are kept, without opening a worktree that may be gone."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from kedge.snapshot.objects.refs import SESSION
from kedge.snapshot.objects.store import ObjectStore


def release_session(data: str | os.PathLike[str], project: str, session: str) -> None:
    """Keep nothing for a session any more, if anything is kept for the project at all."""
    with _store(data, project) as store:
        if store is not None:
            store.release(session)


def inherit_session(data: str | os.PathLike[str], project: str, origin: str, fork: str) -> None:
    """Keep for a fork what is kept for its origin now, if anything."""
    with _store(data, project) as store:
        if store is not None:
            store.inherit(origin, fork)


def sessions_with_refs(data: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """The projects and sessions for which something is kept; without very recent ones, which only a
    journal knows yet."""
    found = []
    for folder in sorted((Path(data) / "snapshots").glob("*/" + SESSION.rstrip("/"))):
        project = folder.relative_to(Path(data) / "snapshots").parts[0]
        found += [(project, unquote(name)) for name in sorted(os.listdir(folder))]
    return found


@contextmanager
def _store(data: str | os.PathLike[str], project: str) -> Iterator[ObjectStore | None]:
    """A project's store, which is flushed at the end; None if it never had one."""
    folder = Path(data) / "snapshots" / project
    if not folder.is_dir():
        yield None
        return
    with ObjectStore(folder) as store:
        yield store
