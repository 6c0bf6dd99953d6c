"""Compactions: the step that writes a summary of a conversation, and outputs that models are not
sent any more."""

from collections.abc import Iterable
from functools import partial
from types import TracebackType

import msgspec

from kedge._failpoints import reach
from kedge.domain.messages import AssistantMessage, MessageModel, UserMessage
from kedge.domain.parts import CompactionPart, StepStartPart
from kedge.engine.prompts import Prompt
from kedge.engine.steps import Step
from kedge.engine.timeline.effects import StepSample
from kedge.engine.turns import Turn
from kedge.store.queries.compactions import NewPrompt, begin_summary, end_summary
from kedge.store.queries.pruned_outputs import prune
from kedge.store.transaction import ScriptMaker


class SummaryStep(Step):
    """A summary being written. It counts from the moment at which it is complete.

    Set `tail_start_id` and `following` before it ends.
    """

    def __init__(
        self,
        turn: Turn,
        prompt: UserMessage,
        part: CompactionPart,
        *,
        model: MessageModel,
        agent: str,
        opening: Prompt | None = None,
    ) -> None:
        """`opening` is the prompt if it is not stored yet."""
        super().__init__(turn, model, agent)
        self.message = msgspec.structs.replace(self.message, parentID=prompt.id, summary=True)
        self.tail_start_id: str | None = None
        """The first message that is kept beside the summary."""
        self.following: Prompt | None = None
        """What is to be answered after the compaction."""
        self._part = part
        self._opening = opening

    def _beginning(self, start: StepStartPart) -> ScriptMaker[AssistantMessage]:
        return partial(
            begin_summary,
            self.message,
            start,
            None if self._opening is None else _new(self._opening),
            fence=self.turn.fence,
            now=self.turn.engine.clock.now(),
        )

    async def _begin(self, taken: StepSample) -> None:
        reach("summary-due")
        await super()._begin(taken)
        reach("summary-begun")

    def _ending(self, end: ScriptMaker[None]) -> ScriptMaker[None]:
        reach("summary-written")
        return partial(
            end_summary,
            end,
            msgspec.structs.replace(self._part, tail_start_id=self.tail_start_id),
            None if self.following is None else _new(self.following),
            fence=self.turn.fence,
            now=self.turn.engine.clock.now(),
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        reach("summary-stored")
        if error is None and self.following is not None:
            await self.turn.go_on_to(self.following.message)
            self.turn.prompts.append(self.following.message.id)


async def prune_outputs(turn: Turn, calls: Iterable[tuple[str, str]]) -> None:
    """Send the outputs of these calls to models no more; each is named by its message and part."""
    engine = turn.engine
    script = partial(prune, turn.session.id, calls, fence=turn.fence, now=engine.clock.now())
    await turn._write(script)


def _new(prompt: Prompt) -> NewPrompt:
    return NewPrompt(message=prompt.message, parts=prompt.parts, change=prompt.change)
