"""The commands of the language: how each is written, and how it is read."""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

from kedge.model.offline import commands as c
from kedge.model.offline.arguments import Arguments, duration, number, size
from kedge.model.offline.faults import FAULTS
from kedge.model.offline.scanning import BLANKS, Unreadable, shown

CALLS = get_args(c.Calling)
SPEECH = get_args(c.Speaking)
REASONS = ("stop", "length", "content-filter", "other")
MARKS = MappingProxyType({" ": "pending", "x": "completed", "~": "in_progress", "-": "cancelled"})
PRIORITIES = ("high", "medium", "low")


def _write(given: Arguments) -> c.Write:
    return c.Write(given.file(), given.text(ends_line=True))


def _edit(given: Arguments) -> c.Edit:
    file, old, new = given.file(), given.word().text, given.word().text
    everywhere = given.word_if_any()
    if everywhere not in (None, "all"):
        raise given.misused()
    return c.Edit(file, old, new, all=everywhere is not None)


def _read(given: Arguments) -> c.Read:
    file, offset, limit = given.file(), given.word_if_any(), given.word_if_any()
    return c.Read(
        file,
        None if offset is None else number(offset, "the first line"),
        None if limit is None else number(limit, "how many lines"),
    )


def _grep(given: Arguments) -> c.Grep:
    return c.Grep(given.word().text, given.word_if_any(), given.word_if_any())


def _todo(given: Arguments) -> c.Todo:
    return c.Todo(tuple(_todo_item(item) for item in given.items()))


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


def _call(given: Arguments) -> c.Call:
    name = given.word().text
    if not name:
        raise given.misused()
    return c.Call(name) if given.is_empty else c.Call(name, given.text())


def _finish(given: Arguments) -> c.Finish:
    return c.Finish(_one_of(given.word().text, REASONS))


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
        raise Unreadable(f"{shown(word)} is none of {names}")
    return word


@dataclass(frozen=True, slots=True)
class Verb:
    """How a command is written, what it is for, and how it is read."""

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
        "patch": Verb("patch <<END", "apply a patch", lambda given: c.Patch(given.text())),
        "todo": Verb("todo [x] ITEM | [~] ITEM | ITEM !high", "set the todo list", _todo),
        "ask": Verb("ask QUESTION | ANSWER | ANSWER", "ask you, for one answer", _ask),
        "choose": Verb(
            "choose QUESTION | ANSWER | ANSWER",
            "ask you, for any number of answers",
            lambda given: _ask(given, multiple=True),
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
