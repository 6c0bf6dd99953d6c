"""Turns, for authors of agents: a turn creates the messages, parts and events of an answer.

    async with session.turn("Say hello") as turn:
        async with turn.step() as step:
            await step.text("Hello.")

While a turn is open its session is busy. A turn ends normally, with an error or by an abort; in
each case all its messages and parts are closed.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kedge._async import to_the_end
from kedge._failpoints import reach
from kedge.domain import wire_errors
from kedge.domain.conversation import PromptState
from kedge.domain.errors import (
    EngineClosed,
    InvalidInput,
    LeaseLost,
    SessionNotFound,
    SnapshotError,
    TurnAborted,
)
from kedge.domain.messages import MessageModel, TurnSummary, UserMessage
from kedge.domain.sessions import Busy, Retry, SessionInfo, SessionSummary
from kedge.engine.session import Session
from kedge.engine.validation import check_value
from kedge.model.port import ModelFailure
from kedge.store.queries.fences import Fence
from kedge.store.queries.leases import set_status
from kedge.store.queries.plans import is_unfinished
from kedge.store.queries.prompts import take_prompts
from kedge.store.queries.sessions import lock_live_session
from kedge.store.queries.turns import (
    begin_turn,
    drop_unanswered,
    fail_step,
    fail_taken,
    finish_turn,
    finish_unless_asked,
    leave_unanswered,
    resume_turn,
    summarise_turn,
)
from kedge.store.queries.unanswered import settle_taken
from kedge.store.transaction import Script, ScriptMaker

if TYPE_CHECKING:
    from kedge.engine.diffs.summaries import Summaries
    from kedge.engine.engine import Engine
    from kedge.engine.prompts import Prompt
    from kedge.engine.steps import Step

T = TypeVar("T")
_log = logging.getLogger(__name__)

CUT_OFF = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""What ends a turn from outside, without an error in the turn."""


class NothingWaits(Exception):
    """No prompt waits for a turn that has none of its own."""


class Turn:
    """A prompt, and the steps that answer it."""

    def __init__(
        self,
        engine: "Engine",
        session: Session,
        prompt: "Prompt | None",
        *,
        takes_up: bool = False,
        state: PromptState = PromptState.TAKEN_LAST,
    ) -> None:
        """`state` says whether another process may run the prompt if this one dies first."""
        self.engine = engine
        self.session = session
        self.is_protected = engine.settings.snapshots
        """Whether steps take snapshots and calls record their changes to files."""
        self._prompt = prompt
        self._takes_up = takes_up
        self._state = state
        self._message = None if prompt is None else prompt.message
        self.prompts = [] if prompt is None else [prompt.message.id]
        """All prompts that the turn has accepted, oldest first."""
        self._task: asyncio.Task[object] | None = None
        self._fence: Fence | None = None
        self._cancels_before = 0
        self._aborts = 0
        self._over = False
        self._finished = False
        """Whether the session was released before the block ended."""
        self._cut_off = False
        self._is_unwanted = False
        """Whether the end of the turn was requested, rather than only that of its process."""
        self._stopping = False
        """Whether an abort is being recorded; another one then changes nothing."""
        self._told: BaseException | None = None
        self._writing = asyncio.Lock()
        self._summaries: Summaries | None = None

    async def __aenter__(self) -> "Turn":
        if self._task is not None:
            raise InvalidInput("a turn can be entered only once")
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancels_before = self._task.cancelling()
        if await self.engine.store.read(partial(is_unfinished, self.session.id)):
            # Finish a revert whose process died: the prompt will make it final, so it must be
            # complete.
            await self.engine.reverts.recover_session(self.session.id)
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
        owning: dict[str, Any] = {
            "owner": runs.owner,
            "ttl": runs.ttl,
            "is_alive": runs.alive_in(self.session.id, self._stop),
            "now": self.engine.clock.now(),
        }
        prompt = self._prompt
        if prompt is None:
            resumed = await store.write(partial(resume_turn, self.session.id, **owning))
            if resumed is None:
                raise NothingWaits
            self._fence, waiting = resumed
            self._message = waiting[-1]
            self.prompts = [each.id for each in waiting]
        else:
            begin = partial(
                begin_turn,
                prompt.message,
                prompt.parts,
                prompt.change,
                ids=self.engine.ids,
                state=self._state,
                link=prompt.link,
                **owning,
            )
            write = store.write_bulk if prompt.is_large else store.write
            self._fence, left = await write(partial(self._begun, begin))
            self.prompts[:0] = [each.id for each in left]
        runs.started(self.session.id, self.fence.generation)
        reach("turn-begun")

    def _begun(self, begin: ScriptMaker[Fence]) -> Script[tuple[Fence, list[UserMessage]]]:
        """Begin the turn and, in the same transaction, accept the prompts that earlier turns left:
        prompts that come later are then newer than the turn's own."""
        fence = yield from begin()
        left = (yield from take_prompts(self.session.id, fence)) if self._takes_up else []
        return fence, left

    @property
    def message(self) -> UserMessage:
        """The prompt that is being answered."""
        if self._message is None:
            raise InvalidInput("enter the turn with `async with` first")
        return self._message

    @property
    def agent(self) -> str:
        """The agent that the prompt is for."""
        return self.message.agent

    @property
    def model(self) -> MessageModel:
        """The model that the prompt is for."""
        return self.message.model

    async def next_prompt(self) -> UserMessage | None:
        """Accept the prompts that came while the turn ran, and answer the newest of them from here
        on; None if there are none."""
        found = await self._write(partial(take_prompts, self.session.id, self.fence))
        if not found:
            return None
        await self.go_on_to(found[-1])
        self.prompts += [each.id for each in found]
        return self._message

    async def go_on_to(self, prompt: UserMessage) -> None:
        """Answer another prompt of the session from here on."""
        answered = await self._summarised()
        if answered is not None:
            await self._write(partial(summarise_turn, answered, fence=self.fence))
        self._message = prompt

    async def finish(self) -> bool:
        """Release the session before the block ends, unless a prompt waits that `next_prompt` has
        not returned; return whether it is released."""
        script = partial(finish_unless_asked, await self._summarised(), fence=self.fence)
        await to_the_end(self._give_back(script))
        return self._finished

    async def _give_back(self, script: ScriptMaker[SessionInfo | None]) -> None:
        info = await self._write(script)
        if info is not None:
            self.session.info = info
            self._finished = self._over = True
            self.engine.runs.ended(self.session.id, self._stop)

    async def _leave(self, error: BaseException | None) -> None:
        self._over = True
        late: asyncio.CancelledError | None = None
        try:
            await to_the_end(self._end(error))
        except asyncio.CancelledError as cancelled:
            late = cancelled
        except EngineClosed:
            # The engine was closed and ended the run. A caller that expects success must get the
            # error.
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
        if self._finished or isinstance(error, LeaseLost):
            return
        try:
            if error is not None:
                await self.record(error)
        finally:
            # The handle gets what the turn changed in the session: cost, agent, model.
            settle = self._settle(error)
            script = partial(finish_turn, await self._summarised(), fence=self.fence, settle=settle)
            self.session.info = await self._write_anyway(script)

    def _settle(self, error: BaseException | None) -> Callable[[str], Script[None]]:
        """Decide what happens to prompts that the turn has not answered."""
        if error is None:
            return settle_taken
        told: dict[str, Any] = {"ids": self.engine.ids, "now": self.engine.clock.now()}
        if self._is_unwanted:
            return partial(drop_unanswered, **told)
        failure = failure_of(error, self._aborts > 0)
        if self._aborts or isinstance(error, CUT_OFF):
            return partial(leave_unanswered, error=failure, **told)
        return partial(fail_taken, error=failure, **told)

    async def _summarised(self) -> UserMessage | None:
        """The prompt with a summary of the turn's changes, without patches; None if nothing
        changed."""
        if not self.is_protected:
            return None
        try:
            diffs = await self.engine.diffs.turn_diffs(self.session, self.message.id)
        except SnapshotError as error:
            _log.warning("cannot determine what turn %s changed: %s", self.message.id, error)
            return None
        summary = TurnSummary(diffs=diffs)
        return msgspec.structs.replace(self.message, summary=summary) if diffs else None

    async def _summary(self) -> SessionSummary | None:
        """The summary of the session's changes so far; None if it cannot be computed."""
        if not self.is_protected:
            return None
        if self._summaries is None:
            from kedge.engine.diffs.summaries import Summaries

            self._summaries = Summaries(self.session)
        return await self._summaries.summary()

    def _forget_aborts(self) -> bool:
        """Uncancel the cancellations that were aborts; return whether there were others."""
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

    def step(self, *, model: MessageModel | None = None, agent: str | None = None) -> "Step":
        """One model request and the tool calls it makes, to be entered with `async with`; by
        default of the prompt's model and agent."""
        from kedge.engine.steps import Step

        if self._over:
            raise InvalidInput("the turn is over")
        asked = self.model if model is None else check_value(model, MessageModel)
        return Step(self, asked, self.agent if agent is None else agent)

    async def retrying(self, attempt: int, message: str, next: int) -> None:
        """Set the status to "retry": the model request failed and is repeated at the time
        `next`."""
        await self.set_status(Retry(attempt=attempt, message=message, next=next))

    async def set_status(self, status: Busy | Retry) -> None:
        """Set the session's status while the turn runs."""
        checked: Busy | Retry = check_value(status, Busy | Retry)
        await self._write(partial(set_status, self.fence, checked))

    async def _write(
        self, script: ScriptMaker[T], *, large: bool = False, durable: bool = False
    ) -> T:
        """Run a script of this turn. Scripts run one at a time, in the order of these calls."""
        if self._cut_off:
            raise TurnAborted(self.session.id)
        async with self._writing:
            store = self.engine.store
            if durable:
                return await store.write_durable(script)
            return await (store.write_bulk if large else store.write)(script)

    async def _write_fenced(self, script: ScriptMaker[None], *, durable: bool = False) -> None:
        """Run a script that does not check by itself that the turn still holds its session."""
        await self._write(partial(self._fenced, script), durable=durable)

    def _fenced(self, script: ScriptMaker[None]) -> Script[None]:
        yield from lock_live_session(self.session.id, self.fence)
        yield from script()

    async def record(self, error: BaseException) -> None:
        """Close what is open and record the error, once, however many blocks the error passes."""
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

    async def _write_last(self, script: ScriptMaker[None]) -> None:
        """Run a script of a turn that is ending, unless another process took over the session."""
        try:
            await self._write_anyway(partial(self._fenced, script))
        except (LeaseLost, SessionNotFound) as error:
            _log.info("what a call did is not recorded: %s", error)

    async def _write_anyway(self, script: ScriptMaker[T]) -> T:
        async with self._writing:
            return await self.engine.store.write(script)

    def _stop(self, closer: asyncio.Task[Any] | None) -> None:
        if self._task is None or self._over or self._stopping:
            return
        if self._task.done() or self._task is closer:
            # There is no task to cancel: the run is over, and the next write raises.
            self._cut_off = True
            self.engine.runs.ended(self.session.id, self._stop)
            return
        # A closing engine names the task that closes it; an abort names none.
        self._is_unwanted = self._is_unwanted or closer is None
        self._aborts += 1
        self._task.cancel()


def failure_of(error: BaseException, aborted: bool) -> wire_errors.Failure:
    """What went wrong in a turn, in the form that clients get."""
    if aborted:
        return wire_errors.aborted("Aborted")
    if isinstance(error, CUT_OFF):
        return wire_errors.aborted("The turn was cancelled")
    if isinstance(error, ModelFailure):
        return error.failure
    return wire_errors.unknown(message_of(error))


def message_of(error: BaseException) -> str:
    """The message of an error, or of the first one in a group; its class name if it is empty."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
