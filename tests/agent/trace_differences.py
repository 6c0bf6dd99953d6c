"""What is different from OpenCode on purpose.

Each difference turns recorded lines into those that a client of kedge sees. `docs/opencode.md` has
the same names with their reasons; a test compares the two lists.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tests.agent.trace_chances import without_chance

Lines = list[str]
_BUSY = "session.status busy"
_IDLE = ["session.status idle", "session.idle"]
_RETRY = "session.status retry attempt message next"
_ABORTED = "MessageAbortedError Aborted"
_WITH_EXIT = r"bash completed \1 metadata=exit,output exit=0 title="


@dataclass(frozen=True)
class Difference:
    """One thing that kedge does otherwise."""

    name: str
    rewrite: Callable[[Lines], Lines]


def expected(recorded: Sequence[str]) -> Lines:
    """What a client of kedge sees where one of OpenCode saw this."""
    lines = list(recorded)
    for each in DIFFERENCES:
        lines = each.rewrite(lines)
    return without_chance(lines)


def _with_next(lines: Lines) -> Iterable[tuple[str, str]]:
    return zip_longest(lines, lines[1:], fillvalue="")


def _no_watcher(lines: Lines) -> Lines:
    return [line for line in lines if not line.startswith("file.watcher.")]


def _busy_once(lines: Lines) -> Lines:
    """Not before the next message, and not before idle."""
    return [
        line
        for line, after in _with_next(lines)
        if not (line == _BUSY and (after == _IDLE[0] or re.match(r"message.updated A[^1]", after)))
    ]


def _idle_once(lines: Lines) -> Lines:
    """Of several pairs only the last."""
    pairs = [at for at, line in enumerate(lines) if line == _IDLE[0]]
    gone = {at + step for at in pairs[:-1] for step in (0, 1)}
    return [line for at, line in enumerate(lines) if at not in gone]


def _true_summaries(lines: Lines) -> Lines:
    """No empty diffs; what a step cost is told with it, what it changed with its patch, and what a
    turn changed before it is over."""
    kept = [
        line
        for line, after in _with_next(lines)
        if not line.startswith("session.diff ")
        and not after.startswith("session.diff ")
        and " +summary" not in line
    ]
    diffs = [found[1] for line in lines if (found := re.search(r" \+summary diffs=(.+)", line))]
    done: Lines = []
    for line in kept:
        if line == _IDLE[0] and diffs and diffs[-1] != "0":
            done.append(f"message.updated U1 +summary diffs={diffs[-1]}")
        done.append(line)
        if " step-finish " in line and "-tokens.total" not in line:
            done.append("session.updated cost")
        if re.match(r"part \S+ patch ", line):
            done.append("session.updated summary")
    return done


def _one_session_update(lines: Lines) -> Lines:
    """The prompt's agent and model are told with the time of the prompt."""
    if len(lines) < 2 or not (lines[0].startswith("session.updated ") and "touched" in lines[0]):
        return lines
    at = lines.index("session.updated touched")
    return [*lines[1:at], lines[0], *lines[at + 1 :]]


def _tools_of_one_prompt(lines: Lines) -> Lines:
    return [line for line in lines if line != "session.updated permission touched"]


def _nothing_begins_for_unknown_models(lines: Lines) -> Lines:
    """A prompt that fails before its model was asked has asked for one that is not there."""
    is_asked = any(line.startswith("message.updated A") for line in lines)
    error = "session.error UnknownError message"
    return [error] if error in lines and _BUSY in lines and not is_asked else lines


def _missing_file_in_one_text(lines: Lines) -> Lines:
    if not lines or lines[0] != "session.error UnknownError message" or len(lines) == 1:
        return lines
    return [line for line in lines if not line.startswith("part U1.3 ")]


def _step_start_first(lines: Lines) -> Lines:
    """Before the model is asked, and once for each message."""
    done = [line for line in lines if " step-start " not in line]
    for at in range(len(done) - 1, -1, -1):
        if found := re.fullmatch(r"message.updated (A\d+) of U\d+( \+variant)?", done[at]):
            start = f"part {found[1]}.1 step-start"
            known = [line for line in lines if line.startswith(start)]
            done.insert(done.index(_BUSY, at) + 1, known[0] if known else f"{start} S1")
    return done


def _half_words_unsaid(lines: Lines) -> Lines:
    """What a broken stream said is ended, and taken back before the next try."""
    done: Lines = []
    for line in lines:
        if line == _RETRY and (found := re.match(r"delta (\S+) ", done[-1])):
            done.append(f"part {found[1]} text +time.end +time.start text=whole")
            done += [line, f"message.part.removed {found[1]}"]
        else:
            done.append(line)
    # The second step-start was number three; whatever came after it is one earlier.
    gone = len(done) != len(lines)
    return [_one_earlier(line) for line in done] if gone else done


def _one_earlier(line: str) -> str:
    return re.sub(r"A1\.([4-9])", lambda found: f"A1.{int(found[1]) - 1}", line)


def _text_ends_first(lines: Lines) -> Lines:
    """Text that a call follows has ended before the call begins."""
    done = list(lines)
    for line in lines:
        found = re.match(r"part (\S+) text \+time.end", line)
        delta = f"delta {found[1]} text" if found else ""
        if delta in done:
            done.remove(line)
            last = max(at for at, each in enumerate(done) if each == delta)
            done.insert(last + 1, line)
    return done


def _bad_calls_are_errors(lines: Lines) -> Lines:
    done: Lines = []
    for line in lines:
        if found := re.match(r"part (\S+) tool invalid (running|completed)", line):
            called = next(each for each in lines if each.startswith(f"part {found[1]} tool "))
            call = called.partition(" pending ")[0]
            ended = f"{call} error input= error=told"
            done.append(f"{call} running input=" if found[2] == "running" else ended)
        else:
            done.append(line)
    return done


def _abort_while_retrying(lines: Lines) -> Lines:
    done: Lines = []
    for line in lines:
        if done and done[-1] == _RETRY and line.endswith(" +time.completed"):
            closed = line.replace("+time", "+error +time")
            done += [f"session.error {_ABORTED}", f"{closed} error={_ABORTED}"]
        else:
            done.append(line)
    return done


def _parts_end_first(lines: Lines) -> Lines:
    """What was open at an abort is closed before anything tells that it is over."""
    error = f"session.error {_ABORTED}"
    if error not in lines:
        return lines
    rest = [line for line in lines if line != error]
    closed = next(at for at, line in enumerate(rest) if line.endswith(f"error={_ABORTED}"))
    return [*rest[:closed], error, *rest[closed:]]


def _aborted_command_is_an_error(lines: Lines) -> Lines:
    return [
        re.sub(
            r"bash completed (input=\S+) .* exit=null .*",
            r"bash error +metadata \1 metadata=interrupted,output interrupted=true"
            " error=Tool execution aborted",
            line,
        )
        for line in lines
    ]


def _own_command_tells_its_exit(lines: Lines) -> Lines:
    return [
        re.sub(r"bash completed (.*) metadata=output title=$", _WITH_EXIT, line) for line in lines
    ]


def _asks_withdrawn(lines: Lines) -> Lines:
    """An ask that nobody has answered is ended with its turn."""
    done = list(lines)
    for line in lines:
        found = re.match(r"permission.asked (\S+) ", line)
        if found and not any(each.startswith(f"permission.replied {found[1]} ") for each in lines):
            done.insert(done.index(line) + 1, f"permission.replied {found[1]} reject")
    return done


def _own_command_is_a_step(lines: Lines) -> Lines:
    """A person's command: a prompt and one step, with snapshots around the call."""
    if lines[:2] != [_BUSY, "message.updated U1"]:
        return lines
    called = [line.replace("A1.1", "A1.2") for line in lines if line.startswith("part A1.1 ")]
    answer = "message.updated A1 of U1"
    return [
        *lines[1:3],
        "session.updated touched",
        *(_BUSY, answer, _BUSY, "part A1.1 step-start S1"),
        *("part A1.2 tool bash pending input=", *called),
        *("part A1.3 step-finish -tokens.total stop S1",),
        *(f"{answer} +finish finish=stop", f"{answer} +finish +time.completed finish=stop"),
        *_IDLE,
    ]


def _more_metadata(lines: Lines) -> Lines:
    """Thoughts carry what their provider wants to have back."""
    return [re.sub(r"(reasoning) (\+time.end)", r"\1 +metadata \2", line) for line in lines]


def _text_of_a_read_once(lines: Lines) -> Lines:
    return [line.replace("metadata=display,loaded,", "metadata=loaded,") for line in lines]


def _empty_answers_fail(lines: Lines) -> Lines:
    """A step in which nothing was said is tried twice more, and then an error; what each try took
    is told."""
    spent = [
        [
            f"part A1.{number} step-finish error S1",
            "session.updated cost",
            "message.updated A1 of U1 +tokens.total",
        ]
        for number in (2, 3, 4)
    ]
    error = "APIError isRetryable,message"
    for at, (line, after) in enumerate(_with_next(lines)):
        if " step-start " in line and " step-finish stop" in after:
            return [
                *lines[: at + 1],
                *(*spent[0], _RETRY, _BUSY),
                *(*spent[1], _RETRY, _BUSY),
                *spent[2],
                f"session.error {error}",
                f"message.updated A1 of U1 +error +time.completed +tokens.total error={error}",
                *lines[lines.index(_IDLE[0]) :],
            ]
    return lines


DIFFERENCES = (
    Difference("no file watcher", _no_watcher),
    Difference("own command tells its exit", _own_command_tells_its_exit),
    Difference("own command is a step", _own_command_is_a_step),
    Difference("busy once", _busy_once),
    Difference("idle once", _idle_once),
    Difference("true summaries", _true_summaries),
    Difference("one session update", _one_session_update),
    Difference("tools of one prompt", _tools_of_one_prompt),
    Difference("unknown models", _nothing_begins_for_unknown_models),
    Difference("missing file in one text", _missing_file_in_one_text),
    Difference("half words unsaid", _half_words_unsaid),
    Difference("step-start first", _step_start_first),
    Difference("text ends first", _text_ends_first),
    Difference("bad calls are errors", _bad_calls_are_errors),
    Difference("abort while retrying", _abort_while_retrying),
    Difference("aborted command is an error", _aborted_command_is_an_error),
    Difference("asks withdrawn", _asks_withdrawn),
    Difference("parts end first", _parts_end_first),
    Difference("thoughts with metadata", _more_metadata),
    Difference("text of a read once", _text_of_a_read_once),
    Difference("empty answers fail", _empty_answers_fail),
)
