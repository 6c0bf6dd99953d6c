"""Turns, for people who write their own agent: the messages, parts and events come out right by
themselves.

    async with session.turn("Say hello") as turn:
        async with turn.step() as step:
            await step.text("Hello.")

While a turn is open its session is busy. A turn ends well, with an error, or because somebody
aborted it; whichever it is, nothing is left open behind it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kedge.domain import failures, wire
from kedge.domain.errors import InvalidInput, LeaseLost, TurnAborted
from kedge.domain.ids import check_id
from kedge.domain.messages import MessageModel, MessageTime, UserMessage
from kedge.domain.parts import Part, TextPart
from kedge.domain.sessions import ModelRef, SessionInfo
from kedge.domain.status import Retry, SessionStatus
from kedge.engine.inputs import check_text
from kedge.engine.session import Session, is_large
from kedge.store.script import ScriptMaker
from kedge.store.verbs.fences import Fence
from kedge.store.verbs.leases import release_lease, set_status
from kedge.store.verbs.sessions import touched
from kedge.store.verbs.turns import begin_turn, fail_step

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.steps import Step

T = TypeVar("T")

NO_MODEL = MessageModel(providerID="kedge", modelID="none")
"""What a turn names as its model when it is not told one."""


class Turn:
    """A prompt, and the steps that answer it."""

    def __init__(
        self,
        engine: "Engine",
        session: Session,
        prompt: str | Sequence[Part],
        *,
        agent: str,
        model: MessageModel | None,
        message_id: str | None,
    ) -> None:
        self.engine = engine
        self.session = session
        self.agent = check_text(agent, "agent")
        self.model = model or NO_MODEL
        id = engine.ids.message() if message_id is None else check_id("msg", message_id)
        self.message = UserMessage(
            id=id,
            sessionID=session.id,
            time=MessageTime(created=engine.clock.now()),
            agent=self.agent,
            model=self.model,
        )
        self._parts = self._prompt_parts(prompt)
        self._task: asyncio.Task[object] | None = None
        self._fence: Fence | None = None
        self._aborted = False
        self._recorded: BaseException | None = None

    async def __aenter__(self) -> "Turn":
        if self._task is not None:
            raise InvalidInput("a turn can be entered only once")
        self._task = asyncio.current_task()
        runs = self.engine.runs
        await runs.starting(self.session.id, self._stop)
        try:
            store = self.engine.store
            large = any(is_large(part) for part in self._parts)
            self._fence = await (store.write_bulk if large else store.write)(
                partial(
                    begin_turn,
                    self.message,
                    self._parts,
                    self._prompted,
                    owner=runs.owner,
                    ttl=runs.ttl,
                    is_alive=runs.alive_in(self.session.id, self._stop),
                    now=self.engine.clock.now(),
                )
            )
        except BaseException:
            runs.ended(self.session.id, self._stop)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            if not isinstance(error, LeaseLost):
                if error is not None:
                    await self.record(error)
                await self._write(partial(release_lease, self.fence))
        finally:
            self.engine.runs.ended(self.session.id, self._stop)
        if self._aborted and isinstance(error, asyncio.CancelledError):
            assert self._task is not None
            self._task.uncancel()
            raise TurnAborted(self.session.id) from None
        return False

    @property
    def fence(self) -> Fence:
        """The lease under which the turn writes."""
        if self._fence is None:
            raise InvalidInput("enter the turn with `async with` first")
        return self._fence

    def step(self, *, model: MessageModel | None = None) -> "Step":
        """One model request and the tool calls it makes, to be entered with `async with`."""
        from kedge.engine.steps import Step

        return Step(self, model or self.model)

    async def retrying(self, attempt: int, message: str, next: int) -> None:
        """Say that the model request failed and is made again at the time `next`."""
        await self.set_status(Retry(attempt=attempt, message=message, next=next))

    async def set_status(self, status: SessionStatus) -> None:
        """Say what the session is doing while the turn runs."""
        await self._write(partial(set_status, self.fence, status))

    async def _write(self, script: ScriptMaker[T]) -> T:
        return await self.engine.store.write(script)

    async def record(self, error: BaseException) -> None:
        """Close what is open, and say why; once for each error, however many blocks it leaves."""
        if error is self._recorded or isinstance(error, LeaseLost):
            return
        self._recorded = error
        script = partial(
            fail_step,
            self.session.id,
            failure_of(error, self._aborted),
            fence=self.fence,
            now=self.engine.clock.now(),
        )
        await self._write(script)

    def _stop(self) -> None:
        self._aborted = True
        if self._task is not None:
            self._task.cancel()

    def _prompted(self, info: SessionInfo) -> SessionInfo:
        model = ModelRef(
            id=self.model.modelID, providerID=self.model.providerID, variant=self.model.variant
        )
        named = msgspec.structs.replace(info, agent=self.agent, model=model)
        return touched(named, self.engine.clock.now())

    def _prompt_parts(self, prompt: str | Sequence[Part]) -> list[Part]:
        home: dict[str, Any] = {"sessionID": self.session.id, "messageID": self.message.id}
        if isinstance(prompt, str):
            return [TextPart(id=self.engine.ids.part(), text=prompt, **home)]
        parts = []
        for part in prompt:
            given = wire.convert(part, Part)
            parts.append(msgspec.structs.replace(given, **home))
        return parts


def failure_of(error: BaseException, aborted: bool) -> failures.Failure:
    """What went wrong in a turn, as clients are told."""
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
        return failures.aborted("Aborted" if aborted else "The turn was cancelled")
    return failures.unknown(str(error) or type(error).__name__)
