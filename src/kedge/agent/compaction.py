"""Compacts conversations: when a model's context is full, and when somebody asks for it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kedge.agent.compaction_plan import CompactionPlan, newest_prompt, plan_of, waits
from kedge.agent.context_size import (
    ContextSize,
    context_size,
    given_of,
    is_automatic,
    outputs_to_prune,
    prunes,
    tail_budget,
    tokens_of_message,
    tokens_of_text,
    total_of,
)
from kedge.agent.conversations import History
from kedge.agent.folder_instructions import FolderInstructions
from kedge.agent.model_input import is_media
from kedge.agent.output_limit import limit_of
from kedge.agent.permissions import Permissions
from kedge.agent.retry import Repeats
from kedge.agent.settings import AgentSettings
from kedge.agent.step import Answering, Means
from kedge.agent.step_start import StepStart
from kedge.agent.subagents import Subagents
from kedge.agent.summary_request import attached, summary_request
from kedge.domain.agents import COMPACTION, AgentInfo
from kedge.domain.conversation import PlacedMessage, Summarized
from kedge.domain.errors import AgentNotFound
from kedge.domain.messages import MessageModel, MessageWithParts, UserMessage
from kedge.domain.parts import (
    CompactionPart,
    FilePart,
    SubtaskPart,
    TextPart,
)
from kedge.domain.providers import ModelInfo
from kedge.domain.values import plain
from kedge.domain.wire_errors import context_overflow, is_overflow, unknown
from kedge.engine.compactions import SummaryStep, prune_outputs
from kedge.engine.prompts import Prompt
from kedge.engine.turns import Turn
from kedge.model.port import ModelFailure, ModelRequest, Text, UserTurn

if TYPE_CHECKING:
    from kedge.agent.context import Surroundings

CONTINUE = (
    "Go on with the next step if there is one. If you are not sure how to go on, stop and ask."
)
_MEDIA_REMOVED = (
    "The conversation was too large for the model, so attached pictures and files were removed"
    " from it. If they are needed, say so and ask for smaller ones."
)
_NOTHING = "There is nothing to compact yet: no earlier message can be summarized."
_NO_TEXT = "The model wrote no summary; nothing was compacted."
_CALLED = "The model called a tool instead of writing a summary; nothing was compacted."
_TOO_LONG = (
    "The conversation is too long to be summarized by this model. Use one with a larger context,"
    " for `agent.compaction.model` or for the session, or go back to an earlier prompt."
)
_NO_HELP = (
    "Compaction did not help: the conversation still needs about {} tokens, and {} are usable. Use"
    " a model with a larger context, go back to an earlier prompt, or begin a new session."
)


@dataclass(slots=True, kw_only=True)
class Compacting:
    """The compactions of one run. All of them are decided here, between two steps."""

    turn: Turn
    surroundings: "Surroundings"
    settings: AgentSettings
    environ: Mapping[str, str]
    folders: FolderInstructions
    subagents: Subagents
    around: Callable[[AgentInfo, ModelInfo], Awaitable[int]]
    """The tokens of a request apart from its conversation."""
    is_over: bool = field(default=False, init=False)
    """Whether no prompt is left to answer."""
    _compacted: bool = field(default=False, init=False)
    """Whether the conversation was compacted, and it is not known yet whether that helped."""

    async def before_step(self, history: History, info: ModelInfo, *, works: bool) -> bool:
        """Compact if somebody has asked for it or it is due; return whether anything was done.

        `works` says whether the turn is in the middle of its work. If a compaction that is due
        fails, the run is over, and the prompt gets the error as its answer.
        """
        self.is_over = False
        asked = history.asked(self.turn.prompts)
        if asked is not None:
            await self._as_asked(history, info, asked, works=works)
            return True
        try:
            if not await self._is_due(info):
                return False
        except ModelFailure as failure:
            await self._refuse(failure)
            return True
        try:
            await self._by_itself(history, info, works=works)
        except ModelFailure as failure:
            self.is_over = True
            if history.unanswered(self.turn.prompts) is not None:
                await self._refuse(failure)
        return True

    async def after_failure(
        self, history: History, info: ModelInfo, failure: ModelFailure, *, works: bool
    ) -> bool:
        """Compact if the model said that the request was too long; return whether the run goes
        on."""
        if not (is_overflow(failure.failure) and self._is_automatic):
            return False
        last = await self.turn.engine.conversations.last_counted(self.turn.session.id)
        if self._compacted and (last is None or last.summary):
            return False  # it did not help
        try:
            await self._by_itself(history, info, works=works, overflow=True)
        except ModelFailure:
            return False  # the summary has the error
        return True

    async def prune(self, history: History) -> None:
        """Prune old outputs at the end of a run, if the configuration says so."""
        if not prunes(self.surroundings.config.compaction, self.environ):
            return
        summary, messages = await history.visible()
        last = -1 if summary is None else summary.answer.pos
        if found := outputs_to_prune([each for each in messages if each.pos > last]):
            await prune_outputs(self.turn, found)

    @property
    def _is_automatic(self) -> bool:
        return is_automatic(self.surroundings.config.compaction, self.environ)

    def _size(self, info: ModelInfo) -> ContextSize | None:
        return context_size(info, self.surroundings.config.compaction, self.environ)

    async def _is_due(self, info: ModelInfo) -> bool:
        """Whether the last answer has filled the context; raises if a compaction before it was
        in vain."""
        size = self._size(info)
        if size is None or not self._is_automatic:
            return False
        last = await self.turn.engine.conversations.last_counted(self.turn.session.id)
        if last is None or last.summary or total_of(last.tokens) < size.start:
            return False
        if self._compacted and given_of(last.tokens) >= size.start:
            if total_of(last.tokens) < size.usable:
                return False  # only above the threshold: another one would not help either
            raise _in_vain(given_of(last.tokens), size)
        return True

    async def _as_asked(
        self, history: History, info: ModelInfo, asked: MessageWithParts, *, works: bool
    ) -> None:
        """Do a compaction that somebody has asked for; if it fails, other prompts are answered all
        the same."""
        prompt = asked.info
        assert isinstance(prompt, UserMessage)
        part = next(each for each in asked.parts if isinstance(each, CompactionPart))
        summary, messages = await history.visible()
        left = history.unanswered(self.turn.prompts)
        if left is None and works:
            left = newest_prompt(messages)
        # It has failed then; the summary has the error.
        with suppress(ModelFailure):
            await self._compact(summary, messages, info, prompt, part, works=works)
        if self.turn.message.id == prompt.id:
            self.is_over = left is None
            if left is not None:
                await self.turn.go_on_to(left)

    async def _by_itself(
        self, history: History, info: ModelInfo, *, works: bool, overflow: bool = False
    ) -> None:
        summary, messages = await history.visible()
        part: dict[str, Any] = {"type": "compaction", "auto": True}
        if overflow:
            part["overflow"] = True
        opening = self._prompt([part], self.turn.message)
        stored = opening.parts[0]
        assert isinstance(stored, CompactionPart)
        await self._compact(
            summary, messages, info, opening.message, stored, works=works, opening=opening
        )

    async def _compact(
        self,
        summary: Summarized | None,
        messages: Sequence[PlacedMessage],
        info: ModelInfo,
        prompt: UserMessage,
        part: CompactionPart,
        *,
        works: bool,
        opening: Prompt | None = None,
    ) -> None:
        config = self.surroundings.config.compaction
        plan = plan_of(
            messages,
            budget=tail_budget(self._size(info), config),
            most_turns=config.tail_turns,
            overflow=bool(part.overflow),
        )
        who = self._agent()
        by = self._model(who, prompt)
        model = MessageModel(
            providerID=by.providerID, modelID=by.id, variant=who.variant or prompt.model.variant
        )
        step = SummaryStep(self.turn, prompt, part, model=model, agent=COMPACTION, opening=opening)
        async with StepStart(step) as beginning:
            if not plan.head:
                raise ModelFailure(unknown(_NOTHING))
            # What cannot help is not paid for.
            await self._check(info, "", plan, None)
            request = self._request(plan, summary, who, by, model)
            text = await self._written(beginning, request, by)
            following = self._following(plan, messages, prompt, part, works=works)
            await self._check(info, text, plan, following)
            step.tail_start_id = plan.tail[0].message.info.id if plan.tail else None
            step.following = following
        self._compacted = True

    def _agent(self) -> AgentInfo:
        agents = self.surroundings.agents
        try:
            return agents.get(COMPACTION)
        except AgentNotFound:
            # It is switched off in the configuration, which says nothing about summaries.
            return AgentInfo(name=COMPACTION, mode="primary", permission=[], options={})

    def _model(self, who: AgentInfo, prompt: UserMessage) -> ModelInfo:
        catalog, model = self.surroundings.catalog, who.model
        if model is None or catalog.why_not(model.providerID, model.modelID) is not None:
            model, _ = self.surroundings.available(prompt.model)
        return catalog.model(model.providerID, model.modelID)

    def _request(
        self,
        plan: CompactionPlan,
        summary: Summarized | None,
        who: AgentInfo,
        info: ModelInfo,
        model: MessageModel,
    ) -> ModelRequest:
        size = self._size(info)
        prior = None if summary is None else _text_of(summary.answer)
        text = summary_request(plan.head, prior, None if size is None else size.usable)
        variant = (info.variants or {}).get(model.variant or "", {})
        return ModelRequest(
            system=(who.prompt,) if who.prompt else (),
            turns=(UserTurn(content=(Text(text=text),)),),
            temperature=who.temperature,
            top_p=who.topP,
            options={**info.options, **who.options, **variant},
            purpose="summary",
        )

    async def _written(self, beginning: StepStart, request: ModelRequest, info: ModelInfo) -> str:
        """The summary that the model writes."""
        around = self.surroundings
        means = Means(
            model=around.catalog.open(info),
            tools={},
            asker=Permissions(around.agents.rulebook(), withheld=around.withheld),
            settings=self.settings,
            repeats=Repeats(),
            limit=limit_of(around.config),
            folders=self.folders,
            subagents=self.subagents,
        )
        answering = Answering(beginning, request, means)
        try:
            await answering.run()
        except ModelFailure as failure:
            if is_overflow(failure.failure):
                raise ModelFailure(context_overflow(_TOO_LONG)) from failure
            raise
        if answering.goes_on:
            raise ModelFailure(unknown(_CALLED))
        message = await self.turn.session.message(beginning.step.message.id)
        text = "\n".join(each.text for each in message.parts if isinstance(each, TextPart))
        if not text.strip():
            raise ModelFailure(unknown(_NO_TEXT))
        return text

    def _following(
        self,
        plan: CompactionPlan,
        messages: Sequence[PlacedMessage],
        prompt: UserMessage,
        part: CompactionPart,
        *,
        works: bool,
    ) -> Prompt | None:
        """The message after the summary, if there must be one for the work to go on."""
        if plan.replayed:
            parts = [
                _copied(each)
                for one in plan.replayed
                for each in one.message.parts
                # It has run already.
                if not isinstance(each, SubtaskPart)
            ]
            last = plan.replayed[-1].message.info
            assert isinstance(last, UserMessage)
            return self._prompt(parts, last)
        if any(each.message.info.id in self.turn.prompts for each in plan.tail if waits(each)):
            return None  # there is a prompt to answer
        if not (works or part.auto):
            return None
        text = f"{_MEDIA_REMOVED}\n\n{CONTINUE}" if part.overflow else CONTINUE
        now = self.turn.engine.clock.now()
        told = {
            "type": "text",
            "text": text,
            "synthetic": True,
            "metadata": {"compaction_continue": True},
            "time": {"start": now, "end": now},
        }
        return self._prompt([told], newest_prompt(messages) or prompt)

    def _prompt(self, parts: Sequence[dict[str, Any]], like: UserMessage) -> Prompt:
        return Prompt(
            self.turn.engine,
            self.turn.session.id,
            list(parts),
            message_id=None,
            agent=like.agent,
            model=like.model,
            system=like.system,
            tools=like.tools,
            format=like.format,
        )

    async def _check(
        self, info: ModelInfo, text: str, plan: CompactionPlan, following: Prompt | None
    ) -> None:
        """Raise if the conversation is too large with its summary too."""
        size = self._size(info)
        if size is None:
            return
        told = [] if following is None else following.parts
        left = tokens_of_text(text) + sum(map(tokens_of_message, plan.tail))
        left += sum(tokens_of_text(each.text) for each in told if isinstance(each, TextPart))
        left += await self.around(self.surroundings.agents.get(self.turn.agent), info)
        if left >= size.usable:
            raise _in_vain(left, size)

    async def _refuse(self, failure: ModelFailure) -> None:
        """Give the prompt an answer with this error."""
        self.is_over = True
        with suppress(ModelFailure):
            async with self.turn.step():
                raise failure


def _in_vain(tokens: float, size: ContextSize) -> ModelFailure:
    return ModelFailure(context_overflow(_NO_HELP.format(round(tokens), size.usable)))


def _copied(part: Any) -> dict[str, Any]:  # noqa: ANN401 - any part
    """A part for a prompt that is asked again; pictures become text."""
    if isinstance(part, FilePart) and is_media(part):
        return {"type": "text", "text": attached(part), "synthetic": True}
    found: dict[str, Any] = plain(part)
    return {key: found[key] for key in found if key not in ("id", "sessionID", "messageID")}


def _text_of(placed: PlacedMessage) -> str:
    parts = placed.message.parts
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
