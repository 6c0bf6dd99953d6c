"""Listens to `/event` and `/global/event` at the same time, while recordings are played."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.server.event_recorder import EventRecorder, listening
from tests.server.replay_events import is_global_only
from tests.server.world import Client
from tests.support.timeouts import PATIENCE

Json = Mapping[str, Any]


class StreamRecorder:
    """What was heard on both streams, and not taken yet."""

    def __init__(self) -> None:
        self._here: list[Json] = []
        self._everywhere: list[Json] = []
        self._taken = 0
        self._marks: set[str] = set()
        self._news = asyncio.Event()
        self.ended = False

    def take(self) -> list[Json]:
        """The events of the folder since the last time."""
        found = [event for event in self._here[self._taken :] if not self._is_mark(event)]
        self._taken = len(self._here)
        return found

    def contradictions(self, directory: str) -> list[str]:
        """Where one stream told something else than the other, or told it in another form, up to
        the last mark."""
        here, everywhere = self._until_mark(self._here), self._until_mark(self._everywhere)
        self._here, self._everywhere = self._here[len(here) :], self._everywhere[len(everywhere) :]
        self._taken -= len(here)
        inside = [each for each in everywhere if each.get("directory") == directory]
        forms = {tuple(sorted(each)) for each in inside}
        found = [f"/global/event: {form}" for form in forms - {("directory", "payload", "project")}]
        if len({each.get("project") for each in inside}) > 1:
            found.append("/global/event: the events of a folder name several projects")
        told = [each["payload"] for each in inside if not is_global_only(each["payload"]["type"])]
        if told != [each for each in here if not is_global_only(each["type"])]:
            found.append("/global/event does not tell what /event does")
        return found

    def _until_mark(self, events: list[Json]) -> list[Json]:
        """What was heard up to the last mark, or all after the end."""
        if self.ended:
            return events
        marks = (
            at for at, event in enumerate(events) if self._is_mark(event.get("payload", event))
        )
        return events[: max(marks, default=-1) + 1]

    async def until_connected(self) -> None:
        """Wait until both streams have begun."""
        await self._wait(lambda: bool(self._here and self._everywhere))
        self._here.clear()
        self._everywhere.clear()

    async def until(self, kind: str, words: str, times: int) -> None:
        """Wait for events of a kind in which some words stand, since the last that were taken."""

        def is_meant(event: Json) -> bool:
            return event["type"] == kind and words in json.dumps(event)

        await self._wait(lambda: sum(map(is_meant, self._here[self._taken :])) >= times)

    async def until_marked(self, id: str) -> None:
        """Wait for the end of a session that is there to be waited for, and forget it."""
        self._marks.add(id)

        def is_over(events: list[Json]) -> bool:
            newest = (event.get("payload", event) for event in reversed(events))
            return any(
                each["type"] == "session.deleted" and each["properties"]["sessionID"] == id
                for each in newest
            )

        await self._wait(lambda: is_over(self._here) and is_over(self._everywhere))

    async def until_ended(self) -> None:
        """Wait for the end of the stream of the folder, and for its last event on the other."""

        def is_heard() -> bool:
            return any(each["payload"] == self._here[-1] for each in self._everywhere)

        await self._wait(lambda: self.ended and is_heard())

    async def _wait(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    def _is_mark(self, event: Json) -> bool:
        return event.get("properties", {}).get("sessionID") in self._marks

    async def _listen_here(self, recorder: EventRecorder) -> None:
        while (heard := await recorder.next()) is not None:
            self._here.append(heard.data)
            self._news.set()
        self.ended = True
        self._news.set()

    async def _listen_everywhere(self, recorder: EventRecorder) -> None:
        while (heard := await recorder.next()) is not None:
            self._everywhere.append(heard.data)
            self._news.set()


@asynccontextmanager
async def two_streams(client: Client) -> AsyncIterator[StreamRecorder]:
    """The recorder of both streams, which runs for as long as the block lasts."""
    recorders = StreamRecorder()
    async with listening(client, "/event") as here, listening(client) as everywhere:
        tasks = [
            asyncio.create_task(recorders._listen_here(here)),
            asyncio.create_task(recorders._listen_everywhere(everywhere)),
        ]
        try:
            await recorders.until_connected()
            yield recorders
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
