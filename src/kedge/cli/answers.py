"""Answers what an agent asks: at the terminal, or by refusing where there is none.

The person's terminal is read in the event loop, so that a turn goes on and an answer from elsewhere
ends the question here.
"""

import asyncio
import os
import sys
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kedge.cli.patches import show_patch
from kedge.cli.screen import BOLD, CYAN, DIM, YELLOW, Screen, clip, one_line, safe

if TYPE_CHECKING:
    from kedge.domain.permissions import PermissionReply, PermissionRequest
    from kedge.domain.questions import QuestionInfo, QuestionRequest
    from kedge.engine.asks import Asks

_MOST_DIFF = 40
NOBODY = "There is no person to ask here. Do without it, or say what is needed."
"""What an agent is told whose request is refused."""


class Pausing(Protocol):
    """A view that can make room for a question."""

    def pause(self) -> None:
        """Leave the cursor at the beginning of a line."""


def keyboard() -> int | None:
    """The descriptor to read a person's answers from; None if there is no person."""
    if sys.stdin.isatty():
        return sys.stdin.fileno()
    if not sys.stderr.isatty():
        return None
    try:
        # Input is something else, such as a file that was piped in.
        return os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None


async def read_line(terminal: int, prompt: Callable[[], None]) -> str | None:
    """The line that is typed after the prompt; None at the end of input."""
    loop = asyncio.get_running_loop()
    read: asyncio.Future[str | None] = loop.create_future()

    def on_input() -> None:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            piece = b""
        loop.remove_reader(terminal)
        if not read.done():
            read.set_result(piece.decode(errors="replace").rstrip("\n") if piece else None)

    # What was typed before the question is no answer to it.
    termios.tcflush(terminal, termios.TCIFLUSH)
    prompt()
    loop.add_reader(terminal, on_input)
    try:
        return await read
    finally:
        loop.remove_reader(terminal)


class Answers:
    """A person at the terminal who answers what a run asks."""

    def __init__(
        self,
        asks: "Asks",
        screen: Screen,
        view: Pausing,
        terminal: int,
        *,
        is_own: bool,
    ) -> None:
        """`is_own` says that the run is one of this process, so that something can be allowed for
        as long as it lasts."""
        self._is_own = is_own
        self._asks = asks
        self._screen = screen
        self._view = view
        self._terminal = terminal
        self._one = asyncio.Lock()

    async def permission(self, request: "PermissionRequest") -> None:
        """Ask for a permission, and pass the reply on."""
        async with self._one:
            self._view.pause()
            self._show_permission(request)
            reply, message, lasting = await self._permission(request)
            await self._asks.reply_permission(request.id, reply, message, lasting=lasting)

    def _show_permission(self, request: "PermissionRequest") -> None:
        screen = self._screen
        name = screen.paint(one_line(request.permission), BOLD)
        sign = screen.paint("?", YELLOW)
        what = request.metadata.get("command") or request.metadata.get("filepath")
        patterns = [what] if isinstance(what, str) and len(request.patterns) <= 1 else []
        patterns = patterns or request.patterns
        # In full, line by line: nobody agrees to what was cut off, or seems to be an argument.
        lines = [line for pattern in patterns for line in safe(pattern).split("\n")]
        screen.line(f"{sign} May it {name}?  {lines[0] if lines else ''}")
        for line in lines[1:]:
            screen.line(f"    {line}")
        diff = request.metadata.get("diff")
        if isinstance(diff, str):
            show_patch(screen, diff, indent="  ", most=_MOST_DIFF, heads=False)

    async def _permission(
        self, request: "PermissionRequest"
    ) -> "tuple[PermissionReply, str | None, bool]":
        keys = "y yes · n no · or say what to do instead"
        if request.always:
            kept = one_line(", ".join(request.always))
            self._screen.line(self._screen.paint(f"  always: {clip(kept, 200)}", DIM))
            own = "r in this run · " if self._is_own else ""
            keys = f"y yes · {own}a always · n no · or say what to do instead"
        while True:
            said = await self._typed(keys)
            if said is None:
                self._screen.line()
                return "reject", None, False
            match said.strip().lower():
                case "":
                    continue
                case "y" | "yes":
                    return "once", None, False
                case "r" if request.always and self._is_own:
                    return "always", None, False
                case "a" | "always" if request.always:
                    return "always", None, True
                case "r" | "a":
                    # Not offered here, and no answer in words either.
                    continue
                case "n" | "no":
                    return "reject", None, False
                case _:
                    return "reject", said.strip(), False

    async def _typed(self, keys: str) -> str | None:
        shown = f"  {self._screen.paint(keys, DIM)}  > "
        return await read_line(self._terminal, lambda: self._screen.write(shown))

    async def question(self, request: "QuestionRequest") -> None:
        """Ask questions, and pass the answers on."""
        async with self._one:
            self._view.pause()
            answers: list[list[str]] = []
            for question in request.questions:
                answer = await self._question(question)
                if answer is None:
                    await self._asks.reject_question(request.id)
                    return
                answers.append(answer)
            await self._asks.reply_question(request.id, answers)

    async def _question(self, question: "QuestionInfo") -> list[str] | None:
        screen = self._screen
        screen.line(f"{screen.paint('?', CYAN)} {screen.paint(one_line(question.question), BOLD)}")
        for number, option in enumerate(question.options, 1):
            about = (
                f"  {screen.paint(one_line(option.description), DIM)}" if option.description else ""
            )
            screen.line(f"  {screen.paint(str(number), CYAN)}  {one_line(option.label)}{about}")
        several = "numbers, as 1 3" if question.multiple else "a number"
        own = "" if question.custom is False else " · or your own words"
        while True:
            said = await self._typed(f"{several}{own} · Ctrl-D to answer none")
            if said is None:
                screen.line()
                return None
            if (chosen := chosen_answers(question, said)) is not None:
                return chosen


def chosen_answers(question: "QuestionInfo", said: str) -> list[str] | None:
    """The labels that are meant, or the words; None if it is no answer."""
    words = said.replace(",", " ").split()
    labels = [option.label for option in question.options]
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal()]
    if words and len(numbers) == len(words) and all(1 <= n <= len(labels) for n in numbers):
        if len(numbers) > 1 and not question.multiple:
            return None
        return [labels[number - 1] for number in dict.fromkeys(numbers)]
    named = [label for label in labels if label.lower() == said.strip().lower()]
    if named:
        return named[:1]
    return [said.strip()] if said.strip() and question.custom is not False else None


class Refusals:
    """Nobody is there: what the rules do not allow is refused, and told at the end."""

    def __init__(self, asks: "Asks", tell: Callable[[str], None]) -> None:
        self._asks = asks
        self._tell = tell
        self.permissions: list[PermissionRequest] = []
        self.questions: list[QuestionRequest] = []

    async def permission(self, request: "PermissionRequest") -> None:
        """Refuse a permission; the agent goes on without."""
        self.permissions.append(request)
        self._tell(f"refused: {request.permission} {', '.join(request.patterns)}")
        await self._asks.reply_permission(request.id, "reject", NOBODY)

    async def question(self, request: "QuestionRequest") -> None:
        """Refuse questions; that ends the turn."""
        self.questions.append(request)
        asked = " ".join(question.question for question in request.questions)
        self._tell(f"not answered: {asked}")
        await self._asks.reject_question(request.id)
