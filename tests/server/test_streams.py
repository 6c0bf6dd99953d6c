"""What streams promise whoever listens how: texts are whole, nobody holds up others."""

import asyncio
import random

import pytest

from kedge.domain.messages import MessageModel, MessageTime, UserMessage
from kedge.domain.parts import PartTime, TextPart
from kedge.engine.session import Session
from kedge.server import recent
from tests.server.ears import Screen, listening
from tests.server.world import Served
from tests.support.patience import PATIENCE


async def message_in(session: Session) -> str:
    """A message to put parts into."""
    engine = session._engine
    message = UserMessage(
        id=engine.ids.message(),
        sessionID=session.id,
        time=MessageTime(created=engine.clock.now()),
        agent="build",
        model=MessageModel(providerID="none", modelID="none"),
    )
    return (await session.put_message(message)).id


class Speaker:
    """A part that grows, piece by piece, as slowly as the test wants."""

    def __init__(self, session: Session, message: str, part: str) -> None:
        self._session = session
        self._message = message
        self.part = part
        self.text = ""

    def say(self, piece: str) -> None:
        """One more piece, which is told and not stored."""
        offset = len(self.text)
        self._session.delta(self._message, self.part, piece, offset=offset)
        self.text += piece

    async def keep(self, *, end: int | None = None) -> None:
        """Store how far it has come."""
        await self._session.put_part(
            TextPart(
                id=self.part,
                sessionID=self._session.id,
                messageID=self._message,
                text=self.text,
                time=PartTime(start=1, end=end),
            )
        )


async def speaker_in(session: Session) -> Speaker:
    """A part that has just begun."""
    speaker = Speaker(session, await message_in(session), session._engine.ids.part())
    await speaker.keep()
    return speaker


async def speak(speakers: list[Speaker], dice: random.Random) -> None:
    """Say much at once, in pieces, and store some states of it."""
    for number in range(150):
        speaker = dice.choice(speakers)
        speaker.say(f"{number}é😀 "[: dice.randint(1, 6)])
        if dice.random() < 0.1:
            await speaker.keep()
        for _ in range(dice.randint(0, 3)):
            await asyncio.sleep(0)
    for speaker in speakers:
        await speaker.keep(end=2)


async def watch(
    served: Served, start: str, speakers: list[Speaker], dice: random.Random
) -> list[str]:
    """Listen with a bad connection until everything was said; gives what was wrong on screen."""
    screen, shown = Screen(cursor=start), []
    is_over = False
    while not is_over:
        patience = dice.randint(1, 40)
        target = dice.choice(["/event", "/global/event"])
        async with listening(served, target, after=screen.cursor) as ear:
            for _ in range(patience):
                heard = await ear.next()
                assert heard is not None
                screen.show(heard)
                shown += [(part, text) for part, text in screen.texts.items()]
                is_over = heard.type == "session.updated" and bool(
                    heard.properties["info"]["title"] == "Over"
                )
                if is_over:
                    break
    final = {speaker.part: speaker.text for speaker in speakers}
    wrong = [text for part, text in shown if not final[part].startswith(text)]
    return wrong + [part for part in final if screen.texts[part] != final[part]]


@pytest.mark.parametrize("seed", range(4))
async def test_texts_are_whole_however_often_a_client_goes(served: Served, seed: int) -> None:
    """A client that appends blindly never shows what was not said, and all of it at the end."""
    dice = random.Random(seed)
    engine = served.running.backend.engine
    start = await engine.events.head()
    session = await engine.sessions.create("Spoken")
    speakers = [await speaker_in(session) for _ in range(2)]
    async with asyncio.TaskGroup() as tasks:
        clients = [
            tasks.create_task(watch(served, start, speakers, random.Random(dice.random())))
            for _ in range(5)
        ]
        await speak(speakers, dice)
        await session.update(title="Over")
    assert [client.result() for client in clients] == [[]] * 5
