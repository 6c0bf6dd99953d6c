"""`kedge run`: gives an agent a prompt, and shows what it does until it is done."""

import argparse
import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import Awaitable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol

from kedge.cli.answers import Answers, Refusals, keyboard
from kedge.cli.consent import refuse_agents
from kedge.cli.event_loop import run_async
from kedge.cli.exit_codes import DONE, FAILED, INCOMPLETE, USAGE
from kedge.cli.failure import CommandFailure
from kedge.cli.location import add_location, open_engine
from kedge.cli.run_end import show_end
from kedge.cli.screen import DIM, clip, errors, one_line, output
from kedge.cli.selection import add_session, find_session
from kedge.cli.turn_view import JsonView, TurnView

if TYPE_CHECKING:
    from kedge.agent import Agent
    from kedge.domain.messages import Answer
    from kedge.engine.engine import Engine
    from kedge.engine.event_log import Event, Subscription
    from kedge.engine.session import Session

ABOUT = """\
Give an agent a prompt, and show what it says, calls and changes until it is done. What is piped in
is added to the prompt; without a PROMPT it is the prompt. Ctrl-C stops the turn, a second one
leaves at once.
"""
_HINT_AFTER = 1.0
"""Seconds until a person is told that input is read."""


def add(command: argparse.ArgumentParser) -> None:
    """Add the options."""
    command.add_argument("prompt", nargs="*", metavar="PROMPT", help="what the agent is asked")
    which = command.add_mutually_exclusive_group()
    add_session(which, option=True)
    which.add_argument(
        "--continue",
        "-c",
        dest="goes_on",
        action="store_true",
        help="in the last session used here",
    )
    command.add_argument("--fork", action="store_true", help="in a fork of that session")
    command.add_argument("--title", metavar="TITLE", help="the title of a new session")
    command.add_argument("--model", "-m", metavar="PROVIDER/MODEL", help="the model that answers")
    command.add_argument("--variant", metavar="NAME", help="the variant of the model")
    command.add_argument("--agent", metavar="NAME", help="the agent that answers")
    command.add_argument(
        "--file",
        "-f",
        action="append",
        default=[],
        metavar="PATH",
        help="attach a file; repeatable",
    )
    command.add_argument(
        "--format",
        choices=("default", "json"),
        default="default",
        help="json: one JSON document a line, as `opencode run` has them",
    )
    add_location(command)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    prompt = prompt_of(options)
    return run_async(_run(options, prompt))


def prompt_of(options: argparse.Namespace) -> str:
    """The prompt: the words, and what is piped in."""
    words = " ".join(options.prompt)
    piped = _piped() if not words or _has_input() else ""
    prompt = "\n".join(filter(None, (words, piped)))
    if not prompt.strip():
        raise CommandFailure('there is no prompt; try: kedge run "What is in this folder?"', USAGE)
    return prompt


def _has_input() -> bool:
    """Whether something is piped in. A socket or a device may never end."""
    if sys.stdin.closed:
        return False
    mode = os.fstat(sys.stdin.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _piped() -> str:
    if sys.stdin.isatty():
        return ""
    before = signal.signal(signal.SIGALRM, _say_waiting)
    signal.setitimer(signal.ITIMER_REAL, _HINT_AFTER)
    try:
        return sys.stdin.buffer.read().decode(errors="replace")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say_waiting(*_: object) -> None:
    os.write(2, b"kedge: waiting for the end of standard input; with </dev/null there is none\n")


class _View(Protocol):
    def hear(self, event: "Event") -> None: ...
    def note(self, text: str) -> None: ...
    def pause(self) -> None: ...


async def _run(options: argparse.Namespace, prompt: str) -> int:
    from kedge.agent import Agent

    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine(options))
        await refuse_agents(engine.processes, "kedge run")
        agent = await stack.enter_async_context(Agent(engine))
        attached = [_attached(options.directory, path) for path in options.file]
        session = await _session(engine, options)
        try:
            parts = [{"type": "text", "text": prompt}, *attached]
            return await _Run(engine, agent, session, options).answer(parts)
        except Exception:
            if _is_new(options):
                await _delete_if_empty(session)
            raise


def _is_new(options: argparse.Namespace) -> bool:
    return options.session is None and not options.goes_on


async def _delete_if_empty(session: "Session") -> None:
    """Without its prompt, which was refused, a session would only be in the way."""
    page = await session.messages(limit=1)
    if not page.messages:
        await session.delete()


async def _session(engine: "Engine", options: argparse.Namespace) -> "Session":
    if options.title is not None and not _is_new(options):
        raise CommandFailure("--title is for a new session, without --session and -c", USAGE)
    if _is_new(options):
        if options.fork:
            raise CommandFailure("--fork needs --session or --continue: the session to fork", USAGE)
        return await engine.sessions.create(options.title)
    session = await find_session(engine, options.session)
    return await session.fork() if options.fork else session


class _Run:
    """One prompt and its answer."""

    def __init__(
        self, engine: "Engine", agent: "Agent", session: "Session", options: argparse.Namespace
    ) -> None:
        self._engine = engine
        self._agent = agent
        self._session = session
        self._options = options
        self._is_json = options.format == "json"
        # Apart where they go to different places: what is piped on is the answer alone.
        self._out = output()
        self._rest = self._out if self._out.is_terminal else errors()
        self._view: _View = (
            JsonView(self._out, session.id)
            if self._is_json
            else TurnView(self._out, self._rest, session.info.directory)
        )
        self._sessions = {session.id}
        """The session and its subtasks."""
        self._prompt = engine.ids.message()
        self._others: set[str] = set()
        """Answers to prompts that were there before ours."""
        self._refusals = Refusals(engine.asks, self._view.note)
        terminal = None if self._is_json else keyboard()
        self._answers: Answers | Refusals = (
            self._refusals
            if terminal is None
            else Answers(engine.asks, errors(), self._view, terminal, is_own=True)
        )
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._stopped_by: signal.Signals | None = None
        self._stopping: asyncio.Task[bool] | None = None
        self._trouble: str | None = None

    async def answer(self, prompt: list[dict[str, Any]]) -> int:
        """Have the prompt answered, and show it; returns the exit code."""
        began = time.monotonic()
        self._listen()
        async with self._engine.events.subscribe() as events:
            following = asyncio.create_task(self._follow(events))
            asked = asyncio.create_task(self._ask(prompt))
            try:
                await asyncio.wait({asked, following}, return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    # Nothing can be shown any more: its reader has gone.
                    following.result()
                answer = await asked
                await self._drained(following)
            except BaseException:
                await self._stop_all(asked, following)
                raise
        self._view.pause()
        return await self._end(answer, time.monotonic() - began)

    async def _ask(self, prompt: list[dict[str, Any]]) -> "Answer | None":
        from kedge.domain.errors import TurnAborted

        options = self._options
        with suppress(TurnAborted):
            return await self._agent.prompt(
                self._session,
                prompt,
                message_id=self._prompt,
                model=options.model,
                agent=options.agent,
                variant=options.variant,
            )
        return None

    async def _follow(self, events: "Subscription") -> None:
        """Show what happens in the session and its subtasks, until it is idle again."""
        from kedge.domain.events import (
            PermissionAsked,
            PermissionReplied,
            QuestionAsked,
            QuestionRejected,
            QuestionReplied,
            SessionCreated,
            SessionErrored,
            SessionIdle,
        )

        async for event in events:
            properties = event.properties
            if (
                isinstance(properties, SessionCreated)
                and properties.info.parentID in self._sessions
            ):
                self._sessions.add(properties.info.id)
            if event.session_id not in self._sessions:
                continue
            match properties:
                case PermissionAsked():
                    self._begin(properties.id, self._answers.permission(properties))
                case QuestionAsked():
                    self._begin(properties.id, self._answers.question(properties))
                case (
                    PermissionReplied(requestID=id)
                    | QuestionReplied(requestID=id)
                    | QuestionRejected(requestID=id)
                ):
                    self._answered(id)
                case SessionErrored(error=error) if error is not None and not event.seq:
                    self._tell(str(error.data.get("message", error.name)))
                case SessionIdle() if event.session_id == self._session.id:
                    return
                case _ if event.session_id == self._session.id and not self._is_others(event):
                    self._view.hear(event)

    def _is_others(self, event: "Event") -> bool:
        """Whether it is about the answer to a prompt before ours, in a session that is at work."""
        from kedge.domain.events import MessageUpdated, PartDelta, PartUpdated
        from kedge.domain.messages import AssistantMessage

        match event.properties:
            case MessageUpdated(info=AssistantMessage(id=id, parentID=parent)):
                if parent < self._prompt:
                    self._others.add(id)
                return id in self._others
            case PartUpdated(part=part):
                return part.messageID < self._prompt or part.messageID in self._others
            case PartDelta(messageID=id):
                return id < self._prompt or id in self._others
        return False

    def _tell(self, trouble: str) -> None:
        # The last one may be why the prompt was refused; then it is told as an error.
        if self._trouble is not None:
            self._view.note(self._trouble)
        self._trouble = trouble

    def _begin(self, id: str, answering: Awaitable[None]) -> None:
        async def answer() -> None:
            from kedge.domain.errors import NotFound

            # Somebody else was faster, or the run has ended.
            with suppress(NotFound):
                await answering

        self._asking[id] = asyncio.create_task(answer())

    def _answered(self, id: str) -> None:
        task = self._asking.pop(id, None)
        if task is not None and not task.done():
            task.cancel()

    async def _drained(self, following: "asyncio.Task[None]") -> None:
        """Wait until all is shown; the turn is over."""
        _, left = await asyncio.wait({following}, timeout=2.0)
        for task in left:
            task.cancel()
        if not left:
            following.result()
        await _ended(self._asking.values())

    async def _stop_all(self, *tasks: "asyncio.Task[Any]") -> None:
        for task in [*tasks, *self._asking.values()]:
            task.cancel()
        await _ended([*tasks, *self._asking.values()])
        with suppress(Exception):
            await self._session.abort()

    def _listen(self) -> None:
        """The first signal stops the turn, a second one leaves at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stopped_by is not None:
            os.write(2, b"\nkedge: left; what runs is recorded as interrupted\n")
            os._exit(128 + number)
        self._stopped_by = number
        self._view.pause()
        errors().line(errors().paint("stopping; Ctrl-C again leaves at once", DIM))
        for task in self._asking.values():
            task.cancel()
        self._stopping = asyncio.create_task(self._session.abort())

    async def _end(self, answer: "Answer | None", seconds: float) -> int:
        if self._stopping is not None:
            await self._stopping
        error = answer.info.error if answer else None
        if self._trouble is not None:
            self._view.note(self._trouble)
        files = await show_end(
            self._session,
            self._prompt,
            seconds,
            screen=self._rest,
            view=self._view if isinstance(self._view, JsonView) else None,
            error=error,
        )
        if self._stopped_by is not None:
            return 128 + self._stopped_by
        if error is not None:
            message = str(error.data.get("message") or error.name)
            raise CommandFailure(f"the answer ended with an error: {message}", FAILED)
        if self._refusals.permissions or self._refusals.questions:
            _say_how_to_allow(self._refusals)
            return INCOMPLETE
        return DONE if files is not None else FAILED


async def _ended(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _attached(directory: str, path: str) -> dict[str, Any]:
    import mimetypes
    from pathlib import Path

    file = Path(os.path.realpath(os.path.join(directory, path)))
    if not file.exists():
        raise CommandFailure(f"--file: there is no {one_line(path)}")
    kind = mimetypes.guess_type(file.name)[0] or ""
    known = kind.startswith("image/") or kind == "application/pdf"
    mime = "application/x-directory" if file.is_dir() else kind if known else "text/plain"
    return {"type": "file", "mime": mime, "filename": file.name, "url": file.as_uri()}


def _say_how_to_allow(refusals: Refusals) -> None:
    """Where no person can be asked, the rules must say it."""
    screen = errors()
    rules: dict[str, str] = {}
    for request in refusals.permissions:
        for pattern in request.always or request.patterns:
            rules.setdefault(f'"{request.permission}": {{"{pattern}": "allow"}}', pattern)
    if rules:
        shown = clip(one_line(", ".join(rules)), 400)
        screen.line(
            "kedge: nobody could be asked. To allow it, run this in a terminal, or add to"
            f' opencode.json: "permission": {{{shown}}}'
        )
    if refusals.questions:
        screen.line("kedge: a question was not answered; run this in a terminal to be asked")
