"""A model of a real provider; what it takes to talk to it is imported at the first request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kedge.domain.providers import ModelInfo
from kedge.model.endpoint import Endpoint
from kedge.model.port import ModelEvent, ModelRequest

if TYPE_CHECKING:
    from kedge.model.adapter.clients import Clients


class Connections:
    """The connections of one catalog to its providers."""

    def __init__(self) -> None:
        self._clients: Clients | None = None

    async def clients(self) -> "Clients":
        """The clients; the libraries are imported in a thread, because it takes seconds."""
        if self._clients is None:
            await asyncio.to_thread(_load)
        # Another first request may have been quicker.
        if self._clients is None:
            from kedge.model.adapter.clients import Clients

            self._clients = Clients()
        return self._clients

    async def aclose(self) -> None:
        """Close every connection; the next request opens new ones."""
        clients, self._clients = self._clients, None
        if clients is not None:
            await clients.aclose()


class RemoteModel:
    """A model behind an endpoint."""

    def __init__(
        self,
        info: ModelInfo,
        endpoint: Endpoint,
        connections: Connections,
        *,
        listed: tuple[str, str] | None = None,
    ) -> None:
        self.info = info
        self._endpoint = endpoint
        self._connections = connections
        self._listed = listed
        """Where its price is in the public list; None if the configuration has it."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[ModelEvent]]:
        """Ask; leaving the block early ends the request."""
        clients = await self._connections.clients()
        from kedge.model.adapter.answering import answer

        asked = answer(request, self.info, self._endpoint, clients, self._listed)
        async with asked as events:
            yield events


def _load() -> None:
    import kedge.model.adapter.answering  # noqa: F401
