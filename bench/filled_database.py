"""Fills databases fast: kedge's own queries, a thousand to a transaction."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice

import kedge
from kedge.domain.messages import MessageTime, UserMessage
from kedge.domain.parts import PartTime, TextPart
from kedge.domain.sessions import NO_TOKENS, SessionInfo, SessionTime
from kedge.engine.prompts import NO_MODEL
from kedge.engine.session import Session
from kedge.store.queries.messages import put_message
from kedge.store.queries.parts import put_part
from kedge.store.queries.sessions import create_session
from kedge.store.transaction import Script, ScriptMaker

KILOBYTE = "The quick brown fox jumps over the lazy dog while it rains. ".ljust(64) * 16
_BATCH = 1000


async def store_all(engine: kedge.Engine, scripts: Iterable[ScriptMaker[object]]) -> None:
    """Run many queries, in few transactions."""
    rest = iter(scripts)
    while some := list(islice(rest, _BATCH)):
        await engine.store.write_bulk(partial(_one_by_one, some))


def _one_by_one(scripts: Sequence[ScriptMaker[object]]) -> Script[None]:
    for script in scripts:
        yield from script()


async def add_sessions(engine: kedge.Engine, count: int) -> None:
    """Sessions in two folders of the worktree by turns; one in ten is a subtask of another."""
    place, first = engine.place, engine.ids.session()

    def session(n: int) -> ScriptMaker[object]:
        folder = "pkg/left" if n % 2 else "pkg/right"
        info = SessionInfo(
            id=first if n == 0 else engine.ids.session(),
            slug="calm-cove",
            projectID=place.project.id,
            directory=f"{place.worktree}/{folder}",
            path=folder,
            parentID=first if n % 10 == 9 else None,
            title=f"Session {n}",
            version=engine.version,
            time=SessionTime(created=1_700_000_000_000 + n, updated=1_700_000_000_000 + n),
            cost=0,
            tokens=NO_TOKENS,
        )
        return partial(create_session, info, place.worktree)

    await store_all(engine, (session(n) for n in range(count)))


def new_message(engine: kedge.Engine, session: Session) -> UserMessage:
    """A message that is not stored yet."""
    return UserMessage(
        id=engine.ids.message(),
        sessionID=session.id,
        time=MessageTime(created=engine.clock.now()),
        agent="build",
        model=NO_MODEL,
    )


def new_part(engine: kedge.Engine, message: UserMessage, text: str) -> TextPart:
    """A part that is not stored yet."""
    now = engine.clock.now()
    return TextPart(
        id=engine.ids.part(),
        sessionID=message.sessionID,
        messageID=message.id,
        text=text,
        time=PartTime(start=now, end=now),
    )


async def add_messages(
    engine: kedge.Engine, session: Session, count: int, parts: int, text: str = KILOBYTE
) -> None:
    """Messages of so many parts each."""

    def scripts() -> Iterable[ScriptMaker[object]]:
        for _ in range(count):
            message = new_message(engine, session)
            yield partial(put_message, message)
            for _ in range(parts):
                part = new_part(engine, message, text)
                yield partial(put_part, part, now=engine.clock.now())

    await store_all(engine, scripts())
