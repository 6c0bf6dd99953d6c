"""Turns as people see them: a prompt and what answers it, numbered from 1 in their session."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kedge.cli.failure import CommandFailure
from kedge.cli.screen import BOLD, DIM, Screen, clip, errors, one_line
from kedge.cli.selection import short

if TYPE_CHECKING:
    from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
    from kedge.domain.sessions import FileDiff
    from kedge.engine.session import Session

_ROOM = 60
_PAGE = 1000


@dataclass(slots=True)
class TurnOfSession:
    """One turn."""

    number: int
    prompt: "MessageWithParts[UserMessage]"
    answers: "list[MessageWithParts[AssistantMessage]]" = field(default_factory=list)
    is_undone: bool = False

    @property
    def files(self) -> "Sequence[FileDiff]":
        """What it changed."""
        summary = self.prompt.info.summary
        return summary.diffs if summary else ()

    @property
    def model(self) -> str:
        """The model that answered."""
        last = self.answers[-1].info if self.answers else self.prompt.info.model
        return f"{last.providerID}/{last.modelID}"

    @property
    def cost(self) -> float:
        """What it cost, in dollars."""
        return sum(answer.info.cost for answer in self.answers)

    @property
    def tokens(self) -> int:
        """Tokens that were sent and received."""
        counts = [answer.info.tokens for answer in self.answers]
        return sum(each.input + each.output + each.reasoning for each in counts)


async def all_messages(session: "Session") -> "list[MessageWithParts]":
    """Every message of a session, oldest first."""
    pages: list[list[MessageWithParts]] = []
    before: str | None = None
    while True:
        page = await session.messages(limit=_PAGE, before=before)
        pages.append(page.messages)
        before = page.older
        if before is None:
            return [message for messages in reversed(pages) for message in messages]


async def turns_of(session: "Session") -> list[TurnOfSession]:
    """Every turn of a session, oldest first."""
    from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage

    turns: list[TurnOfSession] = []
    by_prompt: dict[str, TurnOfSession] = {}
    boundary = session.info.revert.messageID if session.info.revert else None
    is_undone = False
    for message in await all_messages(session):
        is_undone = is_undone or message.info.id == boundary
        match message.info:
            case UserMessage() as info:
                prompt = MessageWithParts(info=info, parts=message.parts)
                turns.append(TurnOfSession(len(turns) + 1, prompt, is_undone=is_undone))
                by_prompt[info.id] = turns[-1]
            case AssistantMessage(parentID=parent) as info if turns:
                answer = MessageWithParts(info=info, parts=message.parts)
                by_prompt.get(parent, turns[-1]).answers.append(answer)
    return turns


async def find_message(session: "Session", name: str) -> str:
    """The id of the message that is meant: by the number of its turn, its id or the beginning of
    one, or `last`."""
    turns = await turns_of(session)
    if not turns:
        raise CommandFailure("nothing was asked in this session yet")
    if name == "last":
        return turns[-1].prompt.info.id
    if name.isascii() and name.isdecimal() and len(name) < _ID_DIGITS:
        if 1 <= int(name) <= len(turns):
            return turns[int(name) - 1].prompt.info.id
        raise CommandFailure(
            f"there is no turn {name}; `kedge log` shows the {len(turns)} there are"
        )
    ids = [turn.prompt.info.id for turn in turns]
    ids += [answer.info.id for turn in turns for answer in turn.answers]
    whole = f"msg_{name.removeprefix('msg_')}"
    found = [id for id in ids if id.startswith(whole)]
    if whole in found or len(found) == 1:
        return whole if whole in found else found[0]
    if not found:
        raise CommandFailure(
            f"there is no message {one_line(name)}; `kedge log` lists turns and messages"
        )
    shown = ", ".join(id.removeprefix("msg_") for id in found[:8])
    raise CommandFailure(
        f"{one_line(name)} may be {shown}; type more of the id, or the turn's number"
    )


async def end_of_turn(session: "Session", message_id: str) -> str:
    """The last answer to a prompt; any other message stands for itself."""
    for turn in await turns_of(session):
        if turn.prompt.info.id == message_id and turn.answers:
            return turn.answers[-1].info.id
    return message_id


_ID_DIGITS = 9
"""What is shorter and a number is the number of a turn."""


def said(message: "MessageWithParts", room: int = _ROOM) -> str:
    """What a message says, in one line."""
    return clip(one_line(" ".join(text_of(message).split())), room)


def text_of(message: "MessageWithParts") -> str:
    """What a message says."""
    from kedge.domain.parts import TextPart

    texts = (part for part in message.parts if isinstance(part, TextPart) and not part.synthetic)
    return "\n".join(part.text for part in texts)


async def announce_turn(session: "Session", message_id: str, verb: str) -> None:
    """Say on standard error which turn of which session a command is about."""
    screen: Screen = errors()
    message = await session.message(message_id)
    title = clip(one_line(session.title), _ROOM)
    screen.line(
        f"{verb} {screen.paint(said(message) or short(message_id), BOLD)}"
        f" {screen.paint(f'in {title} ({short(session.id)})', DIM)}"
    )
