"""How recordings are read for kedge: differences turn what was recorded into what is expected."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.agent.trace_chances import without_chance
from tests.agent.trace_differences import expected
from tests.server.replay import Reading
from tests.server.replay_recordings import Act, Recording, Step

Lines = list[str]
_TURNS = ("/message", "/prompt_async", "/shell", "/command", "/init", "/abort", "/summarize")
"""The routes whose events are those of a turn, which are read as the agent's recordings are."""
SUBTASKS_COST = "session.updated subtasks"
"""What a session tells when a step of its subtask has cost something."""


def _as_recorded(step: Step) -> Step:
    return step


def _as_heard(lines: Lines, _: Act) -> Lines:
    return lines


@dataclass(frozen=True)
class Difference:
    """One thing that kedge does otherwise."""

    name: str
    answer: Callable[[Step], Step] = _as_recorded
    events: Callable[[Lines, Act], Lines] = _as_heard

    def changes(self, recording: Recording) -> bool:
        """Whether a recording shows it."""
        steps = [step for act in recording.acts for step in act.do]
        return any(self.answer(step) != step for step in steps) or any(
            self.events(list(act.events), act) != list(act.events) for act in recording.acts
        )


def reading(differences: Iterable[Difference]) -> Reading:
    """Recordings, read with these differences and with those that the events of a turn have."""
    known = tuple(differences)

    def exchange(step: Step) -> Step:
        for each in known:
            step = each.answer(step)
        return step

    def events(act: Act) -> Lines:
        caller, *subtask = (sessions_of(act.events) if is_turn(act) else []) or [""]
        lines = _told_of(caller, act.events)
        lines = expected(lines) if is_turn(act) else lines
        for each in known:
            lines = each.events(lines, act)
        if not subtask:
            return lines
        ends = next(at for at, line in enumerate(lines) if " tool task completed " in line)
        created, *turn = _told_of(subtask[0], act.events)
        block = _named(subtask[0], [created, *expected(turn)])
        return _with_block(_named(caller, lines), ends, block)

    return Reading(exchange=exchange, events=events, seen=in_order)


def sessions_of(lines: Iterable[str]) -> Lines:
    """How the lines of each session begin that a turn tells of; with one session, with nothing."""
    found = (re.match(r"\{S\d+\} ", line) for line in lines)
    return list(dict.fromkeys(each[0] if each else "" for each in found))


def in_order(lines: Lines) -> Lines:
    """What comes sooner or later by chance has its place only in turns. Beside a subtask, its
    caller tells only of the call: what the subtask tells comes behind that, as one block."""
    caller, *subtask = sessions_of(lines) or [""]
    if "message.updated A1 of U1" not in _told_of(caller, lines):
        return lines
    if not subtask:
        return without_chance(lines)
    first, *_, last = (at for at, line in enumerate(lines) if line.startswith(subtask[0]))
    beside = _told_of(caller, lines[first:last])
    if not all(" tool task running " in line or line == SUBTASKS_COST for line in beside):
        return lines
    before = without_chance(_told_of(caller, lines[:last]))
    after = without_chance(_told_of(caller, lines[last:]))
    block = without_chance(_told_of(subtask[0], lines))
    return _with_block(_named(caller, before + after), len(before), _named(subtask[0], block))


def _told_of(session: str, lines: Iterable[str]) -> Lines:
    return [line.removeprefix(session) for line in lines if line.startswith(session)]


def _named(session: str, lines: Lines) -> Lines:
    return [session + line for line in lines]


def _with_block(lines: Lines, at: int, block: Lines) -> Lines:
    return [*lines[:at], *block, *lines[at:]]


def is_turn(act: Act) -> bool:
    """Whether somebody prompted, ran a command or aborted in this act."""
    return any(asked(step).startswith("POST ") and asked(step).endswith(_TURNS) for step in act.do)


def asked(step: Step) -> str:
    """The request of a step; empty if it is none."""
    return str(step.get("drop", step).get("ask", ""))


def answered(step: Step, answer: Any, status: int = 200) -> Step:  # noqa: ANN401 - JSON
    """The step with another answer, and with the usual headers."""
    kept = {key: value for key, value in step.items() if key not in ("told", "also")}
    return {**kept, "status": status, "answer": answer}


def failed(step: Step, status: int, name: str, **data: Any) -> Step:  # noqa: ANN401 - JSON
    """The step with an error for its answer; how it is put is not compared."""
    return answered(step, {"name": name, "data": {"message": "{words}", **data}}, status)


def each_object(value: Any, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Any:  # noqa: ANN401 - JSON
    """The value with every object in it changed, the inner ones first."""
    if isinstance(value, dict):
        return change({key: each_object(inner, change) for key, inner in value.items()})
    if isinstance(value, list):
        return [each_object(inner, change) for inner in value]
    return value


def in_answers(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Callable[[Step], Step]:
    """A change of every object that an answer holds."""

    def answer(step: Step) -> Step:
        if "answer" not in step:
            return step
        return {**step, "answer": each_object(step["answer"], change)}

    return answer


def without(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The object without some of its keys."""
    return {key: inner for key, inner in value.items() if key not in keys}
