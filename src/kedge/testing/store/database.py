"""What a store adapter gives to the conformance suite: a way to open one database many times."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from kedge.store.port import Store


class Database(Protocol):
    """One database, empty at first. Stores that are open at once stand for several processes."""

    async def open(self) -> Store:
        """Open the database once more; the suite closes the store."""
        ...


StoreCheck: TypeAlias = Callable[[Database], Awaitable[None]]
"""One behaviour that every adapter must show. Raises AssertionError if it does not."""
