"""Growth: the new messages of a conversation since it was last read, and which of the others
changed."""

from collections.abc import Iterable

from kedge.domain.conversation import Growth, PlacedMessage
from kedge.domain.events import MessageRemoved
from kedge.store.queries.compactions import newest_summary
from kedge.store.queries.event_log import log_head
from kedge.store.queries.messages import MessageText, with_parts
from kedge.store.queries.sessions import get_session_text
from kedge.store.queries.unanswered import state_of
from kedge.store.transaction import Row, Script, rows


def conversation_growth(
    session_id: str,
    *,
    after: int,
    since: int | None,
    limit: int,
    answered: frozenset[str] | None = None,
) -> Script[Growth]:
    """The messages that follow the position `after`, oldest first, and what the log says of others
    after `since`. If that is None, the conversation is read from its beginning: what a summary
    stands for is left out. `answered` comes from the page before.

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
    summary = None if since is not None else (yield from newest_summary(session_id))
    if summary is not None:
        after = summary.first - 1
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
        summary=summary,
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
