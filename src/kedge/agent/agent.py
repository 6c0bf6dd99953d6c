"""The agent: accepts prompts, and answers them with a model and its tools, even if the caller
leaves.

    async with kedge.open(".") as engine, Agent(engine) as agent:
        session = await engine.sessions.create()
        answer = await agent.prompt(session, "What is in this folder?")
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Literal, Unpack, overload
from weakref import WeakValueDictionary

from kedge._async import to_the_end
from kedge.agent.agents import FIRM
from kedge.agent.attachments import NOTHING, attach, remember_seen
from kedge.agent.commands import (
    INIT,
    CommandCall,
    CommandOptions,
    command_call,
    lines_told,
    prompt_parts,
    run_lines,
)
from kedge.agent.context import Surroundings, SurroundingsBook
from kedge.agent.conversations import Histories
from kedge.agent.folder_instructions import FolderInstructions
from kedge.agent.loop import Loop
from kedge.agent.output_limit import limit_of
from kedge.agent.permissions import Permissions
from kedge.agent.runner import (
    AnswerOptions,
    Following,
    PromptOptions,
    PromptParts,
    RunningTurns,
    check_options,
    check_session,
)
from kedge.agent.settings import AgentSettings
from kedge.agent.structured_output import check_format
from kedge.agent.subagents import StoredPrompt, Subagents
from kedge.agent.subtasks import with_mentions
from kedge.agent.system_prompt import Checkouts
from kedge.agent.titles import give_title, wants_title
from kedge.agent.tools.bash import OWN_COMMAND, run_own_command
from kedge.agent.tools.builtin import BUILTIN
from kedge.agent.tools.tool import Tool
from kedge.config.files import home_of
from kedge.domain.conversation import NO_LINK, TaskLink
from kedge.domain.errors import (
    InvalidInput,
    KedgeError,
    MessageExists,
    MessageNotFound,
    SessionBusy,
    TurnAborted,
)
from kedge.domain.events import CommandExecuted, EventProperties, SessionErrored
from kedge.domain.messages import Answer, MessageModel, MessageWithParts, UserMessage
from kedge.domain.providers import ModelInfo
from kedge.domain.wire_errors import unknown
from kedge.engine.engine import Engine
from kedge.engine.prompts import Prompt
from kedge.engine.session import Session
from kedge.engine.turns import NothingWaits, Turn
from kedge.engine.validation import check_text


class Agent:
    """A coding agent for all sessions of an engine."""

    def __init__(
        self,
        engine: Engine,
        *,
        tools: Sequence[Tool] = BUILTIN,
        settings: AgentSettings | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings or AgentSettings()
        self._environ = dict(os.environ if environ is None else environ)
        self._tools = _named(tools)
        self._book = SurroundingsBook(engine, self._environ)
        self._running = RunningTurns(engine)
        self._following = Following(engine, self._running, self._loop)
        self._checkouts = Checkouts(engine.files)
        self.subagents = Subagents(
            engine,
            self._ask,
            self.surroundings,
            self._running.spawn,
            settings=self.settings,
            environ=self._environ,
        )
        self._histories = Histories(engine.conversations, self.settings.history_bytes)
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._noticed: dict[str, Sequence[str]] = {}
        """The notices about each directory's configuration that were announced."""

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Abort what this agent runs, and close the connections to providers."""
        await self._running.close()
        await self._book.close()

    async def surroundings(self, session: Session) -> Surroundings:
        """The current configuration, models and agents of a session."""
        return await self._book.of(session)

    async def surroundings_of(self, directory: str, worktree: str) -> Surroundings:
        """The configuration, models and agents of a directory, as far as they can be read, even if
        it is gone: for display only."""
        return await self._book.at(directory, worktree)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment to look for configuration and keys in; must not be shown."""
        return self._environ

    @overload
    async def prompt(
        self,
        session: Session,
        prompt: PromptParts,
        *,
        no_reply: Literal[False] = ...,
        **options: Unpack[AnswerOptions],
    ) -> Answer: ...

    @overload
    async def prompt(
        self,
        session: Session,
        prompt: PromptParts,
        *,
        no_reply: Literal[True],
        **options: Unpack[AnswerOptions],
    ) -> MessageWithParts[UserMessage]: ...

    @overload
    async def prompt(
        self, session: Session, prompt: PromptParts, **options: Unpack[PromptOptions]
    ) -> MessageWithParts: ...

    async def prompt(
        self, session: Session, prompt: PromptParts, **options: Unpack[PromptOptions]
    ) -> MessageWithParts:
        """Ask, and wait for the answer: its last message, with its parts.

        An error of the model is in the answer's `error`. Cancelling this call does not stop the
        turn; `abort` does. While the session is busy the prompt is stored at once, and answered by
        the current run. With `no_reply` it is only stored, and returned as it is. A prompt whose
        `message_id` exists already is not asked again: its current answer is returned.
        """
        asked = await self._ask(session, prompt, options)
        if asked.answered is None:
            return await session.message(asked.id)
        return await self._answer(session, asked.id, asked.answered)

    async def submit(
        self, session: Session, prompt: PromptParts, **options: Unpack[PromptOptions]
    ) -> str:
        """Like `prompt`, but return the prompt's id as soon as it is stored."""
        return (await self._ask(session, prompt, options)).id

    async def shell(
        self,
        session: Session,
        command: str,
        *,
        agent: str | None = None,
        model: MessageModel | str | None = None,
        message_id: str | None = None,
    ) -> Answer:
        """Run a user's own command in a session, and wait for its end; its changes to files are
        recorded as the session's. Raises `SessionBusy` while something else runs there."""
        check_session(session)
        around = await self._surroundings(session)
        told = {"type": "text", "text": OWN_COMMAND, "synthetic": True}
        with self._telling(session):
            chosen = around.chosen(agent, model, None, is_asked=False)
            prompt = Prompt(
                self.engine,
                session.id,
                [told],
                message_id=message_id,
                agent=chosen.agent,
                model=chosen.model,
            )
        work = partial(
            run_own_command,
            command=command,
            is_protected=around.config.snapshot,
            limit=limit_of(around.config),
        )
        running = await self._running.start(session, prompt, work, takes_up=False)
        return await self._answer(session, prompt.message.id, running)

    async def command(
        self,
        session: Session,
        name: str,
        arguments: str = "",
        *,
        parts: Sequence[Mapping[str, Any]] = (),
        may_attach: Callable[[str], None] | None = None,
        **options: Unpack[CommandOptions],
    ) -> Answer:
        """Run a command, and wait for the answer to the prompt that it becomes.

        Shell lines of its template run first, in a turn of their own; if one of them is not
        permitted, that turn is the answer. `parts` are files that are added to the prompt.
        `may_attach` raises if the URL of a file that the text refers to may not be attached.
        Cancelling this call stops nothing; `abort` does.
        """
        check_session(session)
        if unknown_ones := sorted(set(options) - set(CommandOptions.__annotations__)):
            raise InvalidInput(f"a command has no {unknown_ones[0]}", field=unknown_ones[0])
        name, arguments = check_text(name, "name"), check_text(arguments, "arguments")
        work = self._command(session, name, arguments, parts, may_attach, options)
        running = self._running.spawn(work)
        # As with a prompt: a command that ends with its agent must not cancel its callers.
        await asyncio.wait({running})
        if running.cancelled():
            raise TurnAborted(session.id)
        answer = running.result()
        await session.refresh()
        return answer

    async def _command(
        self,
        session: Session,
        name: str,
        arguments: str,
        given: Sequence[Mapping[str, Any]],
        may_attach: Callable[[str], None] | None,
        options: CommandOptions,
    ) -> Answer:
        around = await self._surroundings(session)
        with self._telling(session):
            has_subtasks = "task" in self._tools
            call = command_call(around, name, arguments, options, has_subtasks=has_subtasks)
        outputs: dict[str, str] = {}
        if call.lines and not await self._exists(session, options.get("message_id")):
            answer = await self._lines(session, around, call, outputs)
            if len(outputs) < len(call.lines):
                self._tell(session, f"The command /{name} was not asked: a line of it did not run.")
                return answer
        with self._telling(session):
            parts = await asyncio.to_thread(
                partial(
                    prompt_parts,
                    call,
                    outputs,
                    around,
                    worktree=session.worktree,
                    home=home_of(self._environ),
                    given=given,
                )
            )
            for part in parts if may_attach else ():
                if part["type"] == "file" and may_attach is not None:
                    may_attach(part["url"])
        answer = await self.prompt(session, parts, **call.options)
        if name == INIT and answer.info.error is None:
            await self.engine.projects.set_initialized(session.info.projectID)
        self._announce(
            session,
            CommandExecuted(
                name=name, sessionID=session.id, arguments=arguments, messageID=answer.info.id
            ),
        )
        return answer

    async def _lines(
        self, session: Session, around: Surroundings, call: CommandCall, outputs: dict[str, str]
    ) -> Answer:
        """Run the shell lines of a command."""
        agent, name = call.agent.name, call.command.name
        prompt = Prompt(
            self.engine,
            session.id,
            [lines_told(name)],
            message_id=None,
            agent=agent,
            model=call.choice.model,
        )
        rulebook = around.agents.rulebook(agent, session=session.id)
        work = partial(
            run_lines,
            lines=call.lines,
            outputs=outputs,
            asker=Permissions(rulebook, firm=FIRM.get(agent, ()), withheld=around.withheld),
            is_protected=around.config.snapshot,
            limit=limit_of(around.config),
        )
        with self._telling(session):
            running = await self._running.start(session, prompt, work, takes_up=False)
        return await self._answer(session, prompt.message.id, running)

    async def _exists(self, session: Session, id: str | None) -> bool:
        try:
            return id is not None and bool(await session.message(id))
        except MessageNotFound:
            return False

    async def summarize(
        self, session: Session, *, model: MessageModel | str | None = None, auto: bool = False
    ) -> Answer:
        """Replace the older part of the conversation by a summary, for the model; nothing is
        removed. Returns the summary, whose `error` says why there is none.

        With `auto` the agent goes on working afterwards. While the session is busy the current run
        does it, between two steps.
        """
        check_session(session)
        # In the order of prompts: it stands for what was asked before it.
        async with self._orders.setdefault(session.id, asyncio.Lock()):
            around = await self._surroundings(session)
            with self._telling(session):
                chosen = around.chosen(_known_agent(around, session), model, None)
                part = {"type": "compaction", "auto": auto}
                prompt = Prompt(
                    self.engine,
                    session.id,
                    [part],
                    message_id=None,
                    agent=chosen.agent,
                    model=chosen.model,
                )
            running = await self._following.answered(session, prompt, NOTHING)
        id = prompt.message.id
        await asyncio.wait({running})
        if not running.cancelled():
            running.result()
        summary = await self.engine.conversations.summary_of(session.id, id)
        await session.refresh()
        if summary is None:
            if running.cancelled():
                await to_the_end(self.engine.conversations.withdraw(session.id, id))
            raise TurnAborted(session.id)
        return await self.engine.conversations.answer(session.id, summary)

    async def answer_left(self, session: Session) -> None:
        """Answer the prompts of a session that a dead process left."""
        with suppress(SessionBusy, NothingWaits):
            # Otherwise another process answers it, or has answered it.
            _ = await self._running.start(session, None, self._loop, takes_up=True)

    async def abort(self, session: Session) -> bool:
        """Stop the session's run, in any process; return when it is idle, and whether it is."""
        check_session(session)
        return await session.abort()

    async def _answer(self, session: Session, id: str, answered: asyncio.Task[None]) -> Answer:
        """The answer to a prompt, once there is one."""
        # Not awaited directly: a turn that ends with its agent must not cancel its callers.
        await asyncio.wait({answered})
        if not answered.cancelled():
            answered.result()
        answer = await self.engine.conversations.last_answer(session.id, id)
        await session.refresh()
        if answer is None or (answered.cancelled() and answer.info.parentID != id):
            if answered.cancelled():
                # The caller is told that the prompt was not answered, so no later run may answer
                # it.
                await to_the_end(self.engine.conversations.withdraw(session.id, id))
            raise TurnAborted(session.id)
        return answer

    async def _surroundings(self, session: Session) -> Surroundings:
        self._running.check_open()
        if self._running.is_empty:
            # No session uses the models of replaced configurations any more.
            await self._book.forget_replaced()
        with self._telling(session):
            around = await self.surroundings(await session.refresh())
        self._tell_notices(session, [*around.config.notices, *_withheld(around)])
        return around

    async def _ask(
        self,
        session: Session,
        given: PromptParts,
        options: PromptOptions,
        link: TaskLink = NO_LINK,
    ) -> StoredPrompt:
        check_session(session)
        check_options(options)
        check_format(options.get("format"))
        # Prompts of a session are stored in the order of the calls.
        async with self._orders.setdefault(session.id, asyncio.Lock()):
            try:
                return await self._asked(session, given, options, link)
            except MessageExists as error:
                return await self._asked_before(session, error, options)

    async def _asked(
        self, session: Session, given: PromptParts, options: PromptOptions, link: TaskLink
    ) -> StoredPrompt:
        around = await self._surroundings(session)
        with self._telling(session):
            chosen = around.chosen(
                options.get("agent"),
                options.get("model"),
                options.get("variant"),
                is_asked=not options.get("no_reply"),
            )
            told = with_mentions(given, around.agents, chosen.agent)
            attached = await attach(self.engine, session, told)
            prompt = Prompt(
                self.engine,
                session.id,
                attached.parts,
                message_id=options.get("message_id"),
                system=options.get("system"),
                tools=options.get("tools"),
                format=options.get("format"),
                agent=chosen.agent,
                model=chosen.model,
                link=link,
            )
        for problem in filter(None, (chosen.notice, *attached.problems)):
            self._tell(session, problem)
        if link.reports is None:
            await self.engine.background.tell_before_prompt(session)
        id = prompt.message.id
        if options.get("no_reply"):
            await prompt.add()
            await remember_seen(self.engine, session.id, attached)
            return StoredPrompt(id, None)
        return StoredPrompt(id, await self._following.answered(session, prompt, attached))

    async def _asked_before(
        self, session: Session, error: MessageExists, options: PromptOptions
    ) -> StoredPrompt:
        """The prompt of this id, if it exists: a client that lost its connection asks again with
        the same id."""
        message = (await session.message(error.id)).info
        if not isinstance(message, UserMessage):
            raise error
        if options.get("no_reply"):
            return StoredPrompt(message.id, None)
        return StoredPrompt(message.id, await self._following.answered_once(session, message.id))

    async def _loop(self, turn: Turn) -> None:
        around = await self.surroundings(turn.session)
        turn.is_protected = turn.is_protected and around.config.snapshot
        await Loop(
            turn=turn,
            surroundings=around,
            tools=self._tools,
            settings=self.settings,
            environ=self._environ,
            checkouts=self._checkouts,
            folders=FolderInstructions(self.engine.conversations, turn.session.id),
            subagents=self.subagents,
            histories=self._histories,
            on_first_step=partial(self._name, turn.session, around),
            tell=partial(self._tell, turn.session),
        ).run()

    def _name(
        self, session: Session, around: Surroundings, prompt: MessageWithParts, info: ModelInfo
    ) -> None:
        """Give the session a title beside its first answer."""
        if wants_title(session.info):
            model = around.catalog.open(around.catalog.small(info.providerID) or info)
            _ = self._running.spawn(give_title(self.engine.conversations, session, prompt, model))

    def _tell_notices(self, session: Session, notices: Sequence[str]) -> None:
        """Announce which parts of the configuration have no effect: once, not at each prompt."""
        place = session.info.directory
        if self._noticed.get(place, ()) != notices:
            self._noticed[place] = notices
            if notices:
                self._tell(session, "\n".join(notices))

    @contextmanager
    def _telling(self, session: Session) -> Iterator[None]:
        """Announce to subscribers why a prompt cannot be asked."""
        try:
            yield
        except KedgeError as error:
            self._tell(session, str(error))
            raise

    def _tell(self, session: Session, error: str) -> None:
        """Announce to subscribers what is wrong with a prompt."""
        self._announce(session, SessionErrored(sessionID=session.id, error=unknown(error)))

    def _announce(self, session: Session, event: EventProperties) -> None:
        info = session.info
        self.engine.events.announce(
            event,
            session_id=info.id,
            project_id=info.projectID,
            directory=info.directory,
        )


def _named(tools: Sequence[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for each in tools:
        if not isinstance(each, Tool):
            raise InvalidInput(f"{each!r} is not a tool; make it one with @tool", field="tools")
        if each.name in named:
            raise InvalidInput(f"there are two tools called {each.name!r}", field="tools")
        named[each.name] = each
    return named


def _known_agent(around: Surroundings, session: Session) -> str | None:
    """The agent of the last prompt, if there still is one of this name."""
    name = session.info.agent
    return name if name in [each.name for each in around.agents.list()] else None


def _withheld(around: Surroundings) -> list[str]:
    """What users should know about the environment of commands."""
    names = sorted(around.withheld & os.environ.keys())
    if not names:
        return []
    return [
        f"commands of the agent do not get {', '.join(names)}, which are for providers of models;"
        " `keep_env` in your configuration names those that they need"
    ]
