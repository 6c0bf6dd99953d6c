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
from kedge.domain.messages import MessageWithParts, UserMessage
from kedge.domain.status import Idle
from kedge.engine.engine import Engine
from kedge.engine.events import Event

_MOST_MESSAGES = 50


async def events_of_recovery(engine: Engine, session_id: str) -> list[Event]:
    """A session's status, its last turn as it is now, and how what it asked last has ended; none if
    it is deleted."""
    try:
        session = await engine.sessions.get(session_id)
    except NotFound:
        return []
    info = session.info
    told: list[EventProperties] = [SessionUpdated(sessionID=session_id, info=info)]
    for message in _last_turn((await session.messages(limit=_MOST_MESSAGES)).messages):
        told.append(MessageUpdated(sessionID=session_id, info=message.info))
        told += [
            PartUpdated(sessionID=session_id, part=part, time=engine.clock.now())
            for part in message.parts
        ]
    # What the run still asked was withdrawn, and nobody may have heard the last answers.
    told += await engine.asks.ends(session_id)
    status = await session.status()
    told.append(SessionStatusChanged(sessionID=session_id, status=status))
    if isinstance(status, Idle):
        told.append(SessionIdle(sessionID=session_id))
    home = (session_id, info.projectID, info.directory)
    return [Event(each.type, engine.events.frame(each), None, *home) for each in told]


def _last_turn(messages: list[MessageWithParts]) -> list[MessageWithParts]:
    asked = [at for at, each in enumerate(messages) if isinstance(each.info, UserMessage)]
    return messages[asked[-1] :] if asked else messages
