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

from kedge.domain import failures
from kedge.domain.errors import EngineClosed, InvalidInput, LeaseLost, TurnAborted
from kedge.domain.ids import check_id
from kedge.domain.messages import MessageModel, MessageTime, UserMessage
from kedge.domain.parts import Part, TextPart
from kedge.domain.sessions import ModelRef, SessionInfo
from kedge.domain.status import Busy, Retry
from kedge.engine.inputs import check_list, check_text, check_value
from kedge.engine.session import Session, is_large
from kedge.store.script import ScriptMaker
from kedge.store.verbs.fences import Fence
from kedge.store.verbs.leases import release_lease, set_status
from kedge.store.verbs.sessions import touched
from kedge.store.verbs.turns import begin_turn, fail_step
from kedge.store.waiting import to_the_end

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.steps import Step

T = TypeVar("T")

CUT_OFF = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""What ends a turn from outside, without anything having gone wrong in it."""

NO_MODEL = MessageModel(providerID="kedge", modelID="none")
"""What a turn names as its model when it is not told one."""


class Turn:
    """A prompt, and the steps that answer it."""

    def __init__(
        self,
        engine: "Engine",
        session: Session,
        prompt: str | Sequence[Part | dict[str, Any]],
        *,
        agent: str,
        model: MessageModel | None,
        message_id: str | None,
    ) -> None:
        self.engine = engine
        self.session = session
        self.agent = check_text(agent, "agent")
        self.model = NO_MODEL if model is None else check_value(model, MessageModel)
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
        self._cancels_before = 0
        self._aborts = 0
        self._over = False
        self._cut_off = False
        self._stopping = False
        """Whether an abort is just being recorded, so that another one changes nothing."""
        self._told: BaseException | None = None
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> "Turn":
        if self._task is not None:
            raise InvalidInput("a turn can be entered only once")
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancels_before = self._task.cancelling()
        await self.engine.runs.starting(self.session.id, self._stop)
        try:
            await to_the_end(self._begin())
        except BaseException as error:
            if self._fence is None:
                self.engine.runs.ended(self.session.id, self._stop)
            else:
                await self._leave(error)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        await self._leave(error)
        return False

    async def _begin(self) -> None:
        runs, store = self.engine.runs, self.engine.store
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
        runs.started(self.session.id, self._fence.generation)

    async def _leave(self, error: BaseException | None) -> None:
        self._over = True
        late: asyncio.CancelledError | None = None
        try:
            await to_the_end(self._end(error))
        except asyncio.CancelledError as cancelled:
            late = cancelled
        except EngineClosed:
            # The run was ended with its engine. Whoever believes that all went well must hear it.
            if error is None:
                raise
        finally:
            self.engine.runs.ended(self.session.id, self._stop)
            cancelled_by_others = self._forget_aborts()
        if cancelled_by_others:
            if late is not None:
                raise late
        elif self._aborts and isinstance(error, asyncio.CancelledError):
            raise TurnAborted(self.session.id) from None

    async def _end(self, error: BaseException | None) -> None:
        if isinstance(error, LeaseLost):
            return
        try:
            if error is not None:
                await self.record(error)
        finally:
            # The handle learns what the turn did to the session: cost, agent, model.
            self.session.info = await self._write_anyway(partial(release_lease, self.fence))

    def _forget_aborts(self) -> bool:
        """Take back the cancellations that were aborts; tells whether there were any others."""
        assert self._task is not None
        for _ in range(self._aborts):
            self._task.uncancel()
        return self._task.cancelling() > self._cancels_before

    @property
    def fence(self) -> Fence:
        """The lease under which the turn writes."""
        if self._fence is None:
            raise InvalidInput("enter the turn with `async with` first")
        return self._fence

    def step(self, *, model: MessageModel | None = None) -> "Step":
        """One model request and the tool calls it makes, to be entered with `async with`."""
        from kedge.engine.steps import Step

        if self._over:
            raise InvalidInput("the turn is over")
        return Step(self, self.model if model is None else check_value(model, MessageModel))

    async def retrying(self, attempt: int, message: str, next: int) -> None:
        """Say that the model request failed and is made again at the time `next`."""
        await self.set_status(Retry(attempt=attempt, message=message, next=next))

    async def set_status(self, status: Busy | Retry) -> None:
        """Say what the session is doing while the turn runs."""
        checked: Busy | Retry = check_value(status, Busy | Retry)
        await self._write(partial(set_status, self.fence, checked))

    async def _write(self, script: ScriptMaker[T], *, large: bool = False) -> T:
        """Run a script of this turn: one after the other, in the order in which they were begun."""
        if self._cut_off:
            raise TurnAborted(self.session.id)
        async with self._writing:
            store = self.engine.store
            return await (store.write_bulk if large else store.write)(script)

    async def record(self, error: BaseException) -> None:
        """Close what is open, and say why: once, however many blocks the error leaves."""
        if isinstance(error, LeaseLost):
            return
        script = partial(
            fail_step,
            self.session.id,
            failure_of(error, self._aborts > 0),
            fence=self.fence,
            now=self.engine.clock.now(),
            tell=error is not self._told,
        )
        self._told = error
        self._stopping = self._aborts > 0 and isinstance(error, asyncio.CancelledError)
        try:
            await to_the_end(self._write_anyway(script))
        finally:
            self._stopping = False

    async def _write_anyway(self, script: ScriptMaker[T]) -> T:
        async with self._writing:
            return await self.engine.store.write(script)

    def _stop(self, closer: asyncio.Task[Any] | None) -> None:
        if self._task is None or self._over or self._stopping:
            return
        if self._task.done() or self._task is closer:
            # Nobody is there to be cancelled: the run is over, and whoever writes next hears of it.
            self._cut_off = True
            self.engine.runs.ended(self.session.id, self._stop)
            return
        self._aborts += 1
        self._task.cancel()

    def _prompted(self, info: SessionInfo) -> SessionInfo:
        model = ModelRef(
            id=self.model.modelID, providerID=self.model.providerID, variant=self.model.variant
        )
        named = msgspec.structs.replace(info, agent=self.agent, model=model)
        return touched(named, self.engine.clock.now())

    def _prompt_parts(self, prompt: str | Sequence[Part | dict[str, Any]]) -> list[Part]:
        home: dict[str, Any] = {"sessionID": self.session.id, "messageID": self.message.id}
        if isinstance(prompt, str):
            return [TextPart(id=self.engine.ids.part(), text=prompt, **home)]
        parts = [self._prompt_part(part, home) for part in check_list(prompt, "prompt")]
        if len({part.id for part in parts}) < len(parts):
            raise InvalidInput("two parts of the prompt have the same id", field="prompt")
        return parts

    def _prompt_part(self, part: object, home: dict[str, Any]) -> Part:
        if isinstance(part, dict):
            part = {"id": self.engine.ids.part(), **part, **home}
        given: Part = check_value(part, Part)
        check_id("prt", given.id)
        return msgspec.structs.replace(given, **home)


def failure_of(error: BaseException, aborted: bool) -> failures.Failure:
    """What went wrong in a turn, as clients are told."""
    if aborted:
        return failures.aborted("Aborted")
    if isinstance(error, CUT_OFF):
        return failures.aborted("The turn was cancelled")
    return failures.unknown(message_of(error))


def message_of(error: BaseException) -> str:
    """What an error says, or the first of those in a group; its name if it says nothing."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
