"""The conversations of sessions, read from the store once and cached between prompts."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from kedge.agent.model_input import Conversation, ModelTurn
from kedge.domain.conversation import Growth, PlacedMessage
from kedge.domain.messages import MessageWithParts
from kedge.engine.conversation import Conversations

_PAGE = 200
_FEW = 20
"""Up to this many messages are converted on the event loop: a thread would take longer."""


class Histories:
    """A cache of the histories of idle sessions, the most recently used ones up to a limit."""

    def __init__(self, conversations: Conversations, limit: int) -> None:
        self._conversations = conversations
        self._limit = limit
        self._kept: OrderedDict[str, History] = OrderedDict()

    @property
    def size(self) -> int:
        """The approximate size of the cache in bytes."""
        return sum(each.size for each in self._kept.values())

    @contextmanager
    def of(self, session_id: str) -> Iterator["History"]:
        """The history of a session, for one run."""
        # Removed from the cache, so that no other run changes it meanwhile.
        history = self._kept.pop(session_id, None) or History(self._conversations, session_id)
        try:
            yield history
        finally:
            if history.is_whole:
                self._keep(session_id, history)

    def _keep(self, session_id: str, history: "History") -> None:
        self._kept[session_id] = history
        self._kept.move_to_end(session_id)
        size = self.size
        while size > self._limit:
            _, dropped = self._kept.popitem(last=False)
            size -= dropped.size


class History:
    """The conversation of a session. Messages that were read are kept while the event log shows no
    change to them, by any process."""

    def __init__(self, conversations: Conversations, session_id: str) -> None:
        self._conversations = conversations
        self._session_id = session_id
        self._conversation = Conversation()
        self._rest: list[PlacedMessage] = []
        self._head: int | None = None
        """The end of the log when it was last read."""
        self.is_whole = True
        """Whether no update was interrupted."""

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return self._conversation.size

    async def turns(self, prompts: Collection[str]) -> tuple[ModelTurn, ...]:
        """The current conversation; `prompts` are being answered.

        Waiting prompts are left out, so that none is answered twice.
        """
        self.is_whole = False
        answered = await self._read(prompts)
        turns = self._conversation.turns(self._rest, answered, prompts)
        self.is_whole = True
        return turns

    def prompt(self, id: str) -> MessageWithParts:
        """A prompt by its id that no run has begun to answer."""
        return next(each.message for each in self._rest if each.message.info.id == id)

    async def _read(self, prompts: Collection[str]) -> frozenset[str]:
        """Read what is new; return the prompts that have answers of their own."""
        conversation = self._conversation
        while True:
            self._rest, answered = [], None
            after = kept = conversation.pos
            more = True
            while more:
                page = await self._page(after, answered)
                self._head = page.head
                conversation.forget(page.updated, page.changed)
                if conversation.pos < kept or (answered is not None and page.is_touched):
                    break  # what was read of it has changed
                answered = page.answered
                await self._take(page.messages, answered, prompts)
                kept, more = conversation.pos, page.more
                after = page.messages[-1].pos if page.messages else after
            else:
                assert answered is not None
                return answered

    async def _page(self, after: int, answered: frozenset[str] | None) -> Growth:
        return await self._conversations.growth(
            self._session_id, after=after, since=self._head, limit=_PAGE, answered=answered
        )

    async def _take(
        self, messages: Sequence[PlacedMessage], answered: Collection[str], prompts: Collection[str]
    ) -> None:
        take = partial(self._conversation.take, [*self._rest, *messages], answered, prompts)
        self._rest = take() if len(messages) <= _FEW else await asyncio.to_thread(take)
