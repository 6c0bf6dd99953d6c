"""The script of the conversation: what the offline model does next, and how far it has come.

It remembers nothing. The prompts say what is to be done, and the answers that stand after them
how much of it is done.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kedge.domain.text import mend_text
from kedge.model.offline.commands import Fail, Line, Say
from kedge.model.offline.parser import CALLS, parse
from kedge.model.offline.replies import chat, closing, complaint, report
from kedge.model.port import (
    AssistantTurn,
    Media,
    ModelRequest,
    Text,
    ToolResult,
    ToolUse,
    UserTurn,
)


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """The lines of one answer; calls of tools end it."""

    lines: tuple[Line, ...]

    @property
    def has_calls(self) -> bool:
        """Whether tools are called, so that there will be another answer."""
        return any(isinstance(line.command, CALLS) for line in self.lines)

    @property
    def is_tolerant(self) -> bool:
        """Whether the script goes on though a call fails."""
        return any(line.tolerant for line in self.lines)

    @property
    def fails(self) -> bool:
        """Whether the request fails, at least at first."""
        return any(isinstance(line.command, Fail) for line in self.lines)

    @property
    def times(self) -> int | None:
        """In how many steps it is done; None is forever."""
        return self.lines[-1].times


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The answer that is to be given now."""

    lines: tuple[Line, ...]
    round: int | None
    """How often the line is done with this answer, if it is repeated."""
    results: tuple[ToolResult, ...]
    """What the last calls gave back."""


def next_of(request: ModelRequest) -> Next:
    """What to answer to a request."""
    progress = _Progress(request)
    for item in progress.items():
        if isinstance(item, AssistantTurn):
            progress.answered(item)
        elif isinstance(item, str):
            progress.prompted(item)
        else:
            progress.heard(item)
    return progress.next()


def prompt_of_title(request: ModelRequest) -> str:
    """The text that a title is wanted for; an instruction may stand before it."""
    progress = _Progress(request)
    prompts = [item for item in progress.items() if isinstance(item, str)]
    return (prompts[0] if progress.is_marked else prompts[-1]) if prompts else ""


def steps_of(lines: Sequence[Line]) -> list[ScriptStep]:
    """The lines by the answers that they belong to: a call ends a step, unless joined to."""
    groups: list[list[Line]] = []
    is_over = True
    for line in lines:
        if is_over and not line.joined:
            groups.append([])
            is_over = False
        groups[-1].append(line)
        is_over = is_over or isinstance(line.command, CALLS)
    return [ScriptStep(tuple(group)) for group in groups]


class _Progress:
    """Goes through the conversation as it went."""

    def __init__(self, request: ModelRequest) -> None:
        self._turns = request.turns
        self.is_marked = any(
            isinstance(item, Text) and item.is_prompt
            for turn in request.turns
            if isinstance(turn, UserTurn)
            for item in turn.content
        )
        self._start = self._first_turn()
        self._is_first = not any(
            isinstance(turn, AssistantTurn) for turn in self._turns[: self._start]
        )
        self._waiting: list[ScriptStep] = []
        self._round = 1
        self._is_tolerant = False
        self._called: list[str] = []
        self._results: tuple[ToolResult, ...] = ()
        self._failed: tuple[ToolResult, ...] = ()
        self._left = 0

    def _first_turn(self) -> int:
        """Where what is to be answered begins."""
        if self.is_marked:
            return next(n for n, turn in enumerate(self._turns) if _has_prompt(turn))
        answers = (
            n
            for n in range(len(self._turns) - 1, -1, -1)
            if isinstance(turn := self._turns[n], AssistantTurn)
            and not any(isinstance(each, ToolUse) for each in turn.content)
        )
        return next(answers, -1) + 1

    def items(self) -> Iterator[AssistantTurn | str | tuple[ToolResult, ...]]:
        """Answers, prompts and results in the order in which they came."""
        for turn in self._turns[self._start :]:
            if isinstance(turn, AssistantTurn):
                yield turn
                continue
            if results := tuple(each for each in turn.content if isinstance(each, ToolResult)):
                yield results
            texts = [each for each in turn.content if isinstance(each, Text)]
            if self.is_marked:
                texts = [each for each in texts if each.is_prompt]
            elif not texts and any(isinstance(each, Media) for each in turn.content):
                texts = [Text(text="")]
            yield from (mend_text(each.text) for each in texts)

    def prompted(self, text: str) -> None:
        """Add what a prompt asks for."""
        self._failed = ()
        if self._waiting and self._waiting[0].fails:
            # It did fail, or nobody would have gone on to say something else.
            self._waiting.clear()
        script = parse(text)
        if script is None:
            self._reply(chat(text, is_first=self._is_first))
        elif script.problems:
            self._reply(complaint(script.problems, is_first=self._is_first))
        else:
            self._add(steps_of(script.lines))

    def _reply(self, text: str) -> None:
        """Say something to a prompt; what is to be said already is not said twice."""
        line = Line(command=Say(text))
        if not (self._waiting and line in self._waiting[-1].lines):
            self._add([ScriptStep((line,))])

    def _add(self, steps: list[ScriptStep]) -> None:
        if self._waiting and not self._waiting[-1].has_calls:
            # An answer without calls is the last one, so that it has to answer this prompt too.
            steps = [ScriptStep(self._waiting.pop().lines + steps[0].lines), *steps[1:]]
        self._waiting += steps

    def answered(self, turn: AssistantTurn) -> None:
        """Take note that a step was done."""
        self._called += [each.name for each in turn.content if isinstance(each, ToolUse)]
        if not self._waiting:
            return
        step = self._waiting[0]
        self._is_tolerant = step.is_tolerant
        if step.times is None or self._round < step.times:
            self._round += 1
        else:
            self._waiting.pop(0)
            self._round = 1

    def heard(self, results: tuple[ToolResult, ...]) -> None:
        """Take note of what calls gave back; one that failed ends everything."""
        self._results = results
        failed = tuple(each for each in results if each.is_error)
        if failed and not self._is_tolerant:
            self._failed, self._left = failed, len(self._waiting)
            self._waiting.clear()
            self._round = 1

    def next(self) -> Next:
        """What is to be done after all that."""
        round = None
        if self._failed:
            lines: tuple[Line, ...] = (Line(command=Say(report(self._failed, self._left))),)
        elif self._waiting:
            lines = self._waiting[0].lines
            round = self._round if self._waiting[0].times != 1 else None
        else:
            said = closing(self._called, is_first=self._is_first)
            lines = (Line(command=Say(said)),)
        return Next(lines=lines, round=round, results=self._results)


def _has_prompt(turn: UserTurn | AssistantTurn) -> bool:
    return isinstance(turn, UserTurn) and any(
        isinstance(each, Text) and each.is_prompt for each in turn.content
    )
