"""The loop: repeats steps until the model has answered and no further prompt waits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kedge.agent.agents import FIRM, tool_switches
from kedge.agent.conversations import Histories, History
from kedge.agent.families import family_of, suited
from kedge.agent.folder_instructions import FolderInstructions
from kedge.agent.model_input import ModelTurn
from kedge.agent.output_limit import limit_of
from kedge.agent.permissions import Permissions
from kedge.agent.retry import Repeats
from kedge.agent.settings import AgentSettings
from kedge.agent.skills import offered, skills_of, system_block
from kedge.agent.step import Answering, Means
from kedge.agent.step_start import StepStart
from kedge.agent.system_prompt import LAST_STEP, PLAN, Checkouts, brief, environment, instructions
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
from kedge.model.port import ModelFailure, ModelRequest, Text, ToolSpec, UserTurn

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
    histories: Histories
    on_first_step: Callable[[MessageWithParts, ModelInfo], None]
    """Called beside the first request with the prompt and the model it goes to."""
    tell: Callable[[str], None]
    """Announces notices to subscribers."""

    async def run(self) -> None:
        """Answer the prompt and those that come meanwhile, until the session is released."""
        with self.histories.of(self.turn.session.id) as history:
            while True:
                await self._answer(history)
                if await self.turn.finish():
                    return
                await self.turn.next_prompt()

    async def _answer(self, history: History) -> None:
        """Answer the newest prompt; a failed model ends the answer, but not the run."""
        repeats = Repeats()
        done = 0
        goes_on = True
        while goes_on:
            turns = await history.turns(self.turn.prompts)
            agent = self.surroundings.agents.get(self.turn.agent)
            info = self._model(is_first=not done)
            if not done:
                self.on_first_step(history.prompt(self.turn.message.id), info)
            done += 1
            limit = agent.steps or self.settings.steps
            try:
                goes_on = await self._step(turns, agent, info, repeats, is_last=done >= limit)
            except ModelFailure:
                return
            if done >= limit:
                return
            if goes_on and await self.turn.next_prompt() is not None:
                done, repeats = 0, Repeats()

    async def _step(
        self,
        turns: tuple[ModelTurn, ...],
        agent: AgentInfo,
        info: ModelInfo,
        repeats: Repeats,
        *,
        is_last: bool,
    ) -> bool:
        turn = self.turn
        rulebook = self._rulebook(agent)
        skills = offered(skills_of(self.surroundings.config), rulebook)
        tools = await self._offered(rulebook, skills)
        request = await self._request(turns, agent, info, tools, skills)
        if is_last:
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
            skills={each.name: each for each in skills},
        )
        model = MessageModel(
            providerID=info.providerID, modelID=info.id, variant=turn.model.variant
        )
        async with StepStart(turn.step(model=model)) as beginning:
            answering = Answering(beginning, request, means)
            await answering.run()
        return answering.goes_on

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

    async def _offered(self, rulebook: Rulebook, skills: Sequence[Skill]) -> dict[str, Tool]:
        """The tools that are not wholly denied, and of use."""
        own, _ = await self.turn.engine.asks.rules(self.turn.session.id)
        rules = rulebook.plus(own)
        return {
            name: tool
            for name, tool in self.tools.items()
            if not rules.is_off(tool.permission) and (tool is not skill or skills)
        }

    async def _request(
        self,
        turns: tuple[ModelTurn, ...],
        agent: AgentInfo,
        info: ModelInfo,
        tools: Mapping[str, Tool],
        skills: Sequence[Skill],
    ) -> ModelRequest:
        prompt = self.turn.message
        variant = prompt.model.variant or agent.variant
        options = {**info.options, **agent.options, **(info.variants or {}).get(variant or "", {})}
        return ModelRequest(
            system=await self._system(agent, info, prompt, tools, skills),
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
        skills: Sequence[Skill],
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
        if skill.name in tools and (block := system_block(skills)):
            told.append(block)
        if agent.name == "plan":
            told.append(PLAN)
        if prompt.system:
            told.append(prompt.system)
        return tuple(told)


def _without_calls(request: ModelRequest) -> ModelRequest:
    """The request of a last step: its beginning stays the same, so that it is read from the
    provider's cache, and providers need the definitions of the tools that were called."""
    *before, last = request.turns
    said = Text(text=LAST_STEP)
    if isinstance(last, UserTurn):
        turns = (*before, UserTurn(content=(*last.content, said)))
    else:
        turns = (*request.turns, UserTurn(content=(said,)))
    return replace(request, turns=turns, tool_choice="none")


def _specs(tools: Mapping[str, Tool], info: ModelInfo) -> tuple[ToolSpec, ...]:
    """The tool definitions for the model, if it can call any."""
    if not info.capabilities.toolcall:
        return ()
    return tuple(tool.spec for tool in suited(tools, info).values())
