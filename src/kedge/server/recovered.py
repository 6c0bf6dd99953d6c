"""What became of a session whose process was killed, as events for those who missed them.

OpenCode's terminal UI comes back after a restart, but never asks again what it knew before.
"""

from kedge.domain.errors import NotFound
from kedge.domain.events import (
    EventProperties,
    MessageUpdated,
    PartUpdated,
    SessionIdle,
    SessionStatusChanged,
    SessionUpdated,
)
from kedge.domain.failures import aborted
from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
from kedge.domain.status import Idle
from kedge.engine.engine import Engine
from kedge.engine.events import Event
from kedge.engine.runs import INTERRUPTED

_MOST_MESSAGES = 50
_CUT_OFF = aborted(INTERRUPTED)


async def events_of_recovery(engine: Engine, session_id: str) -> list[Event]:
    """A session's status, its last turn as it is now, and how what it asked last has ended; none if
    it is deleted."""
    try:
        session = await engine.sessions.get(session_id)
    except NotFound:
        return []
    info = session.info
    # The status comes first: whatever ended the run was stored before it said idle, so what is read
    # after an idle is complete. What is read after a busy may be older than the end, and is
    # followed by the events of that.
    status = await session.status()
    told: list[EventProperties] = [SessionUpdated(sessionID=session_id, info=info)]
    for message in _last_turn((await session.messages(limit=_MOST_MESSAGES)).messages):
        told.append(MessageUpdated(sessionID=session_id, info=message.info))
        told += [
            PartUpdated(sessionID=session_id, part=part, time=engine.clock.now())
            for part in message.parts
        ]
    # What the run still asked was withdrawn, and nobody may have heard the last answers.
    told += await engine.asks.ends(session_id)
    told.append(SessionStatusChanged(sessionID=session_id, status=status))
    if isinstance(status, Idle):
        told.append(SessionIdle(sessionID=session_id))
    home = (session_id, info.projectID, info.directory)
    return [Event(each.type, engine.events.frame(each), None, *home) for each in told]


def _last_turn(messages: list[MessageWithParts]) -> list[MessageWithParts]:
    """What was asked last and what was said to it, and before that the turn that was cut off, which
    a prompt may have waited behind."""
    infos = [each.info for each in messages]
    asked = [at for at, info in enumerate(infos) if isinstance(info, UserMessage)]
    cut = {
        info.parentID
        for info in infos
        if isinstance(info, AssistantMessage) and info.error == _CUT_OFF
    }
    first = [at for at in asked if infos[at].id in cut][-1:] + asked[-1:]
    return messages[min(first) :] if first else messages
