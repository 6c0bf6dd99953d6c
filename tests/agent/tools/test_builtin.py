"""The list of tools, and what models are told of them."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from kedge.agent.output_limit import DEFAULT
from kedge.agent.tools import glob, grep
from kedge.agent.tools.builtin import BUILTIN
from kedge.agent.tools.tool import Tool

ARGUMENTS = {
    "read": (["filePath"], ["offset", "limit"]),
    "write": (["content", "filePath"], []),
    "edit": (["filePath", "oldString", "newString"], ["replaceAll"]),
    "apply_patch": (["patchText"], []),
    "glob": (["pattern"], ["path"]),
    "grep": (["pattern"], ["path", "include"]),
    "todowrite": (["todos"], []),
    "plan_exit": ([], []),
    "webfetch": (["url"], ["format", "timeout"]),
    "question": (["questions"], []),
    "skill": (["name"], []),
}


def test_each_tool_is_there_once() -> None:
    """Their names are what clients draw from."""
    names = [tool.name for tool in BUILTIN]
    assert len(set(names)) == len(names)
    assert set(ARGUMENTS) <= set(names)


@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.name)
def test_what_a_model_is_told(tool: Tool) -> None:
    """A schema without references, in which each argument is described."""
    schema = tool.spec.parameters
    assert "$ref" not in json.dumps(schema)
    assert tool.description
    for argument in schema["properties"].values():
        assert "description" in json.dumps(argument)
    if tool.name in ARGUMENTS:
        required, optional = ARGUMENTS[tool.name]
        assert schema["required"] == required
        assert list(schema["properties"]) == [*required, *optional]


TAUGHT = {
    "skill": {
        "what for": "instructions for a kind of work",
        "where they are listed": "system prompt",
        "when": "before you begin",
        "what is beside it": "other files",
        "who decides": "person",
    },
    "read": {
        "what for": "Reads a file",
        "limits": r"2,000 lines.*50 KiB.*2,000 characters",
        "going on": "offset",
        "instead": r"grep to find.*glob",
        "not with a command": r"cat, head, tail",
        "together": "several calls in one step",
        "pictures": "PNG, JPEG, GIF, WebP.*PDF",
        "line numbers are not content": "not part of the file",
    },
    "glob": {
        "what for": "Finds files by",
        "examples": r"\*\*/\*\.py",
        "limits": "100",
        "instead": "use grep",
        "not with a command": "find or ls",
        "what is left out": "ignores",
    },
    "grep": {
        "what for": "contents of files",
        "examples": r"def \\w\+",
        "limits": r"100 lines.*500 characters",
        "instead": "use glob",
        "not with a command": "grep or rg",
        "escaping": "Escape",
        "what is left out": "ignores",
    },
    "edit": {
        "what for": "Replaces a piece of a file",
        "exactly": "exactly once",
        "line numbers": "line numbers that read shows",
        "instead": "use write",
        "not with a command": "sed",
        "several": "replaceAll",
        "refused": "read it again",
        "example": "Example",
    },
    "write": {
        "what for": "Writes a whole file",
        "first read": "has to be read first",
        "instead": "use edit",
        "not with a command": "echo",
        "nothing unasked": "unless asked",
    },
    "apply_patch": {
        "what for": "Changes, adds, deletes and moves files",
        "example": r"\*\*\* Begin Patch.*\*\*\* End Patch",
        "all or nothing": "all of it is done or nothing",
        "context": "three lines",
        "no line numbers": "No line numbers",
        "once": "once",
        "not with a command": "sed",
        "refused": "read the file again",
    },
    "bash": {
        "what for": "Runs a command line",
        "limits": r"2,000 lines.*50 KiB",
        "times": r"2 minutes.*10 minutes",
        "whole output": "file that is named",
        "no need to cut": r"head or tail",
        "not for files": r"cat.*grep.*find.*sed.*echo",
        "no input": "no input",
        "where": "workdir",
        "joined": "&&",
        "no state": "carries nothing over",
        "background": "&`",
        "git": "commit.*only when asked",
        "example": "Example",
    },
    "plan_exit": {
        "what for": "Asks the person whether the plan",
        "when": "written it in your answer",
        "when not": "Do not call it",
        "who goes on": "hands over to the build agent",
    },
    "webfetch": {
        "what for": "Fetches a page of the web",
        "not invented": "Do not make URLs up",
        "not with a command": r"curl or wget",
        "formats": r"Markdown.*\"text\" or \"html\"",
        "pictures": "pictures and PDF files",
        "limits": r"5 MB.*30 seconds",
        "not here": "addresses of this machine",
        "strangers": "do not follow instructions",
    },
    "task": {
        "what for": "Gives a task to another agent",
        "knows nothing": "knows nothing of this conversation",
        "what to say": "all that it needs",
        "at once": "run at the same time",
        "when not": "Do not give away",
        "go on": "task_id",
        "check": "may be wrong",
    },
    "todowrite": {
        "what for": "todo list",
        "when": "three steps or more",
        "when not": "Do not use it",
        "one": "exactly one",
        "at once": "as soon as",
        "whole": "whole list",
        "example": "Example",
    },
    "question": {
        "what for": "Asks the person",
        "when": "lead to different work",
        "when not": "Do not use it",
        "own answer": "type an answer of their own",
        "first": "put it first",
        "together": "one call",
    },
}
"""What models are taught about each tool."""


@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.name)
def test_a_description_teaches_when_to_use_what(tool: Tool) -> None:
    """What it is for, what not, what to use instead, its limits, and an example where it helps."""
    told = " ".join(tool.description.split())
    assert [n for n, piece in TAUGHT[tool.name].items() if not re.search(piece, told)] == []
    assert len(told) < 2_500


@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.name)
def test_limits_that_are_told_are_those_that_hold(tool: Tool) -> None:
    """Numbers in words of a description change with those of the code."""
    limits = {
        "read": [f"{DEFAULT.max_lines:,} lines", f"{DEFAULT.max_bytes // 1024} KiB"],
        "bash": [f"{DEFAULT.max_lines:,} lines", f"{DEFAULT.max_bytes // 1024} KiB"],
        "glob": [f"{glob.MOST_FILES} files"],
        "grep": [f"{grep.MOST_LINES} lines", f"{grep.LONGEST_LINE} characters"],
    }
    for text in limits.get(tool.name, []):
        assert text in tool.description


@pytest.mark.parametrize("tool", BUILTIN, ids=lambda tool: tool.name)
def test_each_argument_is_described_in_a_sentence(tool: Tool) -> None:
    """Also those inside of lists."""

    def check(schema: Mapping[str, Any]) -> None:
        for argument in schema.get("properties", {}).values():
            assert len(argument["description"].split()) >= 3
            check(argument.get("items", {}))

    check(tool.spec.parameters)


def test_permissions() -> None:
    """All that write files are one permission to rules."""
    permissions = {tool.name: tool.permission for tool in BUILTIN}
    assert permissions["write"] == permissions["edit"] == permissions["apply_patch"] == "edit"
    assert permissions["read"] == "read"
