"""Messages: write, read, page and remove them, with their parts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from kedge.domain import wire
from kedge.domain.cursors import PageCursor
from kedge.domain.errors import InvalidInput, MessageNotFound
from kedge.domain.events import MessageRemoved, MessageUpdated
from kedge.domain.messages import Answer, AssistantMessage, Message, MessageWithParts, UserMessage
from kedge.domain.sessions import SessionInfo
from kedge.domain.wire_errors import is_overflow
from kedge.store.queries.fences import Fence
from kedge.store.queries.sessions import LockedSession, about, get_session_text, lock_live_session
from kedge.store.queries.totals import add_totals, message_totals
from kedge.store.rows import (
    MAX_VALUE_BYTES,
    check_size,
    join_message,
    part_home,
    part_text,
    split_message,
)
from kedge.store.transaction import Row, Script, row, rows, run


class MessageText(NamedTuple):
    """A message and its parts as JSON text, ready to be joined into an answer."""

    info: str
    parts: str
    """The parts, with commas between them."""

    @property
    def text(self) -> str:
        """The whole JSON text."""
        return f'{{"info":{self.info},"parts":[{self.parts}]}}'

    def decoded(self) -> MessageWithParts:
        """The message as a value."""
        return wire.decode(self.text, MessageWithParts)

    def answer(self) -> Answer:
        """The message as a value, if it is an assistant's."""
        return wire.decode(self.text, Answer)


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Neighbouring messages of a session, oldest first."""

    messages: list[MessageText]
    older: PageCursor | None
    newer: PageCursor | None
    last: PageCursor | None
    """The newest of them, whether or not there are newer ones."""


def put_message(
    message: Message, *, fence: Fence | None = None, awaiting: int = 0
) -> Script[Message]:
    """Store a new or changed message. The store sets the time it was created, which never
    changes."""
    locked = yield from lock_live_session(message.sessionID, fence)
    return (yield from put_message_of(locked, message, awaiting=awaiting))


def put_message_of(
    locked: LockedSession, message: Message, *, awaiting: int = 0
) -> Script[Message]:
    """Store a message of a session that the transaction has locked."""
    old = yield from row("message_get", session_id=message.sessionID, id=message.id)
    if old is None:
        stored = yield from _insert(locked, message, awaiting)
    else:
        stored = yield from _update(message, old)
    event = MessageUpdated(sessionID=stored.sessionID, info=stored)
    yield about(locked.info, event, f"message:{stored.id}")
    return stored


def change_message(info: SessionInfo, message: Message) -> Script[None]:
    """Change a message of a session that the transaction has locked."""
    old = yield from row("message_get", session_id=message.sessionID, id=message.id)
    assert old is not None
    stored = yield from _update(message, old)
    yield about(info, MessageUpdated(sessionID=info.id, info=stored), f"message:{stored.id}")


def _insert(locked: LockedSession, message: Message, awaiting: int) -> Script[Message]:
    created = max(int(message.time.created), locked.last_created + 1)
    stored = _created_at(message, created)
    role, parent, data = split_message(stored)
    yield from run(
        "message_insert",
        session_id=stored.sessionID,
        pos=locked.next_pos,
        id=stored.id,
        role=role,
        parent_id=parent,
        awaiting=awaiting,
        open=int(_is_open(stored)),
        data=check_size(data, "the message", MAX_VALUE_BYTES),
    )
    yield from run(
        "session_advance", id=stored.sessionID, next_pos=locked.next_pos + 1, last_created=created
    )
    return stored


def _update(message: Message, old: Row) -> Script[Message]:
    before = wire.decode(join_message(message.sessionID, old), Message)
    if type(before) is not type(message):
        raise InvalidInput(f"message {message.id} cannot change its role", field="role")
    stored = _created_at(message, int(before.time.created))
    role, parent, data = split_message(stored)
    yield from run(
        "message_update",
        session_id=stored.sessionID,
        id=stored.id,
        role=role,
        parent_id=parent,
        open=int(_is_open(stored)),
        data=check_size(data, "the message", MAX_VALUE_BYTES),
    )
    return stored


def last_answer(session_id: str, id: str) -> Script[MessageText | None]:
    """The newest answer to a prompt. If that is incomplete, because a newer prompt came in between
    and was answered with it, the newest answer to that one."""
    found = yield from rows("message_answers_after", session_id=session_id, id=id)
    own = [place for place, each in enumerate(found) if each[2] == id]
    if not own and (yield from row("message_failed", session_id=session_id, id=id)) is not None:
        return None
    last = None
    for each in found[own[-1] if own else 0 :]:
        if last is None or each[2] == last[2] or not _is_whole(session_id, last):
            last = each
            continue
        if not (yield from _is_asked_again(session_id, last, each)):
            break
        last = each
    return None if last is None else (yield from get_message(session_id, last[0]))


def _is_whole(session_id: str, answer: Row) -> bool:
    message = wire.decode(join_message(session_id, answer), AssistantMessage)
    if message.summary and message.error is None:
        return False  # the answer goes on after it
    ends_with_call = message.finish == "tool-calls" and message.structured is None
    return not ends_with_call or message.error is not None


def _is_asked_again(session_id: str, failed: Row, answer: Row) -> Script[bool]:
    """Whether an answer is the summary after which a prompt that was too long is asked again."""
    error = wire.decode(join_message(session_id, failed), AssistantMessage).error
    if error is None or not is_overflow(error):
        return False
    prompt = yield from row("message_get", session_id=session_id, id=answer[2])
    if prompt is None:
        return False
    parts = yield from rows("part_range", session_id=session_id, first=prompt[4], last=prompt[4])
    return any(type == "compaction" and '"overflow":true' in data for _, _, type, data in parts)


def get_message(session_id: str, id: str) -> Script[MessageText]:
    """A message with its parts."""
    yield from get_session_text(session_id)
    found = yield from row("message_get", session_id=session_id, id=id)
    if found is None:
        raise MessageNotFound(id)
    (text,) = yield from with_parts(session_id, [found])
    return text


def message_page(
    session_id: str,
    *,
    before: PageCursor | None = None,
    after: PageCursor | None = None,
    limit: int,
) -> Script[MessagePage]:
    """Messages next to a cursor: the newest before it, or the oldest after it; without one the
    newest of all."""
    yield from get_session_text(session_id)
    if after is None:
        pos = before.at if before else 2**62
        found = yield from rows(
            "message_page_back", session_id=session_id, pos=pos, limit=limit + 1
        )
        page = list(found[:limit])[::-1]
        more_older, more_newer = len(found) > limit, before is not None
    else:
        found = yield from rows(
            "message_page_forth", session_id=session_id, pos=after.at, limit=limit + 1
        )
        page = list(found[:limit])
        more_older, more_newer = True, len(found) > limit
    texts = yield from with_parts(session_id, page)
    older = PageCursor(page[0][4], page[0][0]) if page and more_older else None
    last = PageCursor(page[-1][4], page[-1][0]) if page else None
    return MessagePage(texts, older, last if more_newer else None, last)


def remove_message(session_id: str, id: str, *, fence: Fence | None = None) -> Script[bool]:
    """Remove a message and its parts; return whether it existed."""
    locked = yield from lock_live_session(session_id, fence)
    found = yield from row("message_get", session_id=session_id, id=id)
    if found is not None:
        pos = found[4]
        totals = yield from message_totals(session_id, pos, pos)
        yield from run("part_delete_of_message", session_id=session_id, message_pos=pos)
        yield from run("message_delete", session_id=session_id, id=id)
    event = MessageRemoved(sessionID=session_id, messageID=id)
    yield about(locked.info, event, f"message:{id}")
    if found is not None:
        yield from add_totals(locked.info, totals.negative())
    return found is not None


def with_parts(session_id: str, page: Sequence[Row]) -> Script[list[MessageText]]:
    """Messages with their parts, from rows that start with id, role, parent_id, data, pos."""
    if not page:
        return []
    parts: dict[int, list[str]] = {found[4]: [] for found in page}
    homes = {found[4]: part_home(session_id, found[0]) for found in page}
    found_parts = yield from rows(
        "part_range", session_id=session_id, first=page[0][4], last=page[-1][4]
    )
    for pos, part_id, type, data in found_parts:
        parts[pos].append(part_text(homes[pos], part_id, type, data))
    return [
        MessageText(join_message(session_id, found), ",".join(parts[found[4]])) for found in page
    ]


def _created_at(message: Message, created: int) -> Message:
    if isinstance(message, UserMessage):
        user_time = msgspec.structs.replace(message.time, created=created)
        return msgspec.structs.replace(message, time=user_time)
    time = msgspec.structs.replace(message.time, created=created)
    return msgspec.structs.replace(message, time=time)


def _is_open(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and message.time.completed is None
