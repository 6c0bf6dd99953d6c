"""The loop: repeats steps until the model has answered and no further prompt waits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kedge.agent.agents import FIRM, tool_switches
from kedge.agent.compaction import Compacting
from kedge.agent.context_size import tokens_around
from kedge.agent.conversations import Histories, History
from kedge.agent.families import family_of, suited
from kedge.agent.folder_instructions import FolderInstructions
from kedge.agent.model_input import ModelTurn, followed_by
from kedge.agent.output_limit import limit_of
from kedge.agent.permissions import Permissions
from kedge.agent.retry import Repeats
from kedge.agent.settings import AgentSettings
from kedge.agent.skills import offered, skills_of, system_block
from kedge.agent.step import Answering, Means
from kedge.agent.step_start import StepStart
from kedge.agent.structured_output import WantedAnswer
from kedge.agent.subagents import Subagents
from kedge.agent.subtasks import run_subtasks
from kedge.agent.system_prompt import LAST_STEP, PLAN, Checkouts, brief, environment, instructions
from kedge.agent.tools.plan_exit import plan_exit
from kedge.agent.tools.skill import skill
from kedge.agent.tools.tool import Tool
from kedge.domain.agents import AgentInfo
from kedge.domain.commands import Skill
from kedge.domain.errors import ModelNotFound
from kedge.domain.messages import MessageModel, MessageWithParts, UserMessage
from kedge.domain.permissions import Rulebook
from kedge.domain.providers import ModelInfo
from kedge.engine.prompts import NO_MODEL
from kedge.engine.turns import Turn
from kedge.model.port import ModelFailure, ModelRequest, ToolSpec

if TYPE_CHECKING:
    from kedge.agent.context import Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Answers the prompts of a turn."""

    turn: Turn
    surroundings: "Surroundings"
    tools: Mapping[str, Tool]
    settings: AgentSettings
    environ: Mapping[str, str]
    checkouts: Checkouts
    folders: FolderInstructions
    subagents: Subagents
    histories: Histories
    on_first_step: Callable[[MessageWithParts, ModelInfo], None]
    """Called beside the first request with the prompt and the model it goes to."""
    tell: Callable[[str], None]
    """Announces notices to subscribers."""
    begun: set[str] = field(default_factory=set)
    """The prompts whose subtasks were run."""

    async def run(self) -> None:
        """Answer the prompt and those that come meanwhile, until the session is released."""
        with self.histories.of(self.turn.session.id) as history:
            while True:
                await self._answer(history)
                await self._compacting().prune(history)
                if await self.turn.finish():
                    return
                await self.turn.next_prompt()

    async def _answer(self, history: History) -> None:
        """Answer the newest prompt; a failed model ends the answer, but not the run."""
        repeats, compacting = Repeats(), self._compacting()
        wanted = WantedAnswer.of(self.turn.message)
        done = 0
        goes_on, works = True, False
        while goes_on:
            turns = await history.turns(self.turn.prompts)
            agent = self.surroundings.agents.get(self.turn.agent)
            info = self._model(is_first=not done)
            if await compacting.before_step(history, info, works=works):
                goes_on = not compacting.is_over
                wanted = wanted if done else WantedAnswer.of(self.turn.message)
                continue
            if not done:
                self.on_first_step(history.prompt(self.turn.message.id), info)
            if await self._subtasks():
                turns = await history.turns(self.turn.prompts)
            done += 1
            limit = agent.steps or self.settings.steps
            try:
                goes_on = works = await self._step(
                    turns, agent, info, repeats, wanted, is_last=done >= limit
                )
            except ModelFailure as failure:
                goes_on = await compacting.after_failure(history, info, failure, works=works)
                continue
            if done >= limit:
                return
            # A program waits for a structured answer: it comes before those to later prompts.
            if goes_on and wanted is None and await self.turn.next_prompt() is not None:
                done, repeats = 0, Repeats()
                wanted = WantedAnswer.of(self.turn.message)

    async def _subtasks(self) -> bool:
        """Run the subtasks of the prompts that were accepted, in order; return whether there were
        any."""
        new = [id for id in self.turn.prompts if id not in self.begun]
        self.begun.update(new)
        limit = limit_of(self.surroundings.config)
        return await run_subtasks(self.turn, new, self.subagents, limit=limit)

    async def _step(
        self,
        turns: tuple[ModelTurn, ...],
        agent: AgentInfo,
        info: ModelInfo,
        repeats: Repeats,
        wanted: WantedAnswer | None,
        *,
        is_last: bool,
    ) -> bool:
        turn = self.turn
        rulebook = self._rulebook(agent)
        tools = await self._offered(rulebook)
        if wanted is not None:
            tools[wanted.tool.name] = wanted.tool
        request = await self._request(turns, agent, info, tools)
        if wanted is not None:
            request = wanted.requested(request, is_last=is_last)
            tools = wanted.callable_of(tools, is_last=is_last)
        elif is_last:
            request, tools = _without_calls(request), {}
        means = Means(
            model=self.surroundings.catalog.open(info),
            tools=tools,
            asker=Permissions(
                rulebook, firm=FIRM.get(agent.name, ()), withheld=self.surroundings.withheld
            ),
            settings=self.settings,
            repeats=repeats,
            limit=limit_of(self.surroundings.config),
            folders=self.folders,
            skills={each.name: each for each in self._skills(rulebook)},
            subagents=self.subagents,
        )
        model = MessageModel(
            providerID=info.providerID, modelID=info.id, variant=turn.model.variant
        )
        async with StepStart(turn.step(model=model)) as beginning:
            answering = Answering(beginning, request, means)
            await answering.run()
            if wanted is not None:
                return wanted.settle(beginning.step, answering, is_last=is_last)
        return answering.goes_on

    def _compacting(self) -> Compacting:
        return Compacting(
            turn=self.turn,
            surroundings=self.surroundings,
            settings=self.settings,
            environ=self.environ,
            folders=self.folders,
            subagents=self.subagents,
            around=self._around,
        )

    async def _around(self, agent: AgentInfo, info: ModelInfo) -> int:
        """The tokens of a request apart from its conversation, approximately."""
        tools = await self._offered(self._rulebook(agent))
        return tokens_around(await self._request((), agent, info, tools))

    def _model(self, *, is_first: bool) -> ModelInfo:
        """The model of the prompt. A prompt stored without a model gets the usual one, and so does
        one whose model was removed from the configuration while it waited."""
        around, wanted = self.surroundings, self.turn.model
        if wanted == NO_MODEL:
            wanted = around.chosen(self.turn.agent, None, None).model
        try:
            return around.catalog.model(wanted.providerID, wanted.modelID)
        except ModelNotFound:
            found, why = around.available(wanted)
            if is_first and why is not None:
                self.tell(why)
            return around.catalog.model(found.providerID, found.modelID)

    def _rulebook(self, agent: AgentInfo) -> Rulebook:
        rulebook = self.surroundings.agents.rulebook(agent.name, session=self.turn.session.id)
        switched = self.turn.message.tools
        return rulebook.plus(restrictions=[tool_switches(switched)]) if switched else rulebook

    def _skills(self, rulebook: Rulebook) -> Sequence[Skill]:
        """The skills that are not denied."""
        return offered(skills_of(self.surroundings.config), rulebook)

    async def _offered(self, rulebook: Rulebook) -> dict[str, Tool]:
        """The tools that are not wholly denied, and of use."""
        own, _ = await self.turn.engine.asks.rules(self.turn.session.id)
        rules = rulebook.plus(own)
        has_skills = bool(self._skills(rulebook))
        allowed = {
            name: tool
            for name, tool in self.tools.items()
            if not rules.is_off(tool.permission) and (tool is not skill or has_skills)
        }
        if not self.surroundings.agents.can_hand_over(self.turn.agent):
            allowed.pop(plan_exit.name, None)
        return self.subagents.offered(allowed, rules, self.surroundings.agents.list())

    async def _request(
        self,
        turns: tuple[ModelTurn, ...],
        agent: AgentInfo,
        info: ModelInfo,
        tools: Mapping[str, Tool],
    ) -> ModelRequest:
        prompt = self.turn.message
        variant = prompt.model.variant or agent.variant
        options = {**info.options, **agent.options, **(info.variants or {}).get(variant or "", {})}
        return ModelRequest(
            system=await self._system(agent, info, prompt, tools),
            turns=turns,
            tools=_specs(tools, info),
            temperature=agent.temperature,
            top_p=agent.topP,
            options=options,
            conversation=self.turn.session.id,
        )

    async def _system(
        self,
        agent: AgentInfo,
        info: ModelInfo,
        prompt: UserMessage,
        tools: Mapping[str, Tool],
    ) -> tuple[str, ...]:
        session, config = self.turn.session, self.surroundings.config
        directory, worktree = session.info.directory, session.worktree
        place = environment(
            directory,
            worktree,
            await self.checkouts.of(session.id, directory, is_git=self.surroundings.is_git),
            now_ms=self.turn.engine.clock.now(),
            model=f"{info.providerID}/{info.id}",
        )
        written = await instructions(config, directory, worktree, self.environ)
        self.folders.in_system = written.keys()
        told = [agent.prompt or brief(family_of(info), tools), place, *written.values()]
        if skill.name in tools and (block := system_block(self._skills(self._rulebook(agent)))):
            told.append(block)
        if agent.name == "plan":
            told.append(PLAN)
        if prompt.system:
            told.append(prompt.system)
        return tuple(told)


def _without_calls(request: ModelRequest) -> ModelRequest:
    """The request of a last step: its beginning stays the same, so that it is read from the
    provider's cache, and providers need the definitions of the tools that were called."""
    return replace(request, turns=followed_by(request.turns, LAST_STEP), tool_choice="none")


def _specs(tools: Mapping[str, Tool], info: ModelInfo) -> tuple[ToolSpec, ...]:
    """The tool definitions for the model, if it can call any."""
    if not info.capabilities.toolcall:
        return ()
    return tuple(tool.spec for tool in suited(tools, info).values())
