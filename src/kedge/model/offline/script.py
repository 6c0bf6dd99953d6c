"""The script of a conversation: which command the offline model executes next.

It is stateless. The prompts contain the commands, and the answers after them show how many of these
were executed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kedge.domain.text import mend_text
from kedge.model.offline.commands import Fail, Line, Say, Structured
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
        """Whether it calls tools, so that another answer follows."""
        return any(isinstance(line.command, CALLS) for line in self.lines)

    @property
    def is_tolerant(self) -> bool:
        """Whether the script continues if a call fails."""
        return any(line.tolerant for line in self.lines)

    @property
    def fails(self) -> bool:
        """Whether the request fails, at least at first."""
        return any(isinstance(line.command, Fail) for line in self.lines)

    @property
    def times(self) -> int | None:
        """In how many steps it is repeated; None is forever."""
        return self.lines[-1].times


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The next answer."""

    lines: tuple[Line, ...]
    round: int | None
    """The number of this repetition, if the line is repeated."""
    results: tuple[ToolResult, ...]
    """The results of the last calls."""


def next_of(request: ModelRequest) -> Next:
    """The next answer to a request."""
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
    """The text that needs a title; an instruction may precede it."""
    progress = _Progress(request)
    prompts = [item for item in progress.items() if isinstance(item, str)]
    return (prompts[0] if progress.is_marked else prompts[-1]) if prompts else ""


def steps_of(lines: Sequence[Line]) -> list[ScriptStep]:
    """The lines grouped by answer: a call ends a step unless the next line is joined to it."""
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
    """Replays the conversation to find out what was executed."""

    def __init__(self, request: ModelRequest) -> None:
        self._turns = request.turns
        self._must_call = request.tool_choice == "required"
        marked = (n for n, turn in enumerate(self._turns) if _has_prompt(turn))
        first_marked = next(marked, None)
        self.is_marked = first_marked is not None
        self._start = self._first_turn() if first_marked is None else first_marked
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
        """The position at which the turns to answer begin, if none is marked."""
        answers = (
            n
            for n in range(len(self._turns) - 1, -1, -1)
            if isinstance(turn := self._turns[n], AssistantTurn)
            and not any(isinstance(each, ToolUse) for each in turn.content)
        )
        return next(answers, -1) + 1

    def items(self) -> Iterator[AssistantTurn | str | tuple[ToolResult, ...]]:
        """Answers, prompts and results in chronological order."""
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
        """Add the commands of a prompt."""
        self._failed = ()
        if self._waiting and self._waiting[0].fails:
            # The request did fail, or the user would not have sent another prompt.
            self._waiting.clear()
        script = parse(text)
        if script is None and self._must_call:
            self._add([ScriptStep((Line(command=Structured()),))])
        elif script is None:
            self._reply(chat(text, is_first=self._is_first))
        elif script.problems:
            self._reply(complaint(script.problems, is_first=self._is_first))
        else:
            self._add(steps_of(script.lines))

    def _reply(self, text: str) -> None:
        """Queue a text as the answer to a prompt, unless it is queued already."""
        line = Line(command=Say(text))
        if not (self._waiting and line in self._waiting[-1].lines):
            self._add([ScriptStep((line,))])

    def _add(self, steps: list[ScriptStep]) -> None:
        if self._waiting and not self._waiting[-1].has_calls:
            # An answer without calls is the last one, so it must answer this prompt too.
            steps = [ScriptStep(self._waiting.pop().lines + steps[0].lines), *steps[1:]]
        self._waiting += steps

    def answered(self, turn: AssistantTurn) -> None:
        """Record that a step was executed."""
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
        """Record the results of calls; a failed call ends the script."""
        self._results = results
        failed = tuple(each for each in results if each.is_error)
        if failed and not self._is_tolerant:
            self._failed, self._left = failed, len(self._waiting)
            self._waiting.clear()
            self._round = 1

    def next(self) -> Next:
        """The next answer after all that was replayed."""
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
