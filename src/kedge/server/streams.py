"""Streams of server-sent events."""

from kedge.engine.engine import Engine


class Streams:
    """All open streams of a server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def flushed(self) -> None:
        """Wait until everything that has happened so far is on the sockets of those who listen."""
