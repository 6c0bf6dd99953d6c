"""Where the user's repository stood when steps began."""

from kedge.store.script import Script, row, run

StoredHead = tuple[str | None, str | None]
"""The ref, None when detached, and the commit, None where there is none yet."""


def note_head(session_id: str, message_id: str, head: StoredHead) -> Script[None]:
    """Remember where the repository stands at a message, unless it is where it was before."""
    found = yield from row("message_get", session_id=session_id, id=message_id)
    assert found is not None
    pos = found[4]
    if (yield from head_at(session_id, pos)) != head:
        ref, commit = head
        yield from run("head_add", session_id=session_id, pos=pos, ref=ref, commit_id=commit)


def head_at(session_id: str, pos: int) -> Script[StoredHead | None]:
    """Where the repository stood at the message at a position; None if nobody looked."""
    found = yield from row("head_at", session_id=session_id, pos=pos)
    return None if found is None else (found[0], found[1])
