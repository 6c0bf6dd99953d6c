"""A program that writes sessions as fast as it can until it is killed, and says what is stored.

Its lines: `opening`; `opened`; `will` path value, when a write begins that may change the path;
`did` path value, when it was acknowledged; `began`, `ending` and `ended` session, about a turn.
A value is None (not there), {"exact": v} or {"holds": v}.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import kedge
from kedge.domain import wire
from kedge.domain.messages import MessageModel, MessageTime, UserMessage
from kedge.domain.parts import TextPart
from kedge.domain.sessions import CacheCount, Todo, TokenCount
from kedge.engine.turns import Turn
from tests.torture.ledger import bodies
from tests.torture.orders import Orders, received, report

HANDS = 3
"""Tasks that write at once, each in sessions of its own."""

MODEL = MessageModel(providerID="test", modelID="test")
ACTIONS: dict[str, int] = {
    "create": 3,
    "message": 14,
    "part": 40,
    "remove_part": 4,
    "remove_message": 3,
    "todos": 10,
    "update": 10,
    "turn": 8,
    "fork": 4,
    "delete": 2,
}
MOSTLY_FORKS = ACTIONS | {"fork": 60, "delete": 0, "remove_message": 0}


def plain(value: object) -> Any:  # noqa: ANN401 - JSON
    """A value as it looks on the wire."""
    return wire.decode(wire.encode(value), Any)


class Hand:
    """One task that writes, and knows what it has written."""

    def __init__(self, engine: kedge.Engine, seed: str) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._sessions: dict[str, kedge.Session] = {}
        self._messages: dict[str, dict[str, list[str]]] = {}
        """Per session, per message, the parts."""

    async def write(self, weights: dict[str, int]) -> None:
        """Write, for ever."""
        await self.create()
        if weights is MOSTLY_FORKS:
            await self._fill()
        while True:
            (name,) = self._random.choices(list(weights), list(weights.values()))
            action: Callable[[], Awaitable[None]] = getattr(self, name)
            await action()

    async def create(self) -> None:
        title = self._text(20)
        session = await self._engine.sessions.create(title, metadata={"n": self._random.random()})
        self._sessions[session.id] = session
        self._messages[session.id] = {}
        report("did", session.id, {"holds": {"title": title, "metadata": session.info.metadata}})

    async def message(self) -> None:
        session = self._session()
        known = self._messages[session.id]
        again = bool(known) and self._random.random() < 0.3
        id = self._random.choice(list(known)) if again else self._engine.ids.message()
        message = self._user_message(session, id)
        path = f"{session.id}/{message.id}"
        if again:
            report("will", path, {"holds": {"agent": message.agent}})
        stored = await session.put_message(message)
        known.setdefault(message.id, [])
        report("did", path, {"exact": plain(stored)})

    async def part(self) -> None:
        session, message = await self._any_message()
        parts = self._messages[session.id][message]
        again = bool(parts) and self._random.random() < 0.5
        # Some are large enough to take the way beside the event loop.
        size = 70_000 if self._random.random() < 0.02 else self._random.randrange(400)
        id = self._random.choice(parts) if again else self._engine.ids.part()
        part = self._text_part(session, message, id, size)
        path = f"{session.id}/{message}/{part.id}"
        value = {"exact": plain(part)}
        if again:
            report("will", path, value)
        else:
            parts.append(part.id)
        await session.put_part(part)
        report("did", path, value)

    async def remove_part(self) -> None:
        session, message = await self._any_message()
        parts = self._messages[session.id][message]
        if parts:
            part = parts.pop(self._random.randrange(len(parts)))
            path = f"{session.id}/{message}/{part}"
            report("will", path, None)
            await session.remove_part(message, part)
            report("did", path, None)

    async def remove_message(self) -> None:
        session, message = await self._any_message()
        del self._messages[session.id][message]
        path = f"{session.id}/{message}"
        report("will", path, None)
        await session.remove_message(message)
        report("did", path, None)

    async def todos(self) -> None:
        session = self._session()
        todos = [
            Todo(content=self._text(20), status="pending", priority="high")
            for _ in range(self._random.randrange(4))
        ]
        value = {"exact": plain(todos)}
        report("will", f"{session.id}/todos", value)
        await session.set_todos(todos)
        report("did", f"{session.id}/todos", value)

    async def update(self) -> None:
        session = self._session()
        if self._random.random() < 0.5:
            title = self._text(20)
            value = {"holds": {"title": title, "metadata": session.info.metadata}}
            report("will", session.id, value)
            await session.update(title=title)
        else:
            metadata = {"n": self._random.random()}
            value = {"holds": {"title": session.title, "metadata": metadata}}
            report("will", session.id, value)
            await session.update(metadata=metadata)
        report("did", session.id, value)

    async def fork(self) -> None:
        session = self._session()
        page = await session.messages(limit=10_000)
        fork = await session.fork()
        report("did", fork.id, {"holds": {"fork": {"sessionID": session.id}}})
        report("did", f"{fork.id}/copy", {"exact": bodies(plain(page.messages))})

    async def delete(self) -> None:
        session = self._session()
        report("will", session.id, None)
        await session.delete()
        report("did", session.id, None)
        del self._sessions[session.id], self._messages[session.id]
        if not self._sessions:
            await self.create()

    async def turn(self) -> None:
        session = self._session()
        async with session.turn(self._text(30)) as turn:
            report("began", session.id)
            report("did", f"{session.id}/{turn.message.id}", {"holds": {"role": "user"}})
            await self._step(session, turn)
            report("ending", session.id)
        report("ended", session.id)

    async def _step(self, session: kedge.Session, turn: Turn) -> None:
        async with turn.step() as step:
            home = f"{session.id}/{step.message.id}"
            part = await step.text(self._text(50))
            report("did", f"{home}/{part.id}", {"exact": plain(part)})
            async with step.tool("write", {"text": self._text(20)}) as call:
                holds = {"type": "tool", "state": {"input": call.input}}
                report("did", f"{home}/{call.part.id}", {"holds": holds})
                call.output = self._text(self._random.randrange(200))
            report("did", f"{home}/{call.part.id}", {"exact": plain(call.part)})
            async with step.speak() as out:
                for _ in range(3):
                    await out.write(self._text(10))
            step.cost = 0.25
            step.tokens = TokenCount(
                input=1, output=2, reasoning=3, cache=CacheCount(read=4, write=5)
            )
        report("did", home, {"holds": {"finish": "tool-calls", "cost": 0.25}})

    async def _fill(self) -> None:
        """Enough in one session that a fork takes a while; what forks copy shows it is there."""
        session = self._session()
        for _ in range(60):
            message = self._user_message(session, self._engine.ids.message())
            await session.put_message(message)
            self._messages[session.id][message.id] = []
            for _ in range(3):
                part = self._text_part(session, message.id, self._engine.ids.part(), 1000)
                await session.put_part(part)

    def _user_message(self, session: kedge.Session, id: str) -> UserMessage:
        return UserMessage(
            id=id,
            sessionID=session.id,
            time=MessageTime(created=self._engine.clock.now()),
            agent=self._text(8),
            model=MODEL,
        )

    def _text_part(self, session: kedge.Session, message: str, id: str, size: int) -> TextPart:
        return TextPart(id=id, sessionID=session.id, messageID=message, text=self._text(size))

    async def _any_message(self) -> tuple[kedge.Session, str]:
        session = self._session()
        while not self._messages[session.id]:
            await self.message()
        return session, self._random.choice(list(self._messages[session.id]))

    def _session(self) -> kedge.Session:
        return self._random.choice(list(self._sessions.values()))

    def _text(self, length: int) -> str:
        return "".join(self._random.choices('abc é\n☃\0"\\', k=length))


async def main(orders: Orders) -> None:
    """Open an engine and write until killed."""
    report("opening")
    async with kedge.open(orders.directory, database=orders.database) as engine:
        report("opened")
        weights = MOSTLY_FORKS if orders.role == "fork" else ACTIONS
        hands = [Hand(engine, f"{orders.seed}-{n}") for n in range(HANDS)]
        await asyncio.gather(*(hand.write(weights) for hand in hands))


if __name__ == "__main__":
    asyncio.run(main(received()))
