"""The loop: step after step until the model has answered and nobody has asked anything more."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kedge.agent.agents import FIRM, tool_switches
from kedge.agent.answering import Answering, Means
from kedge.agent.guarding import Repeats
from kedge.agent.history import turns_of
from kedge.agent.permissions import Permissions
from kedge.agent.settings import AgentSettings
from kedge.agent.system import BUILD, LAST_STEP, PLAN, environment, instructions
from kedge.agent.tools.tool import Tool
from kedge.domain.agents import AgentInfo
from kedge.domain.messages import MessageModel, MessageWithParts, UserMessage
from kedge.domain.permission_rules import Rulebook
from kedge.domain.providers import ModelInfo
from kedge.engine.prompts import NO_MODEL
from kedge.engine.turns import Turn
from kedge.model.port import ModelFailure, ModelRequest
from kedge.store.cursors import PageCursor
from kedge.store.verbs.messages import MessagePage, message_page
from kedge.store.verbs.prompts import waiting_prompts

if TYPE_CHECKING:
    from kedge.agent.surroundings import Surroundings

_PAGE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What answers the prompts of a turn."""

    turn: Turn
    surroundings: "Surroundings"
    tools: Mapping[str, Tool]
    settings: AgentSettings
    environ: Mapping[str, str]
    on_first_step: Callable[[MessageWithParts, ModelInfo], None]
    """Called beside the first request with the prompt and the model that it goes to."""

    async def run(self) -> None:
        """Answer the prompt, and those that come meanwhile, until the session is given back."""
        history = _History(self.turn)
        while True:
            await self._answer(history)
            if await self.turn.finish():
                return
            await self.turn.next_prompt()

    async def _answer(self, history: "_History") -> None:
        """Answer the newest prompt; a model that fails ends the answer and not the run."""
        repeats = Repeats()
        done = 0
        goes_on = True
        while goes_on:
            messages = await history.load()
            agent = self.surroundings.agents.get(self.turn.agent)
            info = self._model()
            if not done:
                self.on_first_step(history.prompt(self.turn.message.id), info)
            done += 1
            limit = agent.steps or self.settings.steps
            try:
                goes_on = await self._step(messages, agent, info, repeats, is_last=done >= limit)
            except ModelFailure:
                return
            if done >= limit:
                return
            if goes_on and await self.turn.next_prompt() is not None:
                done, repeats = 0, Repeats()

    async def _step(
        self,
        messages: list[MessageWithParts],
        agent: AgentInfo,
        info: ModelInfo,
        repeats: Repeats,
        *,
        is_last: bool,
    ) -> bool:
        turn = self.turn
        rulebook = self._rulebook(agent)
        tools = {} if is_last else await self._offered(rulebook)
        request = await self._request(messages, agent, info, tools)
        if is_last:
            request = replace(request, system=(*request.system, LAST_STEP))
        means = Means(
            model=self.surroundings.catalog.open(info),
            tools=tools,
            asker=Permissions(rulebook, firm=FIRM.get(agent.name, ())),
            settings=self.settings,
            repeats=repeats,
        )
        model = MessageModel(
            providerID=info.providerID, modelID=info.id, variant=turn.model.variant
        )
        async with turn.step(model=model) as step:
            answering = Answering(step, request, means)
            await answering.run()
        return answering.goes_on

    def _model(self) -> ModelInfo:
        """The model that the prompt is for; who left one without a model gets the default."""
        wanted = self.turn.model
        if wanted == NO_MODEL:
            wanted = self.surroundings.chosen(self.turn.agent, None, None)["model"]
        return self.surroundings.catalog.model(wanted.providerID, wanted.modelID)

    def _rulebook(self, agent: AgentInfo) -> Rulebook:
        rulebook = self.surroundings.agents.rulebook(agent.name)
        switched = self.turn.message.tools
        return rulebook.plus(restrictions=[tool_switches(switched)]) if switched else rulebook

    async def _offered(self, rulebook: Rulebook) -> dict[str, Tool]:
        """The tools that are not wholly denied."""
        own, _ = await self.turn.engine.asks.rules(self.turn.session.id)
        rules = rulebook.plus(own)
        return {
            name: tool for name, tool in self.tools.items() if not rules.is_off(tool.permission)
        }

    async def _request(
        self,
        messages: list[MessageWithParts],
        agent: AgentInfo,
        info: ModelInfo,
        tools: Mapping[str, Tool],
    ) -> ModelRequest:
        prompt = self.turn.message
        variant = prompt.model.variant or agent.variant
        options = {**info.options, **agent.options, **(info.variants or {}).get(variant or "", {})}
        return ModelRequest(
            system=await self._system(agent, info, prompt),
            turns=turns_of(messages, self.turn.prompts),
            tools=tuple(tool.spec for tool in tools.values()) if info.capabilities.toolcall else (),
            temperature=agent.temperature,
            top_p=agent.topP,
            options=options,
        )

    async def _system(
        self, agent: AgentInfo, info: ModelInfo, prompt: UserMessage
    ) -> tuple[str, ...]:
        session, config = self.turn.session, self.surroundings.config
        place = environment(
            session.info.directory,
            session.worktree,
            is_git=self.surroundings.is_git,
            now_ms=self.turn.engine.clock.now(),
            model=f"{info.providerID}/{info.id}",
        )
        written = await instructions(config, session.info.directory, session.worktree, self.environ)
        told = [agent.prompt or BUILD, place, *written]
        if agent.name == "plan":
            told.append(PLAN)
        if prompt.system:
            told.append(prompt.system)
        return tuple(told)


class _History:
    """The messages of a session, read once and then followed."""

    def __init__(self, turn: Turn) -> None:
        self._session = turn.session
        self._store = turn.engine.store
        self._messages: list[MessageWithParts] = []
        self._last: PageCursor | None = None

    async def load(self) -> list[MessageWithParts]:
        """All of them, with those that came since the last call; prompts that wait to be taken up
        are left out, so that none is answered twice."""
        if self._last is None:
            await self._load_all()
        else:
            await self._load_newer()
        found = await self._store.read(partial(waiting_prompts, self._session.id))
        waiting = {each.id for each in found}
        return [each for each in self._messages if each.info.id not in waiting]

    def prompt(self, id: str) -> MessageWithParts:
        """The prompt with this id."""
        return next(each for each in reversed(self._messages) if each.info.id == id)

    async def _load_all(self) -> None:
        page = await self._page()
        self._last = page.last
        pages = [page]
        while page.older is not None:
            page = await self._page(before=page.older)
            pages.append(page)
        for page in reversed(pages):
            self._add(page)

    async def _load_newer(self) -> None:
        while (page := await self._page(after=self._last)).last is not None:
            self._last = page.last
            self._add(page)

    async def _page(
        self, *, before: PageCursor | None = None, after: PageCursor | None = None
    ) -> MessagePage:
        script = partial(message_page, self._session.id, before=before, after=after, limit=_PAGE)
        return await self._store.scan(script)

    def _add(self, page: MessagePage) -> None:
        self._messages += [text.decoded() for text in page.messages]
