"""Parses a prompt as a script for the offline model.

Parsing takes linear time for any text.
"""

import difflib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import get_args

from kedge.domain.text import mend_text
from kedge.model.offline import commands as c
from kedge.model.offline.commands import FAULTS, Help, Line, Pace, Show

BLANKS = " \t\r"
MARKER = re.compile(r"<<([A-Za-z_][A-Za-z0-9_]*+)\Z")
_SKIPPED = re.compile(r"(?:[ \t\r]*+(?:#[^\n]*+)?\n)*+")
_BARE = re.compile(r"[^ \t\r]++")
_WORD = re.compile(r'"(?:[^"\\]++|\\.)*+"(?![^ \t\r])|[^ \t\r]++', re.DOTALL)


class ScriptError(Exception):
    """A line is not valid in the language."""


class Unclosed(ScriptError):
    """A block has no end, so its content cannot be separated from what follows."""


@dataclass(frozen=True, slots=True)
class Word:
    """One argument; a bare one was written without quotes."""

    text: str
    is_bare: bool = True


class Scanner:
    """Reads a script line by line, and the blocks that lines announce."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._begun = 0
        self._counted_to = 0
        self._passed = 0

    def line(self) -> str | None:
        """The next line that is neither empty nor a comment, without blanks around it."""
        if skipped := _SKIPPED.match(self._text, self._at):
            self._at = skipped.end()
        self._begun = self._at
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        line = self._text[self._at : end].strip(BLANKS)
        self._at = min(end + 1, len(self._text))
        return line if line and not line.startswith("#") else None

    @property
    def number(self) -> int:
        """The number of the last line that was read, from 1."""
        self._passed += self._text.count("\n", self._counted_to, self._begun)
        self._counted_to = self._begun
        return self._passed + 1

    def block(self, marker: str) -> str:
        """The text up to a line with only the marker; each of its lines ends with \\n."""
        end = re.compile(rf"^{re.escape(marker)}[ \t\r]*+$", re.MULTILINE).search(
            self._text, self._at
        )
        if end is None or (self._at and self._text[self._at - 1] != "\n"):
            raise Unclosed(
                f"the block `<<{marker}` has no end; close it with a line that is just `{marker}`"
            )
        content = self._text[self._at : end.start()]
        self._at = min(end.end() + 1, len(self._text))
        return content


def split_word(line: str) -> tuple[str, str]:
    """The first word of a line as written, and the rest of the line."""
    match = _BARE.match(line)
    end = match.end() if match else 0
    return line[:end], line[end:].strip(BLANKS)


def unquoted(text: str) -> str | None:
    """The content of a text in double quotes; None if it is not one."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return None
    try:
        found = json.loads(text, strict=False)
    except ValueError:
        return None
    return mend_text(found)


def take_word(line: str) -> tuple[Word | None, str]:
    """The first argument of a line, which may be quoted, and the rest of the line."""
    match = _WORD.match(line)
    return (_word(match[0]), line[match.end() :].strip(BLANKS)) if match else (None, line)


def _word(text: str) -> Word:
    if not text.startswith('"'):
        return Word(text)
    plain = unquoted(text)
    if plain is None:
        raise ScriptError(
            f"{shown(text)} begins with a quote but is not a quoted text; close it, "
            'and write \\" for a quote inside'
        )
    return Word(plain, is_bare=False)


def shown(text: str) -> str:
    """A text as messages quote it: short and on one line."""
    line = " ".join(text[:60].split())
    return f"`{line}…`" if len(text) > 60 else f"`{line}`"


MOST_ITEMS = 500
MOST_CHARACTERS = 64_000_000
MOST_SECONDS = 3_600
_NUMBER = re.compile(r"[0-9]{1,9}")
_DURATION = re.compile(r"([0-9]{1,7})(?:\.([0-9]{1,3}))?(ms|s)")
_SIZE = re.compile(r"([0-9]{1,9})(KB|MB)?")


class Arguments:
    """The rest of a line, read argument by argument."""

    def __init__(self, usage: str, rest: str, scanner: Scanner) -> None:
        self._usage = usage
        self._rest = rest
        self._scanner = scanner

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not self._rest

    def misused(self) -> ScriptError:
        """The error that shows how to write the command."""
        return ScriptError(f"write it as `{self._usage}`")

    def text(self, *, ends_line: bool = False) -> str:
        """The rest of the line, a quoted text, or a block.

        The line or block for a file's content ends with a newline; a quoted text is exact.
        """
        if not (rest := self._taken()):
            raise self.misused()
        if (exact := unquoted(rest)) is not None:
            return exact
        if marker := MARKER.match(rest):
            content = self._scanner.block(marker[1])
            return content if ends_line else content.removesuffix("\n")
        return f"{rest}\n" if ends_line else rest

    def word(self) -> Word:
        """The next argument; `<<MARK` stands for the next block."""
        word, self._rest = take_word(self._rest)
        if word is None:
            raise self.misused()
        if word.is_bare and (marker := MARKER.match(word.text)):
            return Word(self._scanner.block(marker[1]).removesuffix("\n"), is_bare=False)
        return word

    def flag(self, name: str) -> bool:
        """Whether the next argument is this bare word, which is then taken."""
        word, rest = split_word(self._rest)
        if word != name or not rest:
            return False
        self._rest = rest
        return True

    def word_if_any(self) -> str | None:
        """The text of the next argument, if there is one."""
        return self.word().text if self._rest else None

    def file(self) -> str:
        """The next argument, which must be a file name and not a word of plain English."""
        word = self.word()
        if word.is_bare and not ("." in word.text or "/" in word.text):
            raise ScriptError(
                f"{shown(word.text)} does not look like a file; if it is one, write "
                f"{shown(f'./{word.text}')}. The command is `{self._usage}`"
            )
        if not word.text or "\n" in word.text:
            raise ScriptError("the name of a file is one line, and not empty")
        return word.text

    def items(self) -> list[str]:
        """A list: separated by `|`, or one item on each line of a block."""
        rest = self._taken()
        marker = MARKER.match(rest)
        text, between = (self._scanner.block(marker[1]), "\n") if marker else (rest, "|")
        parts = text.removesuffix("\n").split(between, MOST_ITEMS)
        if len(parts) > MOST_ITEMS:
            raise ScriptError(f"a list has at most {MOST_ITEMS} items")
        return [item for part in parts if (item := part.strip(BLANKS))]

    def _taken(self) -> str:
        rest, self._rest = self._rest, ""
        return rest

    def done(self) -> None:
        """Refuse further arguments."""
        if self._rest:
            raise self.misused()


def number(text: str | None, what: str, most: int = 999_999_999) -> int:
    """A whole number from 1."""
    if not text or not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise ScriptError(f"{shown(text or '')} is not {what}: a number from 1 to {most}")
    return int(text)


def duration(text: str | None) -> int:
    """Milliseconds, from a text like 250ms or 1.5s."""
    match = _DURATION.fullmatch(text or "")
    if match is None or (match[3] == "ms" and match[2]):
        raise ScriptError(f"{shown(text or '')} is not a duration; write it like `250ms` or `1.5s`")
    found = int(match[1])
    if match[3] == "s":
        found = found * 1000 + int((match[2] or "0").ljust(3, "0"))
    if found > MOST_SECONDS * 1000:
        raise ScriptError(f"{shown(text or '')} is too long; at most `{MOST_SECONDS}s`")
    return found


def size(text: str | None) -> int:
    """A number of characters, from a text like 500, 64KB or 5MB."""
    match = _SIZE.fullmatch(text or "")
    if match is None:
        raise ScriptError(
            f"{shown(text or '')} is not a size; write it like `500`, `64KB` or `5MB`"
        )
    found = int(match[1]) * {None: 1, "KB": 1_000, "MB": 1_000_000}[match[2]]
    if found > MOST_CHARACTERS:
        raise ScriptError(f"{shown(text or '')} is too large; at most `{MOST_CHARACTERS}`")
    return found


CALLS = get_args(c.Calling)
SPEECH = get_args(c.Speaking)
REASONS = ("stop", "length", "content-filter", "other")
MARKS = MappingProxyType({" ": "pending", "x": "completed", "~": "in_progress", "-": "cancelled"})
PRIORITIES = ("high", "medium", "low")


def _write(given: Arguments) -> c.Write:
    return c.Write(given.file(), given.text(ends_line=True))


def _edit(given: Arguments) -> c.EditFile:
    file, old, new = given.file(), given.word().text, given.word().text
    everywhere = given.word_if_any()
    if everywhere not in (None, "all"):
        raise given.misused()
    return c.EditFile(file, old, new, all=everywhere is not None)


def _read(given: Arguments) -> c.Read:
    file, offset, limit = given.file(), given.word_if_any(), given.word_if_any()
    return c.Read(
        file,
        None if offset is None else number(offset, "the first line"),
        None if limit is None else number(limit, "how many lines"),
    )


def _grep(given: Arguments) -> c.Grep:
    return c.Grep(given.word().text, given.word_if_any(), given.word_if_any())


def _todo(given: Arguments) -> c.WriteTodos:
    return c.WriteTodos(tuple(_todo_item(item) for item in given.items()))


def _todo_item(item: str) -> c.TodoItem:
    status, priority = "pending", "medium"
    if item[0] == "[" and item[2:4] == "] " and item[1] in MARKS:
        status, item = MARKS[item[1]], item[4:].strip(BLANKS)
    rest, _, last = item.rpartition(" ")
    if last[1:] in PRIORITIES and last[0] == "!" and rest.strip(BLANKS):
        priority, item = last[1:], rest.strip(BLANKS)
    return c.TodoItem(item, status, priority)


def _ask(given: Arguments, *, multiple: bool = False) -> c.Ask:
    question, *options = given.items() or [""]
    if not options:
        raise given.misused()
    return c.Ask(question, tuple(_option(each) for each in options), multiple=multiple)


def _option(item: str) -> c.Option:
    label, _, description = (part.strip(BLANKS) for part in item.partition(": "))
    return c.Option(label, description) if label and description else c.Option(item)


def _task(given: Arguments) -> c.Task:
    agent = given.word().text
    if not agent:
        raise given.misused()
    again = given.flag("again")
    background = given.flag("background")
    return c.Task(agent, given.text(), again=again, background=background)


def _call(given: Arguments) -> c.CallTool:
    name = given.word().text
    if not name:
        raise given.misused()
    return c.CallTool(name) if given.is_empty else c.CallTool(name, given.text())


def _finish(given: Arguments) -> c.FinishWith:
    return c.FinishWith(_one_of(given.word().text, REASONS))


def _fail(given: Arguments) -> c.Fail:
    kind = _one_of(given.word().text, FAULTS)
    times = after = None
    word = given.word_if_any()
    if word not in (None, "after"):
        times, word = number(word, "how often it fails"), given.word_if_any()
    if word == "after":
        after, word = duration(given.word_if_any()), None
    if word is not None:
        raise given.misused()
    return c.Fail(kind, times, after)


def _one_of(word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        names = ", ".join(f"`{each}`" for each in known)
        raise ScriptError(f"{shown(word)} is none of {names}")
    return word


@dataclass(frozen=True, slots=True)
class Verb:
    """The usage of a command, its description, and the function that reads it."""

    usage: str
    meaning: str
    read: Callable[[Arguments], c.Command]


VERBS = MappingProxyType(
    {
        "write": Verb("write FILE TEXT", "write a file", _write),
        "edit": Verb("edit FILE OLD NEW [all]", "replace a text in a file", _edit),
        "delete": Verb("delete FILE", "delete a file", lambda given: c.Delete(given.file())),
        "read": Verb("read FILE [FIRST-LINE [LINES]]", "read a file or a folder", _read),
        "bash": Verb("bash COMMAND", "run a command", lambda given: c.Bash(given.text())),
        "glob": Verb(
            "glob PATTERN [FOLDER]",
            "find files by name",
            lambda given: c.Glob(given.word().text, given.word_if_any()),
        ),
        "grep": Verb("grep PATTERN [FOLDER [FILES]]", "find text in files", _grep),
        "skill": Verb("skill NAME", "read a skill", lambda given: c.ReadSkill(given.word().text)),
        "patch": Verb("patch <<END", "apply a patch", lambda given: c.ApplyPatch(given.text())),
        "todo": Verb("todo [x] ITEM | [~] ITEM | ITEM !high", "set the todo list", _todo),
        "ask": Verb("ask QUESTION | ANSWER | ANSWER", "ask you, for one answer", _ask),
        "choose": Verb(
            "choose QUESTION | ANSWER | ANSWER",
            "ask you, for any number of answers",
            lambda given: _ask(given, multiple=True),
        ),
        "webfetch": Verb(
            "webfetch URL [FORMAT]",
            "read a page of the web",
            lambda given: c.Fetch(given.word().text, given.word_if_any()),
        ),
        "task": Verb("task AGENT [again] [background] TEXT", "give another agent commands", _task),
        "plan_exit": Verb(
            "plan_exit", "ask whether the plan is to be carried out", lambda _: c.PlanExit()
        ),
        "structured": Verb(
            "structured [JSON]",
            "give the structured answer that the prompt wants",
            lambda given: c.Structured(None if given.is_empty else given.text()),
        ),
        "call": Verb("call TOOL [JSON]", "call any tool with anything", _call),
        "say": Verb("say TEXT", "say it", lambda given: c.Say(given.text())),
        "think": Verb("think TEXT", "think it", lambda given: c.Think(given.text())),
        "show": Verb("show", "say what the last calls gave back", lambda _: c.Show()),
        "huge": Verb("huge SIZE", "say very much", lambda given: c.Huge(size(given.word_if_any()))),
        "wait": Verb(
            "wait TIME",
            "do nothing for a while",
            lambda given: c.Wait(duration(given.word_if_any())),
        ),
        "finish": Verb("finish REASON", "stop for this reason", _finish),
        "fail": Verb("fail KIND [TIMES] [after TIME]", "fail as real models do", _fail),
        "help": Verb("help", "say all this", lambda _: c.Help()),
    }
)


MOST_LINES = 2_000
MOST_PROBLEMS = 5
MOST_PIECES = 100_000
PREFIXES = ("and", "try", "repeat", "slow")

# Chat may begin with a word of the language ("help me", "try again"): only if the first line
# starts like a command is the prompt a script.
_BEGINNING = re.compile(
    r"(?:(?:try|repeat[ \t]++\S++|slow[ \t]++\S++[ \t]++\S++)[ \t]++)*+"
    rf"(?:(?:help|show)\Z|(?:{'|'.join(VERBS.keys() - {'help', 'show'})})(?=[ \t]|\Z))"
)

_QUOTES_INSIDE = re.compile(r'(?<!\\)"')


@dataclass(frozen=True, slots=True)
class Problem:
    """A line that could not be read, and the reason."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Script:
    """The commands of a prompt; none is executed if there are problems."""

    lines: tuple[Line, ...] = ()
    problems: tuple[Problem, ...] = ()


def parse(prompt: str) -> Script | None:
    """The script in a prompt, or None if the prompt is not meant as one."""
    prompt = unquoted_prompt(prompt)
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
        except ScriptError as error:
            problems.append(Problem(scanner.number, str(error)))
            if isinstance(error, Unclosed):
                break
    return Script(problems=tuple(problems)) if problems else Script(lines=tuple(lines))


def unquoted_prompt(prompt: str) -> str:
    """A prompt without the quotes that `opencode run` puts around a message with blanks."""
    text = prompt.strip()
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return prompt
    inner = text[1:-1]
    return inner.replace('\\"', '"') if _QUOTES_INSIDE.search(inner) is None else prompt


def near_command(prompt: str) -> str | None:
    """The command that the first word of a prompt is probably a misspelling of."""
    first, _ = split_word((Scanner(prompt).line() or "")[:40])
    found = difflib.get_close_matches(first, [*VERBS, *PREFIXES], n=1, cutoff=0.75)
    return found[0] if found and found[0] != first else None


def _line(text: str, scanner: Scanner, before: list[Line]) -> Line:
    how, text = _prefixes(text)
    name, rest = split_word(text)
    if name not in VERBS:
        raise ScriptError(_unknown(name))
    given = Arguments(VERBS[name].usage, rest, scanner)
    line = replace(how, command=VERBS[name].read(given))
    given.done()
    _check(line, before)
    return line


def _prefixes(text: str) -> tuple[Line, str]:
    """The line with its prefixes, and the text of its command."""
    line = Line(command=Help())
    seen: set[str] = set()
    while True:
        word, rest = split_word(text)
        if word not in PREFIXES:
            return line, text
        if word in seen:
            raise ScriptError(f"`{word}` stands here twice")
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
    return f"{shown(name)} is not a command; {hint}"


def _check(line: Line, before: list[Line]) -> None:
    """Refuse prefixes that have no meaning for the command, which would surprise the user."""
    is_call = isinstance(line.command, CALLS)
    if not is_call and (line.tolerant or line.times != 1):
        raise ScriptError("`try` and `repeat` are for calls of tools alone")
    if line.pace and not (is_call or isinstance(line.command, SPEECH)):
        raise ScriptError("`slow` is for texts and calls of tools alone")
    if isinstance(line.command, Show) and not any(isinstance(x.command, CALLS) for x in before):
        raise ScriptError("there is no call before this line whose result `show` could say")
    # The first line never begins with `and`; if no line is before, that line had a problem.
    if line.joined and (line.times != 1 or any(x.times != 1 for x in before[-1:])):
        raise ScriptError("what is repeated has steps of its own: `and` cannot join it")
