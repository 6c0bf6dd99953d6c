"""Reading a prompt as a script for the offline model; what the commands do is elsewhere."""

import difflib
import re
from dataclasses import dataclass, replace

from kedge.model.offline.arguments import Arguments, duration, number
from kedge.model.offline.commands import Help, Line, Pace, Show
from kedge.model.offline.scanning import Scanner, Unclosed, Unreadable, shown, split_word
from kedge.model.offline.verbs import CALLS, SPEECH, VERBS

MOST_LINES = 2_000
MOST_PROBLEMS = 5
MOST_PIECES = 100_000
PREFIXES = ("and", "try", "repeat", "slow")

# Chat may begin with a word of the language ("help me", "try again"): what begins the first line
# has to look like a command, or the prompt is none of ours.
_BEGINNING = re.compile(
    r"(?:(?:try|repeat[ \t]++\S++|slow[ \t]++\S++[ \t]++\S++)[ \t]++)*+"
    rf"(?:(?:help|show)\Z|(?:{'|'.join(VERBS.keys() - {'help', 'show'})})(?=[ \t]|\Z))"
)

_QUOTES_INSIDE = re.compile(r'(?<!\\)"')


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that could not be read, and why."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Script:
    """What a prompt asks for; nothing of it is done if there are problems."""

    lines: tuple[Line, ...] = ()
    problems: tuple[Problem, ...] = ()


def parse(prompt: str) -> Script | None:
    """The script that a prompt is, or None if it is not meant as one."""
    prompt = unquoted(prompt)
    first = Scanner(prompt).line()
    if first is None or not _BEGINNING.match(first):
        return None
    scanner = Scanner(prompt)
    lines: list[Line] = []
    problems: list[Problem] = []
    while len(problems) < MOST_PROBLEMS and (text := scanner.line()) is not None:
        try:
            if len(lines) == MOST_LINES:
                raise Unclosed(f"a script has at most {MOST_LINES} commands")
            lines.append(_line(text, scanner, lines))
        except Unreadable as error:
            problems.append(Problem(scanner.number, str(error)))
            if isinstance(error, Unclosed):
                break
    return Script(problems=tuple(problems)) if problems else Script(lines=tuple(lines))


def unquoted(prompt: str) -> str:
    """A prompt without the quotes that `opencode run` puts around a message with blanks."""
    text = prompt.strip()
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return prompt
    inner = text[1:-1]
    return inner.replace('\\"', '"') if _QUOTES_INSIDE.search(inner) is None else prompt


def near_command(prompt: str) -> str | None:
    """The command that the first word of a prompt was probably meant to be."""
    first, _ = split_word((Scanner(prompt).line() or "")[:40])
    found = difflib.get_close_matches(first, [*VERBS, *PREFIXES], n=1, cutoff=0.75)
    return found[0] if found and found[0] != first else None


def _line(text: str, scanner: Scanner, before: list[Line]) -> Line:
    how, text = _prefixes(text)
    name, rest = split_word(text)
    if name not in VERBS:
        raise Unreadable(_unknown(name))
    given = Arguments(VERBS[name].usage, rest, scanner)
    line = replace(how, command=VERBS[name].read(given))
    given.done()
    _check(line, before)
    return line


def _prefixes(text: str) -> tuple[Line, str]:
    """How the command is to be done, and the command."""
    line = Line(command=Help())
    seen: set[str] = set()
    while True:
        word, rest = split_word(text)
        if word not in PREFIXES:
            return line, text
        if word in seen:
            raise Unreadable(f"`{word}` stands here twice")
        seen.add(word)
        line, text = _prefix(word, rest, line)


def _prefix(word: str, rest: str, line: Line) -> tuple[Line, str]:
    if word == "and":
        return replace(line, joined=True), rest
    if word == "try":
        return replace(line, tolerant=True), rest
    if word == "repeat":
        given, rest = split_word(rest)
        times = None if given == "forever" else number(given, "how often, or `forever`")
        return replace(line, times=times), rest
    pieces, rest = split_word(rest)
    pause, rest = split_word(rest)
    pace = Pace(
        pieces=number(pieces, "the number of pieces", MOST_PIECES), milliseconds=duration(pause)
    )
    return replace(line, pace=pace), rest


def _unknown(name: str) -> str:
    if not name:
        return "a command is missing here"
    near = near_command(name)
    hint = f"perhaps `{near}` is meant" if near else "say `help` for those there are"
    return f"{shown(name)} is no command; {hint}"


def _check(line: Line, before: list[Line]) -> None:
    """Refuse what would be a surprise: prefixes that mean nothing for the command."""
    is_call = isinstance(line.command, CALLS)
    if not is_call and (line.tolerant or line.times != 1):
        raise Unreadable("`try` and `repeat` are for calls of tools alone")
    if line.pace and not (is_call or isinstance(line.command, SPEECH)):
        raise Unreadable("`slow` is for texts and calls of tools alone")
    if isinstance(line.command, Show) and not any(isinstance(x.command, CALLS) for x in before):
        raise Unreadable("there is no call before this line whose result `show` could say")
    # A first line never begins with `and`; where there is none before, that one has a problem.
    if line.joined and (line.times != 1 or any(x.times != 1 for x in before[-1:])):
        raise Unreadable("what is repeated has steps of its own: `and` cannot join it")
