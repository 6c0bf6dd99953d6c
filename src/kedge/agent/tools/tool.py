"""Tools: plain typed functions with a name that models and clients know.

    @tool("greet", description="Greets somebody.")
    async def greet(call: Call, name: Annotated[str, "Who it is"], loud: bool = False) -> Output:
        return Output("HELLO" if loud else "hello", title=name)

The arguments after the call are what the model fills in. Their types make the JSON schema that it
is shown, and what it sends is checked against them before the function runs.
"""

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """The tool could not do what it was asked; the model hears why, and the turn goes on."""


@dataclass(frozen=True, slots=True)
class Output:
    """What came of a call: `text` for the model, the rest for clients."""

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
    """The permission that rules name it by: a tool that they wholly deny is not offered."""

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return ToolSpec(
            name=self.name, description=self.description, parameters=schema_of(self.arguments)
        )

    async def __call__(self, call: "Call", input: Mapping[str, Any]) -> Output:
        """Check what the model sent, and do it."""
        try:
            given = msgspec.convert(input, self.arguments)
        except msgspec.ValidationError as error:
            raise ToolFailure(
                f"The arguments of {self.name} are wrong: {error}. Correct them and call it again."
            ) from error
        return await self.run(call, **msgspec.structs.asdict(given))


def tool(
    name: str, *, description: str, permission: str | None = None
) -> Callable[[Callable[..., Awaitable[Output]]], Tool]:
    """Make a tool of a function; raises `InvalidInput` where a model could not call it."""
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
        return msgspec.defstruct(name, fields, kw_only=True, frozen=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The arguments of the tool {name} cannot be used: {error}") from error


def _hints(name: str, run: Callable[..., Awaitable[Output]]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(run, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise InvalidInput(
            f"The annotations of the tool {name} cannot be read: {error}. Import what they name at"
            " run time."
        ) from error


def _kind(name: str, argument: inspect.Parameter, hints: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any annotation
    """The annotation of an argument, after it was seen that a model can fill it in."""
    which = f"The argument {argument} of the tool {name}"
    if argument.kind not in _BY_NAME:
        raise InvalidInput(
            f"{which} has no name that a model can fill in; give each its own, without *, ** and /."
        )
    if argument.name not in hints:
        raise InvalidInput(f"{which} has no type; write one, as in `{argument.name}: str`.")
    hint = hints[argument.name]
    try:
        # Without the notes: a type that is no JSON passes with a description.
        msgspec.json.schema(typing.get_args(hint)[0] if _is_annotated(hint) else hint)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{which} has a type that JSON cannot hold; use str, int, float, bool, lists, dicts,"
            " Literal, dataclasses or msgspec.Struct of those."
        ) from error
    return hint


def _described(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    """The annotation with its words as the description of a JSON schema."""
    if not _is_annotated(hint):
        return hint
    kind, *notes = typing.get_args(hint)
    metas = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    return Annotated[(kind, *metas)]


def _is_annotated(hint: Any) -> bool:  # noqa: ANN401 - any annotation
    return typing.get_origin(hint) is Annotated


def schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of the arguments, whole and without references."""
    (found,), parts = msgspec.json.schema_components([arguments], ref_template="{name}")
    schema: dict[str, Any] = _resolved(found, parts)
    return schema


def _resolved(node: Any, parts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(node, list):
        return [_resolved(each, parts) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _resolved(parts[node["$ref"]], parts)
    return {key: _resolved(value, parts) for key, value in node.items() if key != "title"}
