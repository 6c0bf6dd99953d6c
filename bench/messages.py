"""The newest page of messages: it must not matter how long the session is."""

from collections.abc import AsyncIterator

from bench.figures import Figure, ratio
from bench.filled_database import add_messages
from bench.rounds import Candidate, side_by_side, steady
from bench.scratch import Scratch
from kedge.engine.session import Session

_TARGET = 1.5
_FEW = 100
_PAGE = 50
_PARTS = 2
_REPEATS = 5


async def messages(scratch: Scratch) -> AsyncIterator[Figure]:
    """The newest page, and one from the middle, of a long session and of a short one."""
    count = scratch.size(20_000, 200)
    scratch.say(f"filling a session with {count} messages")
    async with scratch.engine() as engine:
        long, short = await engine.sessions.create(), await engine.sessions.create()
        await add_messages(engine, long, count, _PARTS)
        await add_messages(engine, short, _FEW, _PARTS)
        scratch.say("paging messages")
        for name, middle in (("newest page", False), ("a page further back", True)):
            pages = [await _paging(each, middle) for each in (long, short)]
            large, small = await side_by_side(pages, scratch.size(40, 2))
            yield ratio(f"{name} of {_PAGE} messages", large, small, target=_TARGET)


async def _paging(session: Session, middle: bool) -> Candidate:
    cursor = (await session.messages(limit=_PAGE)).older if middle else None

    async def work() -> None:
        for _ in range(_REPEATS):
            page = await session.messages(limit=_PAGE, before=cursor)
            assert len(page.messages) == _PAGE

    return steady(work, _REPEATS)
