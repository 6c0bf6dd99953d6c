"""The tool calls that commands stand for."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kedge.agent.json_schema import mismatch
from kedge.model.port import ToolSpec, ToolStarted
from tests.model.offline.requests import NAMES, TOOLS, ask, events, in_short, request


@pytest.mark.parametrize(
    ("line", "tool", "arguments"),
    [
        ("write a.txt x", "write", {"content": "x\n", "filePath": "a.txt"}),
        (
            "edit a.txt old new",
            "edit",
            {"filePath": "a.txt", "oldString": "old", "newString": "new"},
        ),
        (
            "edit a.txt old new all",
            "edit",
            {"filePath": "a.txt", "oldString": "old", "newString": "new", "replaceAll": True},
        ),
        (
            "delete a.txt",
            "apply_patch",
            {"patchText": "*** Begin Patch\n*** Delete File: a.txt\n*** End Patch\n"},
        ),
        ('delete " a.txt"', "bash", {"command": "rm -- ' a.txt'"}),
        ('delete "a\\tb.txt"', "bash", {"command": "rm -- 'a\tb.txt'"}),
        ("read a.txt", "read", {"filePath": "a.txt"}),
        ("read a.txt 2 3", "read", {"filePath": "a.txt", "offset": 2, "limit": 3}),
        ("bash ls | wc", "bash", {"command": "ls | wc"}),
        ("glob *.py", "glob", {"pattern": "*.py"}),
        ("glob *.py src", "glob", {"pattern": "*.py", "path": "src"}),
        ("grep x", "grep", {"pattern": "x"}),
        ("grep x src *.py", "grep", {"pattern": "x", "path": "src", "include": "*.py"}),
        ("patch <<END\nP\nEND", "apply_patch", {"patchText": "P"}),
        ("todo", "todowrite", {"todos": []}),
        ("plan_exit", "plan_exit", {}),
        ("webfetch http://a.example/", "webfetch", {"url": "http://a.example/"}),
        ("webfetch a.example text", "webfetch", {"url": "a.example", "format": "text"}),
        ('structured {"a": 1}', "StructuredOutput", {"a": 1}),
        ("structured", "StructuredOutput", {}),
        (
            "todo [x] a !low",
            "todowrite",
            {"todos": [{"content": "a", "status": "completed", "priority": "low"}]},
        ),
        (
            "ask Which colour do you like best of all? | red: warm | blue",
            "question",
            {
                "questions": [
                    {
                        "question": "Which colour do you like best of all?",
                        "header": "Which colour do you like best",
                        "options": [
                            {"label": "red", "description": "warm"},
                            {"label": "blue", "description": ""},
                        ],
                    }
                ]
            },
        ),
        (
            "choose Which? | red",
            "question",
            {
                "questions": [
                    {
                        "question": "Which?",
                        "header": "Which?",
                        "options": [{"label": "red", "description": ""}],
                        "multiple": True,
                    }
                ]
            },
        ),
        ('call task {"a": [1, {"b": null}]}', "task", {"a": [1, {"b": None}]}),
        ("call frobnicate", "frobnicate", {}),
    ],
)
async def test_every_call(line: str, tool: str, arguments: dict[str, Any]) -> None:
    """A command calls the tool that clients know, with the arguments that they know."""
    answer = await ask(line)
    [call] = answer.calls
    assert (call.name, call.input) == (tool, arguments)
    assert msgspec.json.decode(call.raw) == arguments
    assert answer.finish.reason == "tool-calls"


@pytest.mark.parametrize(
    "raw", ['{"filePath": ', "no JSON", "[1]", "[" * 100_000, '"\\ud800"', '{"a": NaN}', "{} {}"]
)
async def test_malformed_arguments(raw: str) -> None:
    """A call can be made with what is no JSON object, as real models do at times."""
    [call] = (await ask(f"call write <<END\n{raw}\nEND")).calls
    assert (call.name, call.input, call.raw) == ("write", None, raw)


async def test_calls_are_announced_and_numbered() -> None:
    """Each call begins before it is complete, and has an id of its own."""
    heard = await events(request("write a.txt x\nand write b.txt y\nand bash ls"))
    begun = [event.call_id for event in heard if isinstance(event, ToolStarted)]
    calls = in_short(heard).calls
    assert [call.call_id for call in calls] == begun
    assert len(set(begun)) == 3
    assert [call.name for call in calls] == ["write", "write", "bash"]


@pytest.mark.parametrize("missing", NAMES)
async def test_a_tool_that_is_not_offered(missing: str) -> None:
    """What the agent does not offer is not called, except on purpose, and the model says so."""
    lines = {
        "read": "read a.txt",
        "write": "write a.txt x",
        "edit": "edit a.txt x y",
        "apply_patch": "patch x",
        "bash": "bash ls",
        "glob": "glob x",
        "grep": "grep x",
        "todowrite": "todo a",
        "question": "ask a | b",
        "webfetch": "webfetch a",
        "plan_exit": "plan_exit",
        "StructuredOutput": "structured",
    }
    tools = [tool for tool in TOOLS if tool.name != missing]
    answer = in_short(await events(request(lines[missing], tools=tools)))
    assert answer.calls == ()
    assert answer.text == f"I cannot do that here: the tool `{missing}` is not offered to me."
    assert answer.finish.reason == "stop"
    [call] = in_short(await events(request(f"call {missing}", tools=tools))).calls
    assert call.name == missing


async def test_deleting_without_patches() -> None:
    """Where patches are not offered, a file is deleted by a command."""
    bash = ToolSpec(name="bash", description="", parameters={})
    [call] = in_short(await events(request("delete it's.txt", tools=[bash]))).calls
    assert call.input == {"command": "rm -- 'it'\"'\"'s.txt'"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"type": "string"}, "b": {}}, "required": ["a"]}, {"a": "example"}),
        ({"required": ["n"], "properties": {"n": {"type": "integer", "minimum": 5}}}, {"n": 5}),
        ({"required": ["e"], "properties": {"e": {"enum": ["x", "y"]}}}, {"e": "x"}),
        (
            {
                "required": ["o", "l"],
                "properties": {
                    "o": {"type": "object", "required": ["t"]},
                    "l": {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
                },
            },
            {"o": {"t": "example"}, "l": [True, True]},
        ),
    ],
)
async def test_an_example_that_fits(schema: dict[str, Any], value: dict[str, Any]) -> None:
    """A prompt in plain words that wants a structured answer gets one that fits its schema."""
    spec = ToolSpec(name="StructuredOutput", description="", parameters=schema)
    asked = replace(request("Which file?", tools=[spec]), tool_choice="required")
    (call,) = in_short(await events(asked)).calls
    assert call.input == value
    assert mismatch(value, schema) is None
