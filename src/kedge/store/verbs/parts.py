"""Parts: write and remove them one at a time. This is the store's hottest path."""

from kedge.domain import wire
from kedge.domain.errors import MessageNotFound, PartNotFound, SessionNotFound
from kedge.domain.events import PartRemoved, PartUpdated
from kedge.domain.parts import Part, StepFinishPart
from kedge.store.rows import MAX_VALUE_BYTES, check_size, join_part, part_type, split_part
from kedge.store.script import Emit, Row, Script, row, run
from kedge.store.verbs.fences import Fence
from kedge.store.verbs.sessions import about, lock_live_session
from kedge.store.verbs.totals import Totals, add_totals, sum_finishes, totals_of


def put_part(
    part: Part,
    *,
    now: int,
    fence: Fence | None = None,
    progress: bool = False,
    after_progress: bool = False,
) -> Script[None]:
    """Store a part, new or changed; see `Emit` for what progress is."""
    if isinstance(part, StepFinishPart):
        # Before the part's home is locked: the totals change the session itself.
        session = (yield from lock_live_session(part.sessionID)).info
    project_id, directory, pos = yield from _home(part.sessionID, part.messageID, fence)
    totals = Totals()
    if isinstance(part, StepFinishPart):
        totals = totals_of(part.cost, part.tokens)
        totals += (yield from _finish_totals(part.sessionID, pos, part.id)).negative()
    yield from run(
        "part_put",
        session_id=part.sessionID,
        message_pos=pos,
        id=part.id,
        type=part_type(part),
        data=check_size(split_part(part), "the part", MAX_VALUE_BYTES),
    )
    yield Emit(
        PartUpdated(sessionID=part.sessionID, part=part, time=now),
        f"part:{part.messageID}/{part.id}",
        part.sessionID,
        project_id,
        directory,
        progress,
        after_progress,
    )
    if isinstance(part, StepFinishPart):
        yield from add_totals(session, totals)


def get_part(session_id: str, message_id: str, id: str) -> Script[Part]:
    """One part."""
    _, _, pos = yield from _home(session_id, message_id, None)
    found = yield from row("part_get", session_id=session_id, message_pos=pos, id=id)
    if found is None:
        raise PartNotFound(id)
    return decode_part(session_id, message_id, found)


def remove_part(
    session_id: str, message_id: str, id: str, *, fence: Fence | None = None
) -> Script[bool]:
    """Remove a part; tells whether it was there."""
    locked = yield from lock_live_session(session_id, fence)
    home = yield from row("message_get", session_id=session_id, id=message_id)
    totals, found = Totals(), None
    if home is not None:
        pos = home[4]
        found = yield from row("part_get", session_id=session_id, message_pos=pos, id=id)
        totals = yield from _finish_totals(session_id, pos, id)
        yield from run("part_delete", session_id=session_id, message_pos=pos, id=id)
    event = PartRemoved(sessionID=session_id, messageID=message_id, partID=id)
    yield about(locked.info, event, f"part:{message_id}/{id}")
    yield from add_totals(locked.info, totals.negative())
    return found is not None


def decode_part(session_id: str, message_id: str, found: Row) -> Part:
    """A part from a row of id, type, data."""
    id, type, data = found
    part: Part = wire.decode(join_part(session_id, message_id, id, type, data), Part)
    return part


def _home(session_id: str, message_id: str, fence: Fence | None) -> Script[Row]:
    query = "part_home" if fence is None else "part_home_fenced"
    found = yield from row(query, session_id=session_id, message_id=message_id)
    if found is None:
        if (yield from row("session_get", id=session_id)) is None:
            raise SessionNotFound(session_id)
        raise MessageNotFound(message_id)
    project_id, directory, pos, generation = found
    if fence is not None:
        fence.check(generation)
    return project_id, directory, pos


def _finish_totals(session_id: str, pos: int, id: str) -> Script[Totals]:
    found = yield from row("part_get", session_id=session_id, message_pos=pos, id=id)
    if found is None or found[1] != "step-finish":
        return Totals()
    return sum_finishes([found[2]])
