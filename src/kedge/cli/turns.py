"""Turns as people see them: a prompt in a line, with who answers and what came of it."""

from typing import TYPE_CHECKING

from kedge.cli.screen import BOLD, DIM, Screen, clip, errors, one_line
from kedge.cli.selection import short

if TYPE_CHECKING:
    from kedge.domain.messages import MessageWithParts
    from kedge.engine.session import Session

_ROOM = 60


def said(message: "MessageWithParts", room: int = _ROOM) -> str:
    """What a message says, in one line."""
    from kedge.domain.parts import TextPart

    texts = [
        part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic
    ]
    return clip(one_line(" ".join(" ".join(texts).split())), room)


async def announce_turn(session: "Session", message_id: str, verb: str) -> None:
    """Say on standard error which turn of which session a command is about."""
    screen: Screen = errors()
    message = await session.message(message_id)
    title = clip(one_line(session.title), _ROOM)
    screen.line(
        f"{verb} {screen.paint(said(message) or short(message_id), BOLD)}"
        f" {screen.paint(f'in {title} ({short(session.id)})', DIM)}"
    )
