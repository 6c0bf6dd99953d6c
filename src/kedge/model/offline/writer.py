"""Writes a script as text that the parser reads as the same script."""

import json
from collections.abc import Iterable

from kedge.model.offline import commands as c
from kedge.model.offline.parser import BLANKS, MARKER, MARKS, PRIORITIES

_MARK_OF = {status: mark for mark, status in MARKS.items()}


def written(*lines: c.Line | c.Command) -> str:
    """A prompt that makes the offline model execute these commands; texts may contain anything."""
    return "".join(
        f"{_prefixes(each)}{_command(each.command)}\n"
        if isinstance(each, c.Line)
        else f"{_command(each)}\n"
        for each in lines
    )


def _prefixes(line: c.Line) -> str:
    words = []
    if line.joined:
        words.append("and")
    if line.tolerant:
        words.append("try")
    if line.times != 1:
        words.append(f"repeat {line.times or 'forever'}")
    if line.pace:
        words.append(f"slow {line.pace.pieces} {line.pace.milliseconds}ms")
    return "".join(f"{word} " for word in words)


def _command(command: c.Command) -> str:  # noqa: C901 - one line for each command
    match command:
        case c.Write(file, content):
            return f"write {_quoted(file)} {_text(content, ends_line=True)}"
        case c.EditFile(file, old, new, everywhere):
            return _words("edit", *_quoted_all(file, old, new), "all" if everywhere else None)
        case c.Delete(file):
            return f"delete {_quoted(file)}"
        case c.Read(file, offset, limit):
            return _words("read", _quoted(file), offset, limit)
        case c.Bash(text):
            return f"bash {_text(text)}"
        case c.Glob(pattern, path):
            return _words("glob", *_quoted_all(pattern, path))
        case c.Grep(pattern, path, include):
            return _words("grep", *_quoted_all(pattern, path, include))
        case c.ReadSkill(name):
            return f"skill {_quoted(name)}"
        case c.ApplyPatch(text):
            return f"patch {_text(text)}"
        case c.WriteTodos(items):
            return f"todo {_block(_todo_item(item) for item in items)}"
        case c.Ask(question, options, multiple):
            verb = "choose" if multiple else "ask"
            return f"{verb} {_block([question, *(_option(option) for option in options)])}"
        case c.Fetch(url, format):
            return _words("webfetch", *_quoted_all(url, format))
        case c.Task(agent, text, again, background):
            words = ("again" if again else None, "background" if background else None)
            return _words("task", _quoted(agent), *words, _task_text(text))
        case c.PlanExit():
            return "plan_exit"
        case c.CallTool(name, raw):
            return f"call {_quoted(name)} {_text(raw)}"
        case c.Structured(raw):
            return _words("structured", None if raw is None else _text(raw))
        case c.Say(text):
            return f"say {_text(text)}"
        case c.Think(text):
            return f"think {_text(text)}"
        case c.Huge(size):
            return f"huge {size}"
        case c.Wait(milliseconds):
            return f"wait {milliseconds}ms"
        case c.FinishWith(reason):
            return f"finish {reason}"
        case c.Fail(kind, times, after):
            return _words("fail", kind, times, None if after is None else f"after {after}ms")
        case c.Show() | c.Help():
            return type(command).__name__.lower()


def _words(*words: object) -> str:
    return " ".join(str(word) for word in words if word is not None)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _quoted_all(*texts: str | None) -> list[str]:
    return [_quoted(text) for text in texts if text is not None]


def _text(text: str, *, ends_line: bool = False) -> str:
    """A text as the rest of a line, as a block, or quoted: in the first form that can hold it."""
    if text.endswith("\n") or not ends_line:
        line = text.removesuffix("\n") if ends_line else text
        if line and "\n" not in line and line == line.strip(BLANKS) and not _is_special(line):
            return line
        if "\n" in line:
            return _block([line])
    return _quoted(text)


def _task_text(text: str) -> str:
    """The commands of a task; quoted if they begin with a word of the command itself."""
    is_odd = text.startswith(("again", "background")) and "\n" not in text
    return _quoted(text) if is_odd else _text(text)


def _is_special(line: str) -> bool:
    return line.startswith('"') or MARKER.match(line) is not None


def _block(lines: Iterable[str]) -> str:
    content = "".join(f"{line}\n" for line in lines)
    taken = {line.rstrip(BLANKS) for line in content.split("\n")}
    marker = next(name for n in range(len(taken) + 1) if (name := f"END{n or ''}") not in taken)
    return f"<<{marker}\n{content}{marker}"


def _todo_item(item: c.TodoItem) -> str:
    ends_like_one = item.content.rpartition(" ")[2] in {f"!{each}" for each in PRIORITIES}
    suffix = f" !{item.priority}" if item.priority != "medium" or ends_like_one else ""
    return f"[{_MARK_OF[item.status]}] {item.content}{suffix}"


def _option(option: c.Option) -> str:
    return f"{option.label}: {option.description}" if option.description else option.label
