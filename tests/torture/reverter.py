"""A program that moves the boundary of a session about until it is killed, and says what it does.

Its lines: `opened`; `doing` boundary, before it is asked for; `done` boundary, when it is reached.
"""

import asyncio
import random

import kedge
from tests.engine.revert_process import SETTINGS
from tests.torture.orders import Orders, received, report


async def main(orders: Orders, session_id: str, boundaries: list[str | None]) -> None:
    """Revert, unrevert and move the boundary, in any order."""
    chance = random.Random(orders.seed)
    async with kedge.open(orders.directory, database=orders.database, settings=SETTINGS) as engine:
        session = await engine.sessions.get(session_id)
        report("opened")
        while True:
            now = session.info.revert.messageID if session.info.revert else None
            boundary = chance.choice([each for each in boundaries if each != now])
            report("doing", boundary)
            await (session.revert(boundary) if boundary else session.unrevert())
            report("done", boundary)


if __name__ == "__main__":
    orders = received()
    session_id, first, second = orders.role.split()
    asyncio.run(main(orders, session_id, [None, first, second]))
