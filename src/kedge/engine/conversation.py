"""What those who answer prompts read of a conversation, and what becomes of prompts that wait."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kedge.domain.conversation import Growth
from kedge.domain.messages import Answer, AssistantMessage
from kedge.domain.sessions import SessionInfo
from kedge.store.queries.changes import set_seen
from kedge.store.queries.compactions import last_counted, summary_of
from kedge.store.queries.growth import conversation_growth
from kedge.store.queries.messages import get_message, last_answer
from kedge.store.queries.parts import loaded_files
from kedge.store.queries.prompts import ask_again, waiting_prompts, withdraw_prompt
from kedge.store.queries.sessions import change_session

if TYPE_CHECKING:
    from kedge.engine.engine import Engine


class Conversations:
    """The conversations of all sessions."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    async def growth(
        self,
        session_id: str,
        *,
        after: int,
        since: int | None,
        limit: int,
        answered: frozenset[str] | None,
    ) -> Growth:
        """The messages that follow the position `after`, oldest first, and what the log says of
        others since the place `since` in it. `answered` is what the page before said."""
        script = partial(
            conversation_growth,
            session_id,
            after=after,
            since=since,
            limit=limit,
            answered=answered,
        )
        return await self._engine.store.scan(script)

    async def last_counted(self, session_id: str) -> AssistantMessage | None:
        """The newest answer that says how many tokens there were."""
        return await self._engine.store.read(partial(last_counted, session_id))

    async def summary_of(self, session_id: str, prompt_id: str) -> str | None:
        """The id of the newest answer to a compaction, whether it is complete or not."""
        return await self._engine.store.read(partial(summary_of, session_id, prompt_id))

    async def answer(self, session_id: str, id: str) -> Answer:
        """One message of the model."""
        found = await self._engine.store.read(partial(get_message, session_id, id))
        return found.answer()

    async def last_answer(self, session_id: str, prompt_id: str) -> Answer | None:
        """The newest answer to a prompt, or to the one that it was answered with."""
        found = await self._engine.store.scan(partial(last_answer, session_id, prompt_id))
        return None if found is None else found.answer()

    async def ask_again(self, session_id: str, prompt_id: str) -> None:
        """Let a stored prompt wait if no run has answered it, and none is about to."""
        engine = self._engine
        await engine.runs.end_dead_run(session_id)
        script = partial(
            ask_again,
            session_id,
            prompt_id,
            engine.ids,
            is_alive=engine.runs.alive_in(session_id),
            now=engine.clock.now(),
        )
        await engine.store.write(script)

    async def is_waiting(self, session_id: str, prompt_id: str) -> bool:
        """Whether no run has taken a prompt up yet."""
        waiting = await self._engine.store.read(partial(waiting_prompts, session_id))
        return prompt_id in [each.id for each in waiting]

    async def withdraw(self, session_id: str, prompt_id: str) -> None:
        """Let a prompt wait no more, unless a run has taken it up already."""
        engine = self._engine
        now = engine.clock.now()
        script = partial(withdraw_prompt, session_id, prompt_id, engine.ids, now=now)
        await engine.store.write(script)

    async def loaded_files(self, session_id: str) -> set[str]:
        """The files whose text the calls of a session loaded beside what they were asked for."""
        return await self._engine.store.scan(partial(loaded_files, session_id))

    async def set_seen(self, session_id: str, states: Iterable[tuple[bytes, str | None]]) -> None:
        """From now on the session knows which blobs are at these paths; None is no file."""
        await self._engine.store.write(partial(set_seen, session_id, states))

    async def give_title(
        self, session_id: str, title: str, wants_title: Callable[[SessionInfo], bool]
    ) -> None:
        """Name a session, if it still wants a title when it is stored."""

        def named(info: SessionInfo) -> SessionInfo:
            return msgspec.structs.replace(info, title=title) if wants_title(info) else info

        await self._engine.store.write(partial(change_session, session_id, named))
