"""Subtasks: work that an agent gives to another one, in a session of its own below the caller's.

A subtask runs in the process of its caller. The caller waits for it, unless it works in the
background; then its end is told to the caller's session.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from kedge._async import to_the_end
from kedge.agent.context import Surroundings
from kedge.agent.references import references_of_model
from kedge.agent.runner import PromptOptions, PromptParts
from kedge.agent.settings import AgentSettings
from kedge.agent.silence import Silences
from kedge.agent.tools.call import Call
from kedge.agent.tools.task import TaskArguments, TaskTool
from kedge.agent.tools.tool import Output, Tool, ToolFailure
from kedge.config.values import Config
from kedge.domain.agents import AgentInfo
from kedge.domain.conversation import AlreadyTold, TaskLink
from kedge.domain.errors import AgentNotFound, KedgeError, SessionNotFound
from kedge.domain.messages import MessageModel
from kedge.domain.parts import AgentPart
from kedge.domain.permissions import PermissionRule, Rulebook
from kedge.domain.sessions import SessionInfo
from kedge.domain.text import printable
from kedge.engine.background import TaskResult, task_block, used_since
from kedge.engine.engine import Engine
from kedge.engine.session import Session

_log = logging.getLogger(__name__)
_FLAGS = ("OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS", "OPENCODE_EXPERIMENTAL")
_NO_BACKGROUND = f"Background subagents require {_FLAGS[0]}=true"
_STARTED = (
    "The task runs in the background. Go on with other work: a message tells you when it has ended."
    " Do not look for its result before, and do not do its work yourself."
)
_SILENT = (
    "nothing was heard of it for {:g} s, so it was stopped. What it did so far stays. Go on with"
    " this task_id, give it a smaller task, or do it yourself."
)
_LONGEST_TITLE = 200
_UPDATED = "The task runs in the background, and will do this next. A message tells you the end."


class Asking(Protocol):
    """Stores a prompt, and has it answered."""

    async def __call__(
        self, session: Session, given: PromptParts, options: PromptOptions, link: TaskLink
    ) -> "StoredPrompt":
        """Return once the prompt is stored."""


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """A stored prompt."""

    id: str
    answered: asyncio.Task[None] | None
    """Done when the prompt is answered; None if it is not to be answered."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """A subtask that runs."""

    session: Session
    parent_id: str
    title: str
    asked: StoredPrompt
    timeout: float | None
    sent_back: asyncio.Future[None]
    """Done when it is to go on in the background."""
    ended: asyncio.Task[TaskResult] | None = None
    is_background: bool = False


class Subagents:
    """The subtasks of an agent's sessions."""

    def __init__(
        self,
        engine: Engine,
        ask: Asking,
        surroundings: Callable[[Session], Awaitable[Surroundings]],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
        *,
        settings: AgentSettings,
        environ: Mapping[str, str],
    ) -> None:
        self._engine = engine
        self._ask = ask
        self._surroundings = surroundings
        self._spawn = spawn
        self._settings = settings
        self.has_background = any(environ.get(name, "").lower() in ("1", "true") for name in _FLAGS)
        """Whether tasks may run in the background."""
        self.silences = Silences(engine)
        self._jobs: list[_Job] = []

    def offered(
        self, tools: Mapping[str, Tool], rules: Rulebook, agents: Sequence[AgentInfo]
    ) -> dict[str, Tool]:
        """The tools, with `task` as an agent with these rules may use it."""
        named = sorted(
            (
                each
                for each in agents
                if each.mode != "primary" and rules.decide("task", each.name).action != "deny"
            ),
            key=lambda each: each.name,
        )
        made: dict[str, Tool] = {}
        for name, tool in tools.items():
            if isinstance(tool, TaskTool):
                if named:
                    made[name] = replace(tool, agents=named, has_background=self.has_background)
            else:
                made[name] = tool
        return made

    async def run(self, call: Call, wanted: TaskArguments, *, is_persons: bool = False) -> Output:
        """Run a task and wait for its end, or leave it to the background; `is_persons` if a person
        gave it, who needs no permission."""
        if wanted.background and not self.has_background:
            raise ToolFailure(_NO_BACKGROUND)
        around = await self._surroundings(call.session)
        await self._check_depth(call.session, around.config.subagent_depth)
        if not is_persons and not await _is_mentioned(call, wanted.subagent_type):
            told = {"description": wanted.description, "subagent_type": wanted.subagent_type}
            await call.ask("task", [wanted.subagent_type], metadata=told)
        agent = _agent(around, wanted.subagent_type)
        session = await self._session(call, wanted, agent, around.config)
        return await self._worked(call, wanted, session, agent, around)

    async def send_back(self, session_id: str) -> bool:
        """Let the tasks that a session waits for go on in the background; return whether there was
        one."""
        found = [
            job
            for job in self._jobs
            if job.parent_id == session_id and not job.is_background and not job.sent_back.done()
        ]
        if not self.has_background:
            return False
        for job in found:
            job.sent_back.set_result(None)
        return bool(found)

    async def _check_depth(self, session: Session, limit: int) -> None:
        depth, above = 0, session.info.parentID
        while above is not None and depth < limit:
            depth += 1
            above = (await self._engine.sessions.get(above)).info.parentID
        if depth >= limit:
            raise ToolFailure(
                f"Subagent depth limit reached ({limit}). Increase"
                ' "subagent_depth" to allow nested subagents.'
            )

    async def _session(
        self, call: Call, wanted: TaskArguments, agent: AgentInfo, config: Config
    ) -> Session:
        if wanted.task_id:
            return await self._known(call.session, wanted.task_id)
        caller = call.session.info
        return await self._engine.sessions.create(
            f"{_title(wanted.description)} (@{agent.name} subagent)",
            parent=caller.id,
            directory=caller.directory,
            agent=agent.name,
            permission=_rules(caller, agent, config) or None,
        )

    async def _known(self, caller: Session, task_id: str) -> Session:
        """An earlier subtask of the same session."""
        unknown = f"There is no task {task_id} of this session. Leave `task_id` out to begin one."
        try:
            found = await self._engine.sessions.get(task_id)
        except KedgeError as error:
            raise ToolFailure(unknown) from error
        if found.info.parentID != caller.id:
            raise ToolFailure(unknown)
        return found

    async def _worked(
        self,
        call: Call,
        wanted: TaskArguments,
        session: Session,
        agent: AgentInfo,
        around: Surroundings,
    ) -> Output:
        by = call.step.message
        inherited = MessageModel(providerID=by.providerID, modelID=by.modelID, variant=by.variant)
        model = None if agent.model is not None else inherited
        chosen = around.chosen(agent.name, model, None).model
        shown = {
            "parentSessionId": call.session.id,
            "sessionId": session.id,
            "model": {"modelID": chosen.modelID, "providerID": chosen.providerID},
        }
        await call.show(title=wanted.description, **shown)
        before = session.info
        options = PromptOptions(agent=agent.name, model=model, tools=call.step.turn.message.tools)
        try:
            asked = await self._prompted(call, session, wanted.prompt, options)
        except asyncio.CancelledError:
            await to_the_end(self._stop(session.id))
            raise
        job = _Job(
            session=session,
            parent_id=call.session.id,
            title=_title(wanted.description),
            asked=asked,
            timeout=self._timeout(around.config),
            sent_back=asyncio.get_running_loop().create_future(),
        )
        running = self._running_in_background(session.id)
        if running is not None:
            running.asked = asked
            await self._engine.background.put(session, asked.id, running.title)
            return _left(job, "Background task updated", _UPDATED, shown)
        if wanted.background:
            job.sent_back.set_result(None)
        return await self._waited(call, job, before, shown)

    async def _prompted(
        self, call: Call, session: Session, text: str, options: PromptOptions
    ) -> StoredPrompt:
        parts = [{"type": "text", "text": text}, *await references_of_model(call, text)]
        link = TaskLink(works_for=(call.message_id, call.part_id))
        return await self._ask(session, parts, options, link)

    async def _stop(self, session_id: str) -> None:
        """Stop a subtask whose caller does not wait any more. An abort has stopped it along with
        its caller; this is for all other ends."""
        await self._engine.background.defer(session_id)
        await self._engine.runs.stop(session_id)

    def _timeout(self, config: Config) -> float | None:
        """Seconds of silence after which a subtask is stopped."""
        said = config.subagent_timeout
        if said is None:
            return self._settings.subagent_timeout
        return None if said is False else said / 1000

    def _running_in_background(self, session_id: str) -> _Job | None:
        return next(
            (job for job in self._jobs if job.is_background and job.session.id == session_id), None
        )

    async def _waited(
        self, call: Call, job: _Job, before: SessionInfo, shown: dict[str, Any]
    ) -> Output:
        self._jobs.append(job)
        job.ended = self._spawn(self._end(job))
        try:
            either: set[asyncio.Future[Any]] = {job.ended, job.sent_back}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not job.ended.done():
                await self._leave(job)
                return _left(job, "Background task started", _STARTED, shown)
        except asyncio.CancelledError:
            await to_the_end(self._stop(job.session.id))
            raise
        result = job.ended.result()
        used = await self._used(job.session.id, before)
        if result.is_error:
            call.keep(**used)
            raise ToolFailure(f"Subagent failed (task_id: {result.session_id}): {result.text}")
        return Output(result.block(), title=job.title, metadata={**shown, **used})

    async def _leave(self, job: _Job) -> None:
        """Let a job go on in the background."""
        await self._engine.background.put(job.session, job.asked.id, job.title)
        job.is_background = True
        _ = self._spawn(self._reported(job))

    async def _reported(self, job: _Job) -> None:
        """Tell the caller's session the end of a task in the background."""
        assert job.ended is not None
        result = await asyncio.shield(job.ended)
        self._engine.background.running.discard(job.session.id)
        if result.is_cut_off:
            # A model that is told now would do again what a person has just stopped.
            await self._engine.background.defer(job.session.id)
            return
        try:
            parent = await self._engine.sessions.get(job.parent_id)
            if parent.info.revert is None:
                # Otherwise it is told later: a prompt would make the revert final.
                options = PromptOptions(agent=parent.info.agent)
                link = TaskLink(reports=job.session.id)
                await self._ask(parent, [result.report(job.title)], options, link)
        except AlreadyTold:
            return
        except KedgeError as error:
            _log.info("the end of task %s is told later: %s", job.session.id, error)

    async def _end(self, job: _Job) -> TaskResult:
        """Wait until a subtask has ended, or stop it if nothing is heard of it any more."""
        try:
            with self.silences.watching(job.session.id, job.parent_id):
                while True:
                    asked = job.asked
                    result = await self._result(job, asked)
                    if job.asked is asked:
                        return result
        finally:
            self._jobs.remove(job)

    async def _result(self, job: _Job, asked: StoredPrompt) -> TaskResult:
        assert asked.answered is not None
        if not await self._is_answered(job, asked.answered):
            why = _SILENT.format(job.timeout)
        elif asked.answered.cancelled():
            why = "it was stopped"
        elif (error := asked.answered.exception()) is not None:
            why = str(error) or type(error).__name__
        else:
            return await self._engine.background.result(job.session.id, asked.id)
        return TaskResult(job.session.id, why, is_error=True)

    async def _is_answered(self, job: _Job, answered: asyncio.Task[None]) -> bool:
        """Wait for an answer; stop the subtask if nothing is heard of it any more, and return
        False."""
        if job.timeout is None:
            await asyncio.wait({answered})
            return True
        silent = asyncio.create_task(self.silences.too_long(job.session.id, job.timeout))
        try:
            await asyncio.wait({answered, silent}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            silent.cancel()
        if answered.done():
            return True
        await self._engine.runs.stop(job.session.id)
        return False

    async def _used(self, session_id: str, before: SessionInfo) -> dict[str, Any]:
        """What a subtask has cost since then, with the subtasks of its own."""
        try:
            after = (await self._engine.sessions.get(session_id)).info
        except SessionNotFound:
            return {}
        cost, tokens = used_since(before, after)
        return {"cost": cost, "tokens": msgspec.to_builtins(tokens)}


def _left(job: _Job, summary: str, text: str, shown: Mapping[str, Any]) -> Output:
    """What the call of a task says that goes on in the background."""
    id = job.session.id
    metadata = {**shown, "background": True, "jobId": id}
    return Output(task_block(id, "running", text, summary), title=job.title, metadata=metadata)


def _agent(around: Surroundings, name: str) -> AgentInfo:
    try:
        return around.agents.get(name)
    except AgentNotFound as error:
        raise ToolFailure(
            f"Unknown agent type: {name} is not a valid agent type. {error}"
        ) from error


def _title(description: str) -> str:
    """A description that is shown in lists: one line of some length."""
    return printable(" ".join(description.split())[:_LONGEST_TITLE])


def _rules(caller: SessionInfo, agent: AgentInfo, config: Config) -> list[PermissionRule]:
    """The rules of a new subtask: what its caller's session may not do, it may not do either."""
    said = [
        rule
        for rule in caller.permission or ()
        if rule.action == "deny" or rule.permission == "external_directory"
    ]
    mentioned = {rule.permission for rule in agent.permission}
    denied = [name for name in ("todowrite", "task") if name not in mentioned]
    denied += _primary_tools(config)
    said += [PermissionRule(permission=name, pattern="*", action="deny") for name in denied]
    return [rule for n, rule in enumerate(said) if rule not in said[:n]]


def _primary_tools(config: Config) -> list[str]:
    """The tools that the configuration leaves to agents that answer people."""
    return list(config.raw.get("experimental", {}).get("primary_tools", ()))


async def _is_mentioned(call: Call, agent: str) -> bool:
    """Whether a person named the agent in the prompt that is being answered: then it needs no
    permission."""
    prompt = await call.session.message(call.step.message.parentID)
    return any(isinstance(part, AgentPart) and part.name == agent for part in prompt.parts)
