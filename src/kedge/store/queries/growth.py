"""Growth: the new messages of a conversation since it was last read, and which of the others
changed."""

from collections.abc import Iterable
from dataclasses import dataclass

from kedge.domain.events import MessageRemoved
from kedge.domain.messages import MessageWithParts
from kedge.store.queries.event_log import log_head
from kedge.store.queries.messages import MessageText, with_parts
from kedge.store.queries.sessions import get_session_text
from kedge.store.queries.unanswered import PromptState, state_of
from kedge.store.transaction import Row, Script, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedMessage:
    """A message as a value, with its position in the session and its state."""

    message: MessageWithParts
    pos: int
    state: PromptState = PromptState.SETTLED
    """The state of a prompt; answers have none."""
    joined: int | None = None
    """The position of the newer prompt that it was answered with."""
    size: int = 0
    """The length of its JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Messages that follow a position, and what happened to others since a position in the log."""

    messages: list[PlacedMessage]
    more: bool
    """Whether more messages follow."""
    head: int
    """The end of the log when this was read."""
    updated: frozenset[str]
    """Messages that were written, apart from their parts."""
    changed: frozenset[str]
    """Messages that were removed, or of which a part was written or removed."""
    answered: frozenset[str]
    """Prompts that have an answer of their own behind the position."""

    @property
    def is_touched(self) -> bool:
        """Whether anything was written since, including new messages."""
        return bool(self.updated or self.changed)


def conversation_growth(
    session_id: str,
    *,
    after: int,
    since: int | None,
    limit: int,
    answered: frozenset[str] | None = None,
) -> Script[Growth]:
    """The messages that follow the position `after`, oldest first, and what the log says of others
    after `since`; nothing if that is None. `answered` comes from the page before.

    Decoded here, so that a reader's thread does it.
    """
    yield from get_session_text(session_id)
    head = yield from log_head()
    told = (
        ()
        if since is None
        else (yield from rows("event_touched", session_id=session_id, seq=since))
    )
    updated, changed = _touched(told)
    page = yield from rows("message_growth", session_id=session_id, pos=after, limit=limit + 1)
    if answered is None:
        parents = yield from rows("message_parents", session_id=session_id, pos=after)
        answered = frozenset(parent for (parent,) in parents)
    texts = yield from with_parts(session_id, page[:limit])
    return Growth(
        messages=[_placed(each, text) for each, text in zip(page, texts, strict=False)],
        more=len(page) > limit,
        head=head,
        updated=updated,
        changed=changed,
        answered=answered,
    )


def _touched(told: Iterable[Row]) -> tuple[frozenset[str], frozenset[str]]:
    updated: set[str] = set()
    changed: set[str] = set()
    for entity, type in told:
        kind, _, id = entity.partition(":")
        if kind == "part":
            changed.add(id.partition(" ")[0])
        elif kind == "message":
            (changed if type == MessageRemoved.type else updated).add(id)
    return frozenset(updated), frozenset(changed)


def _placed(found: Row, text: MessageText) -> PlacedMessage:
    state, joined = state_of(found[5])
    return PlacedMessage(
        message=text.decoded(),
        pos=found[4],
        state=state,
        joined=joined,
        size=len(text.text),
    )
