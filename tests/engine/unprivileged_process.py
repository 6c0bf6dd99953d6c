"""A process without the privileges of root, whoever started it: reverts a session, unreverts it,
and says both receipts."""

import asyncio
import ctypes
import sys

import kedge
from kedge.domain import wire
from tests.engine.revert_process import SETTINGS

_VERSION_3 = 0x20080522
"""Of the structures that `capset` takes."""


def give_up_privileges() -> None:
    """Be bound by permission bits like everybody else; to be called before there are threads.

    Root without capabilities is an ordinary owner of files.
    """
    if sys.platform == "linux":
        header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
        nothing = (ctypes.c_uint32 * 6)()
        if ctypes.CDLL(None, use_errno=True).capset(header, nothing):
            raise OSError(ctypes.get_errno(), "the capabilities cannot be given up")


async def main(folder: str, database: str, session_id: str, message: str) -> None:
    """Revert and unrevert."""
    async with kedge.open(folder, database=database, settings=SETTINGS) as engine:
        session = await engine.sessions.get(session_id)
        for receipt in (await session.revert(message), await session.unrevert()):
            sys.stdout.write(wire.encode(receipt) + "\n")


if __name__ == "__main__":
    give_up_privileges()
    asyncio.run(main(*sys.argv[1:]))
