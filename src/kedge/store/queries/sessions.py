"""Sessions: create, read, change, delete and restore them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from kedge.domain import wire
from kedge.domain.errors import InvalidInput, SessionNotFound
from kedge.domain.events import EventProperties, SessionCreated, SessionDeleted, SessionUpdated
from kedge.domain.sessions import SessionInfo, SessionTime
from kedge.store.queries.fences import Fence, pass_fence
from kedge.store.queries.session_lists import list_session, relist_session, unlist_session
from kedge.store.rows import MAX_SESSION_BYTES, check_size
from kedge.store.transaction import Emit, Script, row, rows, run


@dataclass(frozen=True, slots=True)
class LockedSession:
    """A session row that no other transaction can change until this one ends."""

    info: SessionInfo
    worktree: str
    time_deleted: int | None
    next_pos: int
    last_created: int


def create_session(info: SessionInfo, worktree: str) -> Script[SessionInfo]:
    """Store a new session; its parent session, if any, must exist."""
    if info.parentID is not None:
        yield from lock_live_session(info.parentID)
    stored = yield from insert_session(info, worktree)
    yield about(stored, SessionCreated(sessionID=stored.id, info=stored))
    return stored


def insert_session(info: SessionInfo, worktree: str) -> Script[SessionInfo]:
    """The rows of a new session, without the event that announces it.

    The session belongs to the current project of its worktree, even if the caller names an older
    one.
    """
    home = yield from row("worktree_lock", path=worktree)
    if home is not None and home[0] != info.projectID:
        info = msgspec.structs.replace(info, projectID=home[0])
    if (yield from row("session_lock", id=info.id)) is not None:
        raise InvalidInput(f"a session {info.id} exists already", field="id")
    yield from run(
        "session_insert",
        id=info.id,
        project_id=info.projectID,
        worktree=worktree,
        directory=info.directory,
        parent_id=info.parentID,
        fork_session_id=info.fork.sessionID if info.fork else None,
        time_updated=info.time.updated,
        data=encoded(info),
    )
    yield from list_session(info)
    return info


def get_session(id: str) -> Script[SessionInfo]:
    """The session, unless it does not exist or is deleted."""
    return wire.decode((yield from get_session_text(id)), SessionInfo)


def get_session_text(id: str) -> Script[str]:
    """The JSON text of the session for clients."""
    found = yield from row("session_get", id=id)
    if found is None:
        raise SessionNotFound(id)
    return str(found[0])


def lock_session(id: str) -> Script[LockedSession]:
    """The session, deleted or not, locked until the transaction ends."""
    found = yield from row("session_lock", id=id)
    if found is None:
        raise SessionNotFound(id)
    _, _, worktree, time_deleted, next_pos, last_created, data = found
    info = wire.decode(data, SessionInfo)
    return LockedSession(info, worktree, time_deleted, next_pos, last_created)


def lock_live_session(id: str, fence: Fence | None = None) -> Script[LockedSession]:
    """The session, locked until the transaction ends, unless it is deleted or the fence fails."""
    locked = yield from lock_session(id)
    yield from pass_fence(fence)
    if locked.time_deleted is not None:
        raise SessionNotFound(id)
    return locked


def change_session(id: str, *changes: Callable[[SessionInfo], SessionInfo]) -> Script[SessionInfo]:
    """Make changes to a session, each with an event of its own unless it changes nothing."""
    info = (yield from lock_live_session(id)).info
    for change in changes:
        before, info = info, change(info)
        if info != before:
            yield from save_session(info)
    return info


def archive_subtasks(id: str, before: float | None, at: float | None) -> Script[None]:
    """Archive the subtasks of a session along with it, or no longer: those that were archived, or
    not, as the session was before."""
    left = [id]
    while left:
        for (child,) in (yield from rows("session_child_ids", id=left.pop())):
            info = (yield from lock_session(child)).info
            if info.time.archived == before:
                yield from save_session(archived(info, at))
                left.append(child)


def save_session(info: SessionInfo) -> Script[None]:
    """Store a session that the transaction has locked, and announce it."""
    yield from store_session(info)
    yield from relist_session(info)
    yield about(info, SessionUpdated(sessionID=info.id, info=info))


def store_session(info: SessionInfo) -> Script[None]:
    """The row of a session that the transaction has locked, without the event that announces it."""
    yield from run(
        "session_put",
        id=info.id,
        project_id=info.projectID,
        time_updated=info.time.updated,
        data=encoded(info),
    )


def touched(info: SessionInfo, now: int) -> SessionInfo:
    """The session with a later `time.updated`; it never goes back."""
    time = msgspec.structs.replace(info.time, updated=max(now, info.time.updated))
    return msgspec.structs.replace(info, time=time)


def sessions_from(prefix: str, limit: int) -> Script[list[SessionInfo]]:
    """The sessions whose id begins like this, in the order of their ids."""
    # Ids are ASCII: this sorts behind whatever begins with the prefix.
    found = yield from rows("session_from", lowest=prefix, beyond=f"{prefix}\x7f", limit=limit)
    return _decoded([text for (text,) in found])


def child_sessions(id: str) -> Script[list[SessionInfo]]:
    """The subtasks of a session."""
    return _decoded((yield from child_texts(id)))


def child_texts(id: str) -> Script[list[str]]:
    """The subtasks of a session, each as JSON text."""
    yield from get_session_text(id)
    return [text for (text,) in (yield from rows("session_children", id=id))]


def forks_of_session(id: str) -> Script[list[SessionInfo]]:
    """The sessions that were forked from this one."""
    return _decoded((yield from fork_texts(id)))


def fork_texts(id: str) -> Script[list[str]]:
    """The sessions that were forked from this one, each as JSON text."""
    yield from get_session_text(id)
    return [text for (text,) in (yield from rows("session_forks", id=id))]


def session_tree(id: str) -> Script[list[str]]:
    """A live session and its subtasks, each after its own subtasks; the session itself is last."""
    found: list[str] = []
    left = [id]
    while left:
        found.append(left.pop())
        left += [child for (child,) in (yield from rows("session_child_ids", id=found[-1]))]
    return found[::-1]


def lock_session_tree(id: str) -> Script[list[SessionInfo]]:
    """The sessions of `session_tree`, all locked until the transaction ends."""
    yield from lock_live_session(id)
    found: list[SessionInfo] = []
    left = [id]
    while left:
        # Locked before its children are read: from then on there are no new ones.
        found.append((yield from lock_session(left.pop())).info)
        left += [child for (child,) in (yield from rows("session_child_ids", id=found[-1].id))]
    return found[::-1]


def delete_session(id: str, now: int) -> Script[list[SessionInfo]]:
    """Hide a session and its subtasks, each after its own subtasks. Their rows stay until they are
    purged."""
    gone = yield from lock_session_tree(id)
    now = yield from _time_of_its_own(gone, now)
    for info in gone:
        each = info.id
        yield from run("session_set_deleted", id=each, time_deleted=now)
        yield from unlist_session(each)
        yield about(info, SessionDeleted(sessionID=each, info=info))
    return gone


def _time_of_its_own(gone: Sequence[SessionInfo], now: int) -> Script[int]:
    """The first time from `now` on at which no subtask of these sessions was deleted by itself:
    what has the same time of deletion is restored together."""
    taken: set[int] = set()
    for info in gone:
        taken |= {time for (time,) in (yield from rows("session_deleted_times", id=info.id))}
    return next(time for time in count(now) if time not in taken)


def restore_session(id: str) -> Script[SessionInfo]:
    """Restore a deleted session, with the subtasks that were deleted along with it."""
    root = yield from lock_session(id)
    if root.time_deleted is None:
        return root.info
    ids = [id]
    for each in ids:  # It grows during the iteration.
        info = (yield from lock_session(each)).info
        children = yield from rows(
            "session_deleted_child_ids", id=each, time_deleted=root.time_deleted
        )
        ids += [child for (child,) in children]
        yield from run("session_set_deleted", id=each, time_deleted=None)
        yield from list_session(info)
        yield about(info, SessionUpdated(sessionID=each, info=info))
    return root.info


def deleted_sessions(after: tuple[int, str], limit: int) -> Script[list[tuple[SessionInfo, int]]]:
    """Deleted sessions that can still be restored, with the time of deletion, the earliest
    first."""
    found = yield from rows("session_deleted_list", time=after[0], id=after[1], limit=limit)
    return [(wire.decode(data, SessionInfo), deleted) for data, deleted in found]


def move_worktree_sessions(worktree: str, from_project: str, to_project: str) -> Script[int]:
    """Move the sessions of a folder when it turns out to belong to another project."""
    found = yield from rows("session_of_worktree", worktree=worktree, project_id=from_project)
    for (id,) in found:
        yield from _rehome(id, projectID=to_project)
    return len(found)


def strays_in(directory: str, worktree: str) -> Script[bool]:
    """Whether a directory has sessions of a worktree that it is no longer in."""
    args = {"directory": directory, "worktree": worktree}
    return bool((yield from rows("session_of_directory", limit=1, **args)))


def adopt_strays(directory: str, worktree: str, project_id: str) -> Script[None]:
    """Move the sessions of a directory to the worktree that it is in now.

    It may have become a repository of its own, or a part of one that was made around it.
    """
    args = {"directory": directory, "worktree": worktree}
    for (id,) in (yield from rows("session_of_directory", limit=2**31, **args)):
        path = directory.removeprefix(worktree).strip("/")
        yield from run("session_set_worktree", id=id, worktree=worktree)
        yield from _rehome(id, projectID=project_id, path=path)


def _rehome(id: str, **changes: str) -> Script[None]:
    locked = yield from lock_session(id)
    info = msgspec.structs.replace(locked.info, **changes)
    if locked.time_deleted is None:
        yield from unlist_session(id)
        yield from list_session(info)
        yield from save_session(info)
    else:
        yield from store_session(info)
        yield about(info, SessionDeleted(sessionID=id, info=info))


def about(info: SessionInfo, properties: EventProperties, entity: str = "session") -> Emit:
    """An event about a session."""
    text = wire.encode(properties)
    return Emit(properties.type, text, entity, info.id, info.projectID, info.directory)


def encoded(info: SessionInfo) -> str:
    """The session's JSON text, if it is small enough to be repeated in every event."""
    return check_size(wire.encode(info), "the session object", MAX_SESSION_BYTES)


def _decoded(texts: Sequence[str]) -> list[SessionInfo]:
    return [wire.decode(text, SessionInfo) for text in texts]


def archived(info: SessionInfo, at: float | None) -> SessionInfo:
    """The session archived at a time, or no longer archived."""
    time: SessionTime = msgspec.structs.replace(info.time, archived=at)
    return msgspec.structs.replace(info, time=time)
