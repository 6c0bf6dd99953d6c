"""What a call may do to files: nothing, what it declares, or nobody knows.

A call enters `beginning` before its work and `ending` after it, and runs the script that each gives
in the transaction that stores its part.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from kedge.store.script import ScriptMaker


class Effects(Protocol):
    """What is recorded of a call beside its part."""

    def beginning(self) -> AbstractAsyncContextManager[ScriptMaker[None] | None]:
        """Everything before the work; the part is stored as running inside of the block."""

    def ending(self) -> AbstractAsyncContextManager[ScriptMaker[None] | None]:
        """Everything after it; the part is stored as ended inside of the block."""


class NoEffects:
    """The call touches no files."""

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        yield None

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[None]:
        yield None
