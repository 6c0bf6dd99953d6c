"""Tools: plain typed functions with a name that models and clients know.

    @tool("greet", description="Greets a person.")
    async def greet(call: Call, name: Annotated[str, "Who it is"], loud: bool = False) -> Output:
        return Output("HELLO" if loud else "hello", title=name)

The model fills in the arguments after the call. Their types make the JSON schema that it gets, and
its input is checked against them before the function runs.
"""

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from kedge.domain.errors import InvalidInput
from kedge.domain.parts import FilePart
from kedge.model.port import ToolSpec

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ToolFailure(Exception):
    """The tool failed; the model gets the reason, and the turn goes on."""


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a call: `text` for the model, the rest for clients."""

    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    attachments: Sequence[FilePart] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that a model can call by a name."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    run: Callable[..., Awaitable[Output]]
    permission: str
    """The name of the permission in rules: a tool that they wholly deny is not offered."""
    limits_itself: bool = False
    """Whether it may be called with the same input any number of times, without a permission."""

    @property
    def spec(self) -> ToolSpec:
        """The definition for the model."""
        return ToolSpec(
            name=self.name, description=self.description, parameters=schema_of(self.arguments)
        )

    async def __call__(self, call: "Call", input: Mapping[str, Any]) -> Output:
        """Check the model's input, and run the function."""
        given = self._checked(input)
        return await self.run(call, **msgspec.structs.asdict(given))

    def _checked(self, input: Mapping[str, Any]) -> msgspec.Struct:
        try:
            return msgspec.convert(input, self.arguments)
        except msgspec.ValidationError as error:
            # Many models set arguments they do not need to null.
            lean = _without_nulls(input, schema_of(self.arguments))
            with suppress(msgspec.ValidationError):
                return msgspec.convert(lean, self.arguments)
            raise ToolFailure(
                f"The arguments of {self.name} are wrong: {error}. Correct them and call it again."
            ) from error


def tool(
    name: str, *, description: str, permission: str | None = None
) -> Callable[[Callable[..., Awaitable[Output]]], Tool]:
    """Make a tool of a function; raises `InvalidInput` if a model could not call it."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"The tool {name!r} has a name that providers refuse: it must be 1 to 64 of a-z, A-Z,"
            " 0-9, _ and -.",
            field="name",
        )

    def made(run: Callable[..., Awaitable[Output]]) -> Tool:
        if not inspect.iscoroutinefunction(run):
            raise InvalidInput(f"The tool {name} must be an `async def` function.")
        return Tool(
            name=name,
            description=inspect.cleandoc(description),
            arguments=_arguments(name, run),
            run=run,
            permission=permission or name,
        )

    return made


def _arguments(name: str, run: Callable[..., Awaitable[Output]]) -> type[msgspec.Struct]:
    call, *parameters = inspect.signature(run).parameters.values() or (None,)
    if call is None or call.kind not in _BY_PLACE:
        raise InvalidInput(
            f"The tool {name} must take the call as its first argument: `call: Call`."
        )
    hints = _hints(name, run)
    fields: list[Any] = []
    for each in parameters:
        kind = _described(_kind(name, each, hints))
        fields.append(
            (each.name, kind)
            if each.default is inspect.Parameter.empty
            else (each.name, kind, each.default)
        )
    try:
        made = msgspec.defstruct(name, fields, kw_only=True, frozen=True)
        schema_of(made)
    except (TypeError, ValueError, InvalidInput) as error:
        raise InvalidInput(f"The arguments of the tool {name} cannot be used: {error}") from error
    return made


def _hints(name: str, run: Callable[..., Awaitable[Output]]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(run, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise InvalidInput(
            f"The annotations of the tool {name} cannot be read: {error}. Import what they name at"
            " run time."
        ) from error


def _kind(name: str, argument: inspect.Parameter, hints: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any annotation
    """The annotation of an argument, after checking that a model can fill it in."""
    which = f"The argument {argument} of the tool {name}"
    if argument.kind not in _BY_NAME:
        raise InvalidInput(
            f"{which} has no name that a model can fill in; give each its own, without *, ** and /."
        )
    if argument.name not in hints:
        raise InvalidInput(f"{which} has no type; write one, as in `{argument.name}: str`.")
    hint = hints[argument.name]
    try:
        # Without the notes: a type that is not JSON would pass with a description.
        msgspec.json.schema(typing.get_args(hint)[0] if _is_annotated(hint) else hint)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{which} has a type that JSON cannot hold; use str, int, float, bool, lists, dicts,"
            " Literal, dataclasses or msgspec.Struct of those."
        ) from error
    return hint


def _described(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    """The annotation, with its note as the description in the JSON schema."""
    if not _is_annotated(hint):
        return hint
    kind, *notes = typing.get_args(hint)
    metas = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    return Annotated[(kind, *metas)]


def _is_annotated(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    return typing.get_origin(hint) is Annotated


@lru_cache(maxsize=256)
def schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of the arguments, without references and in the keywords that every provider
    accepts; not to be changed."""
    (found,), parts = msgspec.json.schema_components([arguments], ref_template="{name}")
    return _plain(_resolved(found, parts, ()))


def _resolved(node: Any, parts: Mapping[str, Any], inside: tuple[str, ...]) -> Any:  # noqa: ANN401 - any JSON
    """A schema with its references replaced."""
    if isinstance(node, list):
        return [_resolved(each, parts, inside) for each in node]
    if not isinstance(node, dict):
        return node
    name = node.get("$ref")
    if not isinstance(name, str):
        return {key: _resolved(value, parts, inside) for key, value in node.items()}
    if name in inside:
        raise InvalidInput(
            f"The type {name} holds itself, which not every provider can be told; use a dict."
        )
    beside = {key: value for key, value in node.items() if key != "$ref"}
    return {**_resolved(parts[name], parts, (*inside, name)), **beside}


# OpenAI wants the items of every array, Google knows few keywords, and llama.cpp makes a grammar of
# a schema and refuses the request if it cannot. The input is checked for everything else too.
_KEPT = (
    "description",
    "type",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)
_TOLD = {
    "pattern": "It must match the regular expression {}.",
    "exclusiveMinimum": "It must be more than {}.",
    "exclusiveMaximum": "It must be less than {}.",
    "multipleOf": "It must be a multiple of {}.",
    "format": "It has the format {}.",
    "contentEncoding": "It is encoded in {}.",
}
_NULL = {"type": "null"}
_KINDS = ((str, "string"), (bool, "boolean"), (int, "integer"), (float, "number"))


def _plain(node: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in the keywords that every provider accepts; the rest of it is put into words."""
    made = {key: node[key] for key in _KEPT if key in node}
    told = [words.format(node[key]) for key, words in _TOLD.items() if key in node]
    if "enum" in node:
        made |= _enum(made.pop("enum"))
    if "anyOf" in node:
        made |= _any_of([_plain(each) for each in node["anyOf"]])
    if "properties" in node:
        made |= _object(node)
    if isinstance(node.get("additionalProperties"), Mapping):
        made["additionalProperties"] = _plain(node["additionalProperties"])
    if "prefixItems" in node:
        row = [_plain(each) for each in node["prefixItems"]]
        told.append(f"In this order: {', '.join(_in_words(each) for each in row)}.")
        made["items"] = _any_of(row)
    elif made.get("type") == "array":
        made["items"] = _plain(node.get("items") or {})
    if told:
        made["description"] = " ".join(filter(None, (made.get("description"), *told)))
    return made


def _object(node: Mapping[str, Any]) -> dict[str, Any]:
    required = node.get("required", [])
    properties = {
        name: _plain(each) if name in required else _left_out(_plain(each))
        for name, each in node["properties"].items()
    }
    return {"properties": properties, "required": required}


def _left_out(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an optional argument, which may also be null."""
    beside = {key: value for key, value in schema.items() if key != "anyOf"}
    if beside.get("default", ...) is None:
        del beside["default"]
    choices = [each for each in schema.get("anyOf", ()) if each != _NULL]
    return {**_any_of(choices), **beside} if choices else beside


def _any_of(choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One of several schemas, each of them once."""
    flat: list[Mapping[str, Any]] = []
    for choice in choices:
        for each in choice["anyOf"] if set(choice) == {"anyOf"} else [choice]:
            if each not in flat:
                flat.append(each)
    return dict(flat[0]) if len(flat) == 1 else {"anyOf": flat}


def _enum(values: Sequence[Any]) -> dict[str, Any]:
    """An enumeration of values, with their type."""
    kinds: dict[str, list[Any]] = {}
    for value in values:
        found = (name for kind, name in _KINDS if isinstance(value, kind))
        kinds.setdefault(next(found, "null"), []).append(value)
    choices = [
        _NULL if kind == "null" else {"type": kind, "enum": given} for kind, given in kinds.items()
    ]
    return _any_of(choices)


def _in_words(schema: Mapping[str, Any]) -> str:
    choices = schema.get("anyOf", (schema,))
    return " or ".join(str(each.get("type", "anything")) for each in choices)


def _without_nulls(given: Any, schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """The model's input without nulls for optional arguments."""
    if isinstance(given, list):
        return [_without_nulls(each, schema.get("items", {})) for each in given]
    properties = schema.get("properties")
    if not isinstance(given, Mapping) or properties is None:
        return given
    required = schema["required"]
    return {
        name: _without_nulls(value, properties.get(name, {}))
        for name, value in given.items()
        if value is not None or name in required or name not in properties
    }
