"""Copies: the common part of forks and restored tails after their rows are copied."""

from collections.abc import Mapping

import msgspec

from kedge.domain import wire
from kedge.domain.events import MessageUpdated, PartUpdated
from kedge.domain.messages import Message
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.parts import decode_part
from kedge.store.queries.search import COPIED
from kedge.store.queries.sessions import about, store_session
from kedge.store.rows import join_message
from kedge.store.transaction import Row, Script, batch, rows, run

_AT_ONCE = 50


def finish_copy(info: SessionInfo, next_pos: int, last_created: int) -> Script[None]:
    """The row of a session whose messages are copied, without the event that announces it.

    The last time is that of its origin: new messages are newer than copied marks of pruned outputs.
    """
    yield from run("session_advance", id=info.id, next_pos=next_pos, last_created=last_created)
    yield from store_session(info)


def rename_tail_starts(fork: str, copies: Mapping[str, str]) -> Script[None]:
    """Compaction parts name the message their tail starts at: in the copies, the copied message."""
    changed = []
    for message_pos, id, data in (yield from rows("part_compactions", session_id=fork)):
        start = wire.decode(data, _Compaction).tail_start_id
        if start is not None and start in copies:
            body = wire.decode(data, dict[str, object])
            body["tail_start_id"] = copies[start]
            changed.append(
                {
                    "session_id": fork,
                    "message_pos": message_pos,
                    "id": id,
                    "data": wire.encode(body),
                }
            )
    yield from batch("part_set_data", changed)


def announce_copies(info: SessionInfo, *, indexed_from: int) -> Script[None]:
    """Announce every copy; those from a position on are added to the search index, as no other
    event has them."""
    pos = -1
    while page := (
        yield from rows("message_page_forth", session_id=info.id, pos=pos, limit=_AT_ONCE)
    ):
        for each in page:
            pos = each[4]
            yield from announce_copy(info, each, copied=pos < indexed_from)


def announce_copy(info: SessionInfo, found: Row, *, copied: bool = True) -> Script[None]:
    """Announce one copied message and its parts; `copied` keeps them out of the search index."""
    message: Message = wire.decode(join_message(info.id, found), Message)
    yield about(info, MessageUpdated(sessionID=info.id, info=message), f"message:{message.id}")
    pos = found[4]
    parts = yield from rows("part_range", session_id=info.id, first=pos, last=pos)
    for _, id, type, data in parts:
        part = decode_part(info.id, message.id, (id, type, data))
        extra = COPIED if copied else None
        update = PartUpdated(sessionID=info.id, part=part, time=info.time.updated, extra=extra)
        yield about(info, update, f"part:{message.id} {id}")


class _Compaction(msgspec.Struct):
    tail_start_id: str | None = None
