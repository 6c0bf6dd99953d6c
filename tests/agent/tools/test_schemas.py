"""The schemas of tools are what every provider takes, whatever types a function has."""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, cast
from uuid import UUID

import msgspec
import pytest

from kedge.agent.tools.builtin import BUILTIN
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, Tool, ToolFailure, tool
from kedge.domain.errors import InvalidInput

# What OpenAI, Anthropic, Google and the grammars of llama.cpp all know.
KEYWORDS = {
    *("type", "description", "default", "enum", "anyOf"),
    *("properties", "required", "additionalProperties", "items"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
}
TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}


class Color(enum.Enum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """One of numbers."""

    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Place:
    """A nested dataclass."""

    row: int
    title: str | None = None
    color: Color = Color.RED


class Circle(msgspec.Struct, tag="circle"):
    """One of a union."""

    radius: float


class Square(msgspec.Struct, tag="square"):
    """The other one."""

    side: float


class Range(NamedTuple):
    """A row of values with names."""

    first: int
    unit: str = "mm"


class Extra(TypedDict, total=False):
    """A dict of known keys."""

    note: str | None


@dataclasses.dataclass
class Node:
    """A type that holds itself."""

    children: "list[Node]"


@tool("everything", description="x")
async def everything(
    call: Call,
    title: Annotated[str, "The title"],
    nullable: str | None,
    color: Color,
    mixed: Literal["auto", 1, 2],
    level: Level = Level.LOW,
    how: Literal["quick", "slow"] | None = None,
    named: Literal["a", None] = None,
    place: Annotated[Place | None, "Where"] = None,
    places: list[Place] | None = None,
    shape: Circle | Square | None = None,
    either: int | str = 3,
    maybe: int | str | None = "x",
    pair: tuple[int, str] = (1, "x"),
    span: Range | None = None,
    anything: Any = None,  # noqa: ANN401 - any argument
    bare: list | None = None,  # type: ignore[type-arg]
    tags: frozenset[str] = frozenset(),
    sizes: dict[str, int | None] | None = None,
    extra: Extra | None = None,
    when: datetime | None = None,
    id: UUID | None = None,
    code: Annotated[str, msgspec.Meta(pattern="[a-z]")] = "a",
    many: Annotated[int, msgspec.Meta(gt=0, multiple_of=2)] = 2,
    loud: bool = False,
) -> Output:
    """One argument of every kind."""
    return Output(repr({**locals(), "call": None}))


def nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All schemas in a schema."""
    yield schema
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    below += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for each in below:
        yield from nodes(each)


@pytest.mark.parametrize("made", [*BUILTIN, everything], ids=lambda made: made.name)
def test_every_provider_takes_the_schema(made: Tool) -> None:
    """Only keywords that all know, each value with its type, no array without its items."""
    for node in nodes(made.spec.parameters):
        assert set(node) <= KEYWORDS, node
        assert node.get("type", "object") in TYPES
        if "enum" in node:
            assert node["type"] in ("string", "integer"), node
        if node.get("type") == "array":
            assert isinstance(node["items"], Mapping), node
        if "properties" in node:
            assert set(node["required"]) <= set(node["properties"]), node
        assert len(node.get("anyOf", (1, 2))) > 1, node


@pytest.mark.parametrize("made", [*BUILTIN, everything], ids=lambda made: made.name)
def test_what_can_be_left_out_has_its_plain_type(made: Tool) -> None:
    """There is no null to choose, and none as the default."""
    for node in nodes(made.spec.parameters):
        for name, each in node.get("properties", {}).items():
            if name not in node["required"]:
                assert {"type": "null"} not in each.get("anyOf", ()), name
                assert each.get("default", "") is not None, name


def _argument(name: str) -> dict[str, Any]:
    return cast(dict[str, Any], everything.spec.parameters["properties"][name])


def test_schemas_of_arguments() -> None:
    """Each kind of argument is told as plainly as it can be."""
    assert everything.spec.parameters["required"] == ["title", "nullable", "color", "mixed"]
    assert _argument("title") == {"description": "The title", "type": "string"}
    assert _argument("nullable") == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert (_argument("color")["type"], _argument("color")["enum"]) == ("string", ["blue", "red"])
    assert _argument("mixed")["anyOf"] == [
        {"type": "integer", "enum": [1, 2]},
        {"type": "string", "enum": ["auto"]},
    ]
    assert _argument("how") == {"type": "string", "enum": ["quick", "slow"]}
    assert _argument("named") == {"type": "string", "enum": ["a"]}
    assert _argument("place")["description"] == "Where"
    assert list(_argument("place")["properties"]) == ["row", "title", "color"]
    assert [each["type"] for each in _argument("shape")["anyOf"]] == ["object", "object"]
    assert _argument("maybe")["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "integer, string" in _argument("pair")["description"]
    assert "[a-z]" in _argument("code")["description"]
    assert "more than 0" in _argument("many")["description"]


GIVEN = {"title": "t", "nullable": None, "color": "red", "mixed": 1}


async def test_null_is_as_good_as_left_out() -> None:
    """Models fill in null for what they do not need, also deep inside."""
    optional = [name for name in everything.spec.parameters["properties"] if name not in GIVEN]
    call = cast(Call, None)
    plain = await everything(call, {**GIVEN, "places": [{"row": 1}]})
    nulls = {**GIVEN, **dict.fromkeys(optional), "maybe": "x"}
    inner = {"row": 1, "title": None, "color": None}
    assert (await everything(call, {**nulls, "places": [inner]})).text == plain.text


async def test_null_is_no_value_of_what_is_required() -> None:
    """The model hears which argument is wrong."""
    with pytest.raises(ToolFailure, match=r"\$\.title"):
        await everything(cast(Call, None), {**GIVEN, "title": None, "loud": None})


def test_a_type_that_holds_itself_is_refused() -> None:
    """It is named where the tool is made."""

    async def walk(call: Call, node: Node) -> Output:
        return Output("")

    with pytest.raises(InvalidInput, match=r"walk.*Node.*holds itself"):
        tool("walk", description="x")(walk)
