"""The list of tools, and what models are told of them."""

import json

import pytest

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
    "question": (["questions"], []),
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


def test_permissions() -> None:
    """All that write files are one permission to rules."""
    permissions = {tool.name: tool.permission for tool in BUILTIN}
    assert permissions["write"] == permissions["edit"] == permissions["apply_patch"] == "edit"
    assert permissions["read"] == "read"
