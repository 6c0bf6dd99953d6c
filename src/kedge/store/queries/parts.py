"""Parts: write and remove them one at a time. This is the store's hottest path."""

from contextlib import suppress
from typing import NamedTuple

import msgspec

from kedge.domain import wire
from kedge.domain.errors import InvalidInput, MessageNotFound, PartNotFound, SessionNotFound
from kedge.domain.events import PartRemoved, PartUpdated
from kedge.domain.parts import Part, ReasoningPart, StepFinishPart, TextPart
from kedge.store.queries.fences import Fence, pass_fence
from kedge.store.queries.pieces import drop_pieces
from kedge.store.queries.sessions import about, get_session_text, lock_live_session
from kedge.store.queries.totals import Totals, add_totals, sum_finishes, totals_of
from kedge.store.rows import MAX_VALUE_BYTES, check_size, join_part, part_type, quoted, strip_part
from kedge.store.transaction import Emit, Row, Script, row, rows, run


class _Metadata(msgspec.Struct):
    loaded: list[str] = []


class _State(msgspec.Struct):
    metadata: _Metadata


class _Call(msgspec.Struct):
    state: _State


def loaded_files(session_id: str) -> Script[set[str]]:
    """The files whose text the calls of a session loaded beside what they were asked for."""
    # Inside a text the quotation marks would be escaped.
    pattern = '%"loaded":["%'
    found = yield from rows("part_tools_like", session_id=session_id, pattern=pattern)
    files: set[str] = set()
    for (data,) in found:
        # A custom tool may use the key for something else.
        with suppress(msgspec.ValidationError):
            files.update(msgspec.json.decode(data, type=_Call).state.metadata.loaded)
    return files


class _Home(NamedTuple):
    """The message that a part belongs to."""

    project_id: str
    directory: str
    pos: int
    generation: int | None


def put_part(
    part: Part,
    *,
    now: int,
    fence: Fence | None = None,
    progress: bool = False,
    after_progress: bool = False,
) -> Script[None]:
    """Store a new or changed part; see `Emit` for progress."""
    if isinstance(part, StepFinishPart):
        yield from _put_finish(part, now, fence)
        return
    home = yield from _home(part.sessionID, part.messageID, fence)
    yield from _put_at(home, part, now, progress, after_progress)


def _put_finish(part: StepFinishPart, now: int, fence: Fence | None) -> Script[None]:
    # The totals change the session itself, which is locked before the part's home is.
    session = (yield from lock_live_session(part.sessionID)).info
    home = yield from _home(part.sessionID, part.messageID, fence)
    before = yield from _finish_totals(part.sessionID, home.pos, part.id)
    yield from _put_at(home, part, now, progress=False, after_progress=False)
    yield from add_totals(session, totals_of(part.cost, part.tokens) + before.negative())


def _put_at(
    home: _Home, part: Part, now: int, progress: bool, after_progress: bool
) -> Script[None]:
    text = wire.encode(part)
    stored = yield from run(
        "part_put",
        session_id=part.sessionID,
        message_pos=home.pos,
        id=part.id,
        type=part_type(part),
        data=check_size(strip_part(part, text), "the part", MAX_VALUE_BYTES),
    )
    if not stored:
        raise InvalidInput(f"part {part.id} cannot change its type", field="type")
    if isinstance(part, TextPart | ReasoningPart):
        yield from drop_pieces(part.sessionID, part.id)
    yield Emit(
        PartUpdated.type,
        # Joined, not encoded again: `PartUpdated` in the form that `wire.encode` gives it.
        f'{{"sessionID":{quoted(part.sessionID)},"part":{text},"time":{now}}}',
        f"part:{part.messageID} {part.id}",
        part.sessionID,
        home.project_id,
        home.directory,
        progress,
        after_progress,
    )


def get_part(session_id: str, message_id: str, id: str) -> Script[Part]:
    """One part."""
    # Not by `_home`, which locks: a reader must not.
    yield from get_session_text(session_id)
    home = yield from row("message_get", session_id=session_id, id=message_id)
    if home is None:
        raise MessageNotFound(message_id)
    found = yield from row("part_get", session_id=session_id, message_pos=home[4], id=id)
    if found is None:
        raise PartNotFound(id)
    return decode_part(session_id, message_id, found)


def remove_part(
    session_id: str, message_id: str, id: str, *, fence: Fence | None = None
) -> Script[bool]:
    """Remove a part; return whether it existed."""
    locked = yield from lock_live_session(session_id, fence)
    home = yield from row("message_get", session_id=session_id, id=message_id)
    totals, found = Totals(), None
    if home is not None:
        pos = home[4]
        found = yield from row("part_get", session_id=session_id, message_pos=pos, id=id)
        totals = yield from _finish_totals(session_id, pos, id)
        yield from run("part_delete", session_id=session_id, message_pos=pos, id=id)
        yield from drop_pieces(session_id, id)
    event = PartRemoved(sessionID=session_id, messageID=message_id, partID=id)
    yield about(locked.info, event, f"part:{message_id} {id}")
    yield from add_totals(locked.info, totals.negative())
    return found is not None


def decode_part(session_id: str, message_id: str, found: Row) -> Part:
    """A part from a row of id, type, data."""
    id, type, data = found
    part: Part = wire.decode(join_part(session_id, message_id, id, type, data), Part)
    return part


def _home(session_id: str, message_id: str, fence: Fence | None) -> Script[_Home]:
    query = "part_home" if fence is None else "part_home_fenced"
    found = yield from row(query, session_id=session_id, message_id=message_id)
    if found is None:
        if (yield from row("session_get", id=session_id)) is None:
            raise SessionNotFound(session_id)
        yield from pass_fence(fence)
        raise MessageNotFound(message_id)
    home = _Home(*found)
    if fence is not None:
        fence.check(home.generation)
    return home


def _finish_totals(session_id: str, pos: int, id: str) -> Script[Totals]:
    found = yield from row("part_get", session_id=session_id, message_pos=pos, id=id)
    if found is None or found[1] != "step-finish":
        return Totals()
    return sum_finishes([found[2]])
