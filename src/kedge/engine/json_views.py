"""Sessions, messages and events as clients get them: the stored JSON text, joined without decoding.

The stored diffs have no patches; where they are shown, the text around them is decoded, filled in
and encoded again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kedge.domain import wire
from kedge.domain.cursors import PageCursor
from kedge.domain.errors import NotFound, SnapshotError
from kedge.domain.events import EventProperties, MessageUpdated, SessionDiff, frame, read_frame
from kedge.domain.file_states import LEFT
from kedge.domain.ids import check_id
from kedge.domain.messages import UserMessage
from kedge.domain.sessions import FileDiff, SessionInfo
from kedge.domain.values import Value
from kedge.engine.diffs.diffs import ROOM
from kedge.engine.event_log import Event
from kedge.engine.pages import MessageTexts, PageKey, Pages
from kedge.engine.session import Session
from kedge.engine.session_query import Listing, read_page
from kedge.engine.validation import check_limit
from kedge.store.queries.change_queries import changes_of_turn
from kedge.store.queries.changes import StoredChange, family_changes
from kedge.store.queries.event_log import session_head
from kedge.store.queries.messages import MessagePage, MessageText, get_message, message_page
from kedge.store.queries.plans import pending_plans
from kedge.store.queries.projects import get_project
from kedge.store.queries.sessions import child_texts, fork_texts, get_session, get_session_text
from kedge.store.transaction import Script

if TYPE_CHECKING:
    from kedge.engine.engine import Engine

# Quotes inside a JSON string are escaped, so text of users cannot match either of these.
_REVERTED = '"revert":{'
_CHANGED = '"diffs":[{'
_PROMPT = '{"role":"user"'
_MARKS = {MessageUpdated.type: _CHANGED, SessionDiff.type: '"diff":[{'}
"""By event type, the text that shows that an event has diffs."""
_EVENT_ROOM = 256 * 1024
"""Bytes of patch text in one event."""
_FEW = 100
"""Up to this many messages are read on the event loop: a thread would compete with it for
longer."""


class ProjectSummary(Value, frozen=True, kw_only=True):
    """What a list of all projects' sessions says of each project."""

    id: str
    name: str | None = None
    worktree: str


class _Home(msgspec.Struct, frozen=True):
    projectID: str


@dataclass(frozen=True, slots=True)
class Texts:
    """One page of a list, each item as JSON text."""

    texts: list[str]
    cursor: str | None
    """Pass it back to get the next page; None at the end."""

    @property
    def text(self) -> str:
        """All of them as one JSON list."""
        return f"[{','.join(self.texts)}]"


async def session_text(engine: "Engine", id: str) -> str:
    """A session, with the diffs of its pending revert."""
    text = await engine.store.read(partial(get_session_text, check_id("ses", id)))
    if _REVERTED not in text:
        return text
    return wire.encode(await shown(Session(engine, wire.decode(text, SessionInfo))))


async def shown(session: Session) -> SessionInfo:
    """A session's value, with the diffs of its pending revert."""
    info = session.info
    if info.revert is None:
        return info
    try:
        diff = await session.reverted_diff()
    except SnapshotError:
        # A client wants the session even if the diffs cannot be read.
        return info
    revert = msgspec.structs.replace(info.revert, diff=diff or None)
    return msgspec.structs.replace(info, revert=revert)


async def session_texts(engine: "Engine", listing: Listing) -> Texts:
    """A page of sessions."""
    return Texts(*await read_page(engine, listing, lambda page: page.texts))


async def with_projects(engine: "Engine", texts: Sequence[str]) -> list[str]:
    """Sessions, each with the project that it belongs to."""
    projects: dict[str, str] = {}
    found = []
    for text in texts:
        id = msgspec.json.decode(text, type=_Home).projectID
        if id not in projects:
            project = await engine.store.read(partial(get_project, id))
            known = ProjectSummary(id=project.id, name=project.name, worktree=project.worktree)
            projects[id] = wire.encode(known)
        found.append(f'{text[:-1]},"project":{projects[id]}}}')
    return found


async def child_session_texts(engine: "Engine", id: str) -> Texts:
    """The subtasks of a session."""
    return Texts(await engine.store.scan(partial(child_texts, check_id("ses", id))), None)


async def fork_session_texts(engine: "Engine", id: str) -> Texts:
    """The sessions that were forked from a session."""
    return Texts(await engine.store.scan(partial(fork_texts, check_id("ses", id))), None)


async def message_text(engine: "Engine", session_id: str, id: str) -> str:
    """A message with its parts, and the patches of its turn."""
    check_id("ses", session_id)
    script = partial(get_message, session_id, check_id("msg", id))
    (found,) = await _filled(engine, session_id, [await engine.store.scan(script)])
    return found.text


async def message_texts(
    engine: "Engine", session_id: str, *, before: str | None, limit: int
) -> MessageTexts:
    """The newest messages, or those before a cursor, oldest first."""
    check_id("ses", session_id)
    cursor = None if before is None else PageCursor.parse(before, session_id)
    read = engine.store.read if check_limit(limit) <= _FEW else engine.store.scan
    key = PageKey(session_id, before, limit)
    head, found = await read(partial(_page, engine.pages, key, cursor))
    if isinstance(found, MessageTexts):
        engine.pages.keep(key, head, found)
        return found
    changed = any(_is_changed_prompt(each.info) for each in found.messages)
    filled = await _filled(engine, session_id, found.messages) if changed else found.messages
    older = found.older.text(session_id) if found.older else None
    texts = MessageTexts(_joined(filled), older)
    # Not cached where patches belong, even if none could be read: these depend on more than the
    # events of the session.
    if not changed:
        engine.pages.keep(key, head, texts)
    return texts


def _page(
    pages: Pages, key: PageKey, cursor: PageCursor | None
) -> Script[tuple[int, MessageTexts | MessagePage]]:
    """A page, cached or read, and the newest event of its session before that."""
    head = yield from session_head(key.session_id)
    if (kept := pages.find(key, head)) is not None:
        yield from get_session_text(key.session_id)
        return head, kept
    return head, (yield from message_page(key.session_id, before=cursor, limit=key.limit))


def _joined(messages: Sequence[MessageText]) -> bytes:
    """Messages as one JSON list."""
    # Only small pieces are copied: allocating memory for a page costs more than filling it.
    pieces = [b"["]
    for message in messages:
        if len(pieces) > 1:
            pieces.append(b",")
        pieces.append(message.text.encode())
    pieces.append(b"]")
    return b"".join(pieces)


async def _filled(
    engine: "Engine", session_id: str, messages: Sequence[MessageText]
) -> list[MessageText]:
    """Messages, with the patches that are not stored with their prompts."""
    filled = list(messages)
    changed = [at for at, each in enumerate(messages) if _is_changed_prompt(each.info)]
    if changed:
        prompts = [wire.decode(messages[at].info, UserMessage) for at in changed]
        shown = await _with_patches(engine, session_id, prompts, ROOM)
        for at, prompt in zip(changed, shown, strict=True):
            filled[at] = messages[at]._replace(info=wire.encode(prompt))
    return filled


def _is_changed_prompt(info: str) -> bool:
    return _CHANGED in info and info.startswith(_PROMPT)


async def told(engine: "Engine", event: Event) -> Event:
    """An event as clients get it: with the patches that are not stored, as far as they fit."""
    if not lacks_patches(event):
        return event
    id, properties = read_frame(event.payload)
    match properties:
        case MessageUpdated(info=UserMessage() as prompt):
            (info,) = await _with_patches(engine, properties.sessionID, [prompt], _EVENT_ROOM)
            filled: EventProperties = msgspec.structs.replace(properties, info=info)
        case SessionDiff():
            diff = await _undone(engine, properties.sessionID, properties.diff)
            filled = msgspec.structs.replace(properties, diff=diff)
        case _:
            return event
    return replace(event, payload=frame(id, filled))


def lacks_patches(event: Event) -> bool:
    """Whether an event has diffs without patches; this check is fast, filling them in is not."""
    mark = _MARKS.get(event.type)
    return mark is not None and mark in event.payload


async def _undone(engine: "Engine", session_id: str, diffs: list[FileDiff]) -> list[FileDiff]:
    """What a revert took out, with patches while it is pending."""
    try:
        info, changes = await engine.store.scan(partial(_undone_changes, session_id, diffs))
        (found,) = await engine.diffs.texts_of_turns(Session(engine, info), [changes], _EVENT_ROOM)
    except (NotFound, SnapshotError):
        # Removed meanwhile or unreadable: the stored diffs still say what happened.
        return diffs
    return _patched(diffs, found)


def _undone_changes(
    session_id: str, diffs: list[FileDiff]
) -> Script[tuple[SessionInfo, list[StoredChange]]]:
    """The session, and the changes that the pending revert with these diffs took out."""
    info = yield from get_session(session_id)
    plans = [each for each in (yield from pending_plans(session_id)) if each.data.diffs == diffs]
    if not plans or (boundary := plans[-1].data.boundary) is None:
        return info, []
    plan = plans[-1]
    left = {entry.path_bytes for entry in plan.data.receipt.files if entry.outcome in LEFT}
    changes = yield from family_changes(session_id, boundary.pos, from_part=boundary.part_id)
    undone = [
        change
        for change in changes
        if change.timeline < plan.timeline and change.path_from(plan.worktree) not in {None, *left}
    ]
    return info, undone


async def _with_patches(
    engine: "Engine", session_id: str, prompts: Sequence[UserMessage], room: int
) -> list[UserMessage]:
    try:
        info, turns = await engine.store.scan(partial(_turns, session_id, prompts))
        diffs = await engine.diffs.texts_of_turns(Session(engine, info), turns, room)
    except (NotFound, SnapshotError):
        # Removed meanwhile or unreadable: the stored prompts are still an answer.
        return list(prompts)
    return [_with(prompt, found) for prompt, found in zip(prompts, diffs, strict=True)]


def _turns(
    session_id: str, prompts: Sequence[UserMessage]
) -> Script[tuple[SessionInfo, list[list[StoredChange]]]]:
    """The session, and the changes of each prompt's turn."""
    info = yield from get_session(session_id)
    turns = []
    for prompt in prompts:
        turns.append((yield from changes_of_turn(info, prompt.id)))
    return info, turns


def _with(prompt: UserMessage, diffs: Sequence[FileDiff]) -> UserMessage:
    """A prompt with patches for exactly the stored diffs; a file that a revert has restored since
    has none."""
    assert prompt.summary is not None
    filled = _patched(prompt.summary.diffs, diffs)
    return msgspec.structs.replace(
        prompt, summary=msgspec.structs.replace(prompt.summary, diffs=filled)
    )


def _patched(stored: Sequence[FileDiff], found: Sequence[FileDiff]) -> list[FileDiff]:
    """The stored diffs, each with the patch of its outline."""
    patches: dict[FileDiff, list[str | None]] = {}
    for each in found:
        patches.setdefault(msgspec.structs.replace(each, patch=None), []).append(each.patch)
    return [
        msgspec.structs.replace(each, patch=same.pop(0)) if (same := patches.get(each)) else each
        for each in stored
    ]
