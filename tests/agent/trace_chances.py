"""What comes sooner or later by chance, in OpenCode as in kedge, put in a fixed place."""

import re
from collections.abc import Sequence
from itertools import groupby

Lines = list[str]


def without_chance(lines: Sequence[str]) -> Lines:
    """The lines with everything in a fixed place that comes sooner or later by chance."""
    for fix in (
        _title_at_once,
        _progress_left_out,
        _subtask_named_at_once,
        _running_first,
        _each_call_apart,
        _pieces_joined,
    ):
        lines = fix(list(lines))
    return list(lines)


def _title_at_once(lines: Lines) -> Lines:
    """The title is made beside the answer: here right behind the message that answers."""
    title = "session.updated title"
    if title not in lines:
        return lines
    rest = [line for line in lines if line != title]
    answer = rest.index("message.updated A1 of U1")
    return [*rest[: answer + 1], title, *rest[answer + 1 :]]


def _progress_left_out(lines: Lines) -> Lines:
    """How often the progress of a call is shown depends on how quick it is: here only that it
    runs."""
    kept: Lines = []
    seen = set()
    for line in lines:
        found = re.match(r"(part \S+ tool \S+ running)( \+metadata)?( input=\S*)", line)
        if found is None:
            kept.append(line)
        elif found[1] not in seen:
            seen.add(found[1])
            kept.append(found[1] + found[3])
    return kept


def _subtask_named_at_once(lines: Lines) -> Lines:
    """A call of `task` is told to run, and again with its session: here with its session alone."""
    named = {line.partition(" +metadata ")[0] for line in lines if " tool task running +" in line}
    return [line for line in lines if line.partition(" input=")[0] not in named]


def _pieces_joined(lines: Lines) -> Lines:
    """Pieces of one text, between which nothing else is told any more, are one line."""
    return [line for line, _ in groupby(lines)]


def _running_first(lines: Lines) -> Lines:
    """OpenCode stores that a call runs while it runs: here before everything that it does."""
    done = list(lines)
    for at, line in enumerate(lines):
        before = lines[at - 1] if at else ""
        if " running " in line and before.startswith(("permission.", "question.", "todo.")):
            done[at - 1], done[at] = line, before
    return done


def _each_call_apart(lines: Lines) -> Lines:
    """Calls of one step run at the same time: here one behind the other."""
    calls = [_call_of(line, lines) for line in lines]
    sorted_lines: Lines = []
    for is_call, group in groupby(zip(calls, lines, strict=True), key=lambda pair: bool(pair[0])):
        pairs = list(group)
        if is_call:
            pairs.sort(key=lambda pair: pair[0])
        sorted_lines += [line for _, line in pairs]
    return sorted_lines


def _call_of(line: str, lines: Lines) -> str:
    """The part that a line about a tool call belongs to."""
    if found := re.match(r"part (\S+) tool ", line):
        return found[1]
    if found := re.match(r"(?:permission|question)\.asked \S+ for (\S+)", line):
        return found[1]
    if found := re.match(r"(?:permission|question)\.\S+ (#\d+)", line):
        asked = (each for each in lines if re.match(rf"\S+\.asked {found[1]} ", each))
        return _call_of(next(asked), lines)
    if found := re.match(r"file\.edited (\S+)", line):
        ended = (each for each in lines if each.endswith(f" title={found[1]}"))
        return _call_of(next(ended, ""), lines)
    return ""
