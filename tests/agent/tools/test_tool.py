"""Tools of one's own: mistakes in them are named where they are made."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import pytest

from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, tool
from kedge.domain.errors import InvalidInput


async def _untyped(call: Call, path) -> Output:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return Output(path)


async def _many(call: Call, *paths: str) -> Output:
    return Output("")


async def _any_named(call: Call, **options: str) -> Output:
    return Output("")


async def _unnamed(call: Call, path: str, /) -> Output:
    return Output(path)


async def _of_object(call: Call, path: object) -> Output:
    return Output("")


async def _of_bad_note(call: Call, path: Annotated[object, "A path"]) -> Output:
    return Output("")


async def _unknown_name(call: Call, path: "Missing") -> Output:  # type: ignore[name-defined]  # noqa: F821
    return Output("")


async def _without_call() -> Output:
    return Output("")


async def _call_by_name(*, call: Call) -> Output:
    return Output("")


async def _bad_default(call: Call, path: list[str] = ["x"]) -> Output:  # noqa: B006
    return Output("")


def _plain(call: Call) -> Output:
    return Output("")


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (_untyped, ["path", "no type"]),
        (_many, ["*paths", "*"]),
        (_any_named, ["**options", "*"]),
        (_unnamed, ["path", "/"]),
        (_of_object, ["path", "JSON"]),
        (_of_bad_note, ["path", "JSON"]),
        (_unknown_name, ["Missing"]),
        (_without_call, ["call: Call"]),
        (_call_by_name, ["call: Call"]),
        (_bad_default, ["default"]),
        (_plain, ["async def"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_function_that_no_model_could_call(
    run: Callable[..., Awaitable[Output]], words: list[str]
) -> None:
    """The error names the tool and what is wrong with it."""
    with pytest.raises(InvalidInput) as caught:
        tool("mine", description="x")(run)
    for word in ("mine", *words):
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["", "bad name!", "x" * 65, "é", "a.b", "a\n"])
def test_a_name_that_providers_refuse(name: str) -> None:
    """It is refused where it is given, not by a provider in the middle of a turn."""
    with pytest.raises(InvalidInput, match="1 to 64 of a-z"):
        tool(name, description="x")


def test_what_a_model_can_fill_in() -> None:
    """Arguments with types, notes and defaults are shown as a JSON schema."""

    @tool("a-Good_1", description="x")
    async def good(
        call: Call,
        path: Annotated[str, "A path"],
        *,
        how: Literal["quick", "slow"] = "quick",
        more: dict[str, Any] | None = None,
    ) -> Output:
        return Output(path)

    assert good.spec.parameters["required"] == ["path"]
    assert good.spec.parameters["properties"]["path"] == {"type": "string", "description": "A path"}
    assert good.spec.parameters["properties"]["how"]["enum"] == ["quick", "slow"]
