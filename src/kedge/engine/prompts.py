"""Prompts: what a user asks, validated and with ids, before anything is stored."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from kedge.domain.conversation import NO_LINK, PromptState, TaskLink
from kedge.domain.errors import InvalidInput
from kedge.domain.ids import check_id
from kedge.domain.messages import MessageModel, MessageTime, OutputFormat, UserMessage
from kedge.domain.parts import Part, TextPart
from kedge.domain.sessions import ModelRef, SessionInfo
from kedge.engine.session import is_large
from kedge.engine.validation import check_list, check_text, check_value
from kedge.store.queries.prompts import add_prompt, queue_prompt
from kedge.store.queries.sessions import touched

if TYPE_CHECKING:
    from kedge.engine.engine import Engine

NO_MODEL = MessageModel(providerID="kedge", modelID="none")
"""The model that a turn names if it was given none."""


class Prompt:
    """A user message and its parts."""

    def __init__(
        self,
        engine: "Engine",
        session_id: str,
        prompt: str | Sequence[Part | dict[str, Any]],
        *,
        agent: str,
        model: MessageModel | None,
        message_id: str | None,
        system: str | None = None,
        tools: dict[str, bool] | None = None,
        format: OutputFormat | None = None,
        link: TaskLink = NO_LINK,
    ) -> None:
        self._engine = engine
        self.link = link
        message = UserMessage(
            id=engine.ids.message() if message_id is None else check_id("msg", message_id),
            sessionID=session_id,
            time=MessageTime(created=engine.clock.now()),
            agent=check_text(agent, "agent"),
            model=NO_MODEL if model is None else check_value(model, MessageModel),
            system=None if system is None else check_text(system, "system"),
            tools=tools,
            format=format,
        )
        self.message: UserMessage = check_value(message, UserMessage)
        self.parts = self._parts(prompt)

    @property
    def is_large(self) -> bool:
        """Whether storing it would block the event loop for too long."""
        return any(is_large(part) for part in self.parts)

    async def add(self) -> None:
        """Store it as part of the conversation without asking for an answer."""
        message, now = self.message, self._engine.clock.now()
        script = partial(add_prompt, message, self.parts, self.change, now=now, link=self.link)
        await self._engine.store.write_bulk(script)

    async def queue(self, state: PromptState = PromptState.WAITING_LAST) -> bool:
        """Leave it for the running turn of the session; return False, and store nothing, if none
        runs."""
        script = partial(
            queue_prompt,
            self.message,
            self.parts,
            self.change,
            is_alive=self._engine.runs.alive_in(self.message.sessionID),
            now=self._engine.clock.now(),
            state=state,
            link=self.link,
        )
        return await self._engine.store.write_bulk(script) is not None

    def change(self, info: SessionInfo) -> SessionInfo:
        """What the prompt changes in the session object."""
        chosen = self.message.model
        model = ModelRef(id=chosen.modelID, providerID=chosen.providerID, variant=chosen.variant)
        named = msgspec.structs.replace(info, agent=self.message.agent, model=model)
        return touched(named, self._engine.clock.now())

    def _parts(self, prompt: str | Sequence[Part | dict[str, Any]]) -> list[Part]:
        home: dict[str, Any] = {"sessionID": self.message.sessionID, "messageID": self.message.id}
        if isinstance(prompt, str):
            return [TextPart(id=self._engine.ids.part(), text=prompt, **home)]
        parts = [self._part(part, home) for part in check_list(prompt, "prompt")]
        if len({part.id for part in parts}) < len(parts):
            raise InvalidInput("two parts of the prompt have the same id", field="prompt")
        return parts

    def _part(self, part: object, home: dict[str, Any]) -> Part:
        if isinstance(part, dict):
            part = {"id": self._engine.ids.part(), **part, **home}
        given: Part = check_value(part, Part)
        check_id("prt", given.id)
        return msgspec.structs.replace(given, **home)
