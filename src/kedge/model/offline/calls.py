"""The tool calls that commands stand for, with the names and arguments that clients know."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kedge.model.offline import commands as c

_HEADER_LENGTH = 30


@dataclass(frozen=True, slots=True)
class Made:
    """A call as a model makes it; `input` is None if the raw text is no JSON object."""

    tool: str
    input: Mapping[str, Any] | None
    raw: str


def made(command: c.Calling, tools: Collection[str], round: int | None) -> Made:
    """The call of a command; in what is repeated, {n} is replaced by the number of the round."""
    if isinstance(command, c.Call):
        raw = command.raw if round is None else command.raw.replace("{n}", str(round))
        return Made(command.name, _object(raw), raw)
    tool, input = _call(command, tools)
    if round is not None:
        input = _numbered(input, str(round))
    return Made(tool, input, msgspec.json.encode(input).decode())


def _object(raw: str) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _numbered(node: Any, round: str) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(node, str):
        return node.replace("{n}", round)
    if isinstance(node, dict):
        return {key: _numbered(value, round) for key, value in node.items()}
    return [_numbered(each, round) for each in node] if isinstance(node, list) else node


def _call(command: c.Offered, tools: Collection[str]) -> tuple[str, dict[str, Any]]:  # noqa: C901 - one case for each command
    match command:
        case c.Write(file, content):
            return "write", {"content": content, "filePath": file}
        case c.Edit(file, old, new, everywhere):
            every = {"replaceAll": True} if everywhere else {}
            return "edit", {"filePath": file, "oldString": old, "newString": new, **every}
        case c.Delete(file):
            return _deletion(file, tools)
        case c.Read(file, offset, limit):
            return "read", _given(filePath=file, offset=offset, limit=limit)
        case c.Bash(text):
            return "bash", {"command": text}
        case c.Glob(pattern, path):
            return "glob", _given(pattern=pattern, path=path)
        case c.Grep(pattern, path, include):
            return "grep", _given(pattern=pattern, path=path, include=include)
        case c.Patch(text):
            return "apply_patch", {"patchText": text}
        case c.Todo(items):
            return "todowrite", {"todos": [_todo(item) for item in items]}
        case c.Ask():
            return "question", {"questions": [_question(command)]}


def _given(**arguments: object) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _deletion(file: str, tools: Collection[str]) -> tuple[str, dict[str, Any]]:
    """By a patch, whose effect is known beforehand, if there can be one for such a name."""
    if file.isprintable() and file == file.strip() and "apply_patch" in tools:
        patch = f"*** Begin Patch\n*** Delete File: {file}\n*** End Patch\n"
        return "apply_patch", {"patchText": patch}
    return "bash", {"command": f"rm -- {shlex.quote(file)}"}


def _todo(item: c.TodoItem) -> dict[str, Any]:
    return {"content": item.content, "status": item.status, "priority": item.priority}


def _question(ask: c.Ask) -> dict[str, Any]:
    question = {
        "question": ask.question,
        "header": ask.question[:_HEADER_LENGTH].strip(),
        "options": [{"label": each.label, "description": each.description} for each in ask.options],
    }
    return {**question, "multiple": True} if ask.multiple else question
