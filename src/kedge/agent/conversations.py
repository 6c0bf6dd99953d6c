"""The conversations of sessions, read from the store once and cached between prompts."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from kedge.agent.model_input import START, Conversation, ModelTurn
from kedge.domain.conversation import Growth, PlacedMessage, Summarized
from kedge.domain.messages import AssistantMessage, MessageWithParts, UserMessage
from kedge.domain.parts import CompactionPart
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
        self._summary: Summarized | None = None
        """The summary that the conversation begins with."""
        self._passed: set[str] = set()
        """Summaries that do not count, because what was kept beside them is gone."""
        self._compactions: set[str] = set()
        """Messages on which depends which summary counts."""
        self._asked: dict[str, PlacedMessage] = {}
        """Compactions that nobody has answered yet, oldest first."""
        self._head: int | None = None
        """The end of the log when it was last read; None if nothing was read."""
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

    def unanswered(self, prompts: Collection[str]) -> UserMessage | None:
        """The newest of these prompts that no run has begun to answer, compactions apart."""
        found = [each for each in self._rest if each.message.info.id in prompts and each.state > 0]
        info = found[-1].message.info if found else None
        return info if isinstance(info, UserMessage) else None

    def asked(self, prompts: Collection[str]) -> MessageWithParts | None:
        """The oldest of these prompts that is a compaction and has no answer."""
        found = (each.message for id, each in self._asked.items() if id in prompts)
        return next(found, None)

    async def visible(self) -> tuple[Summarized | None, list[PlacedMessage]]:
        """The newest summary, and the messages that are read beside it, apart from compactions."""
        found: list[PlacedMessage] = []
        page = await self._conversations.growth(
            self._session_id, after=START, since=None, limit=_PAGE, answered=None
        )
        summary, answered = page.summary, page.answered
        while True:
            found += [each for each in page.messages if not _compacts(each)]
            if not page.more:
                return summary, found
            page = await self._conversations.growth(
                self._session_id,
                after=page.messages[-1].pos,
                since=page.head,
                limit=_PAGE,
                answered=answered,
            )

    async def _read(self, prompts: Collection[str]) -> frozenset[str]:
        """Read what is new; return the prompts that have answers of their own."""
        while True:
            conversation = self._conversation
            self._rest, answered = [], None
            after = kept = conversation.pos
            more = True
            while more:
                page = await self._page(after, answered)
                if self._head is None and page.summary is not None:
                    self._begin(page.summary)
                    kept = conversation.pos
                self._head = page.head
                if self._begins_anew(page):
                    break
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

    def _begin(self, summary: Summarized) -> None:
        self._summary = summary
        self._conversation.begin(summary)
        ids = {summary.prompt.message.info.id, summary.answer.message.info.id}
        self._compactions |= ids if summary.tail is None else {*ids, summary.tail}

    def _begins_anew(self, page: Growth) -> bool:
        """Whether another summary counts now than the one that the conversation begins with."""
        for id in page.changed:
            self._asked.pop(id, None)
        is_touched = not self._compactions.isdisjoint(page.updated | page.changed)
        if is_touched:
            self._passed.clear()
        last = -1 if self._summary is None else self._summary.answer.pos
        whole = {each.message.info.id for each in page.messages if _is_whole(each, after=last)}
        self._compactions.update(each.message.info.id for each in page.messages if _compacts(each))
        if not is_touched and whole <= self._passed:
            return False
        self._passed |= whole
        self._conversation, self._summary, self._head = Conversation(), None, None
        self._compactions.clear()
        return True

    async def _page(self, after: int, answered: frozenset[str] | None) -> Growth:
        return await self._conversations.growth(
            self._session_id, after=after, since=self._head, limit=_PAGE, answered=answered
        )

    async def _take(
        self, messages: Sequence[PlacedMessage], answered: Collection[str], prompts: Collection[str]
    ) -> None:
        for each in messages:
            info = each.message.info
            if isinstance(info, AssistantMessage):
                self._asked.pop(info.parentID, None)
            elif _compacts(each) and each.state > 0:
                self._asked[info.id] = each
        read = [each for each in messages if not _compacts(each)]
        take = partial(self._conversation.take, [*self._rest, *read], answered, prompts)
        self._rest = take() if len(messages) <= _FEW else await asyncio.to_thread(take)


def _compacts(placed: PlacedMessage) -> bool:
    """Whether a message is a compaction or its summary: only the newest whole one is read."""
    info = placed.message.info
    if isinstance(info, AssistantMessage):
        return bool(info.summary)
    return any(isinstance(part, CompactionPart) for part in placed.message.parts)


def _is_whole(placed: PlacedMessage, *, after: int) -> bool:
    """Whether a message is a complete summary behind a position."""
    info = placed.message.info
    return (
        placed.pos > after
        and isinstance(info, AssistantMessage)
        and bool(info.summary)
        and info.finish is not None
        and info.error is None
    )
