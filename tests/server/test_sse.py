"""What streams promise whoever listens how: texts are whole, nobody holds up others."""

import asyncio
import random

import pytest

from kedge.domain.events import FileEdited
from kedge.domain.messages import MessageModel, MessageTime, UserMessage
from kedge.domain.parts import PartTime, TextPart
from kedge.engine.engine import Engine
from kedge.engine.session import Session
from kedge.server.responses import Message
from kedge.server.sse import buffer, hub
from tests.server.event_recorder import Screen, listening
from tests.server.world import Served
from tests.support.timeouts import PATIENCE


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
        async with listening(served, target, after=screen.cursor) as recorder:
            for _ in range(patience):
                heard = await recorder.next()
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
    return wrong[:3] + [part for part in final if screen.texts[part] != final[part]]


async def disturb(engine: Engine) -> None:
    """Write from elsewhere all the time, so that what is stored is heard late."""
    while True:
        await engine.sessions.create("Elsewhere")
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(4))
async def test_texts_are_whole_however_often_a_client_goes(served: Served, seed: int) -> None:
    """A client that appends blindly never shows what was not said, and all of it at the end; also
    when others write to the database meanwhile."""
    dice = random.Random(seed)
    engine = served.running.backend.engine
    start = await engine.events.head()
    session = await engine.sessions.create("Spoken")
    speakers = [await speaker_in(session) for _ in range(2)]
    async with served.world.open() as other, asyncio.TaskGroup() as tasks:
        disturbing = tasks.create_task(disturb(other)) if seed % 2 else None
        clients = [
            tasks.create_task(watch(served, start, speakers, random.Random(dice.random())))
            for _ in range(5)
        ]
        await speak(speakers, dice)
        await session.update(title="Over")
        if disturbing is not None:
            disturbing.cancel()
    assert [client.result() for client in clients] == [[]] * 5


async def until_listened_to_by(served: Served, number: int) -> None:
    """Wait until so many listen."""
    async with asyncio.timeout(PATIENCE):
        while len(served.running.backend.streams) != number:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.01)


def announce(served: Served, file: str) -> None:
    """Tell something that is not stored."""
    folder = str(served.world.folder)
    served.running.backend.engine.events.announce(FileEdited(file=file), directory=folder)


async def test_a_client_that_does_not_read_is_dropped(served: Served) -> None:
    """It loses its socket, and nobody else waits for it."""
    async with listening(served) as good, listening(served) as bad:
        await good.until("server.connected")
        await bad.until("server.connected")
        await until_listened_to_by(served, 2)
        bad.stop_reading()
        number = 0
        while len(served.running.backend.streams) == 2:
            announce(served, f"{number} {'x' * 50_000}")
            heard = await good.next()
            assert heard is not None
            assert heard.properties["file"].startswith(f"{number} ")
            number += 1
        await served.running.backend.streams.flushed()
        bad.go_on_reading()
        while await bad.next() is not None:
            pass
        assert bad.ended is False


async def test_those_who_wait_for_streams_do_not_wait_for_a_stuck_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happened was sent to those who read, when the wait is over."""
    monkeypatch.setattr(hub, "_FLUSH_PATIENCE", PATIENCE)
    open_streams = served.running.backend.streams
    never = asyncio.Event()
    sent: list[bytes] = []

    async def receive() -> None:
        await never.wait()

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    async def get_stuck(message: Message) -> None:
        if message["type"] == "http.response.body":
            await never.wait()

    answer = open_streams.stream(None, None)
    listeners = [asyncio.ensure_future(answer(receive, each)) for each in (send, get_stuck)]
    await until_listened_to_by(served, 2)
    async with asyncio.timeout(PATIENCE):
        while not any(each.is_stuck for each in open_streams):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.01)
        session = await served.running.backend.engine.sessions.create("Flushed")
        await open_streams.flushed()
    assert session.id.encode() in b"".join(sent)
    for each in listeners:
        each.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)


async def test_a_client_that_leaves_is_forgotten(served: Served) -> None:
    """Its stream ends, though there is nothing to send."""
    async with listening(served) as recorder:
        await recorder.until("server.connected")
        await until_listened_to_by(served, 1)
    await until_listened_to_by(served, 0)


async def test_a_stream_that_fell_behind_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no longer among the recent events is read from the log, each once."""
    monkeypatch.setattr(buffer, "_MOST_FRAMES", 8)
    engine = served.running.backend.engine
    start = await engine.events.head()
    made = [(await engine.sessions.create(f"Number {each}")).id for each in range(50)]
    await engine.sessions.create("The end", directory=served.world.root)
    for target in ("/event", "/global/event"):
        async with listening(served, target, after=start) as recorder:
            heard = await recorder.until("session.created", sessionID=made[-1])
        assert [e.properties["sessionID"] for e in heard if e.type == "session.created"] == made


async def test_events_of_another_process(served: Served) -> None:
    """A stream tells what others store in the same database, in the order of the log."""
    async with listening(served) as recorder, served.world.open() as other:
        await recorder.until("server.connected")
        here = served.running.backend.engine
        made = []
        for number in range(10):
            engine = other if number % 2 else here
            made.append((await engine.sessions.create(f"Number {number}")).id)
        heard = await recorder.until("session.created", sessionID=made[-1])
    assert [each.properties["sessionID"] for each in heard] == made
