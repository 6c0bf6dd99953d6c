"""Families of models: who is told what, and who changes files with which tools."""

import pytest

from kedge.agent import BUILTIN, Call, Output, Tool, tool
from kedge.agent.families import Family, edits_by_patch, family_of
from kedge.agent.tools.apply_patch import apply_patch
from kedge.agent.tools.edit import edit
from kedge.agent.tools.read import read
from kedge.agent.tools.write import write
from kedge.domain.parts import ToolCompleted
from kedge.domain.providers import ModelApi, ModelInfo, model_info
from tests.agent.world import World, tools_of
from tests.support.model_server import Call as Called
from tests.support.model_server import ModelServer, Text, answer

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


def model(id: str, api: str | None = None, family: str | None = None) -> ModelInfo:
    """A model that is called so."""
    api_of = ModelApi(id=api or id, url="", npm="")
    return model_info(id=id, providerID="lab", api=api_of, name=id, family=family)


@pytest.mark.parametrize(
    ("id", "family", "patches"),
    [
        ("claude-sonnet-5-5", "claude", False),
        ("us.anthropic.claude-haiku-4-5-v1:0", "claude", False),
        ("anthropic/claude-opus-5", "claude", False),
        ("gpt-6.1-sol", "gpt", True),
        ("openai/gpt-5-codex", "gpt", True),
        ("codex-mini-latest", "gpt", True),
        ("o3", "gpt", True),
        ("openai/o4-mini", "gpt", True),
        ("gpt-4.1", "gpt", False),
        ("gpt-4o-mini", "gpt", False),
        ("chatgpt-4o-latest", "gpt", False),
        ("gpt-3.5-turbo", "gpt", False),
        ("openai/gpt-oss-120b", "gpt", False),
        ("gemini-3.8-flash", "gemini", False),
        ("google/gemini-2.5-pro", "gemini", False),
        ("qwen3-coder", "other", False),
        ("solo3-large", "other", False),
        ("deepseek-r1", "other", False),
        ("offline", "other", False),
    ],
)
def test_families(id: str, family: Family, patches: bool) -> None:
    """Told by the name, wherever the model is reached."""
    assert (family_of(model(id)), edits_by_patch(model(id))) == (family, patches)
    assert family_of(model(id.upper())) == family


def test_what_the_provider_calls_it_counts_first() -> None:
    """A name that a person made up says little."""
    assert family_of(model("my-claude", api="gpt-6")) == "gpt"
    assert not edits_by_patch(model("gpt-6", api="gpt-4.1"))
    assert family_of(model("fast", family="claude-haiku")) == "claude"


async def offered(world: World, id: str, tools: tuple[Tool, ...] = BUILTIN) -> list[str]:
    """The tools that a model is offered, and what it makes of a patch in any case."""
    calls = answer(Called.of("apply_patch", patchText=PATCH))
    async with ModelServer([calls, answer(Text.of("fine"))]) as server:
        models = {"scripted": {"options": {"baseURL": server.url}, "models": {id: {}}}}
        world.use(server, model=f"scripted/{id}", provider=models)
        async with world.at_work(tools=tools) as scene:
            await scene.prompt("go")
            (part,) = tools_of((await scene.answers())[0])
            assert isinstance(part.state, ToolCompleted) is (apply_patch in tools)
        return server.requests[0].tools


@pytest.mark.parametrize("id", ["gpt-6.1-sol", "o3"])
async def test_who_writes_patches_is_offered_no_other_editor(world: World, id: str) -> None:
    """Two ways to do one thing make models choose badly."""
    names = await offered(world, id)
    assert "apply_patch" in names
    assert not {"edit", "write"} & set(names)
    assert {"read", "glob", "grep", "bash", "todowrite", "question"} <= set(names)


@pytest.mark.parametrize("id", ["claude-sonnet-5-5", "gemini-3.8-flash", "gpt-4.1", "qwen3-coder"])
async def test_all_others_edit_and_write(world: World, id: str) -> None:
    """Who calls the other tool all the same, as another model did before, is not refused."""
    names = await offered(world, id)
    assert {"edit", "write"} <= set(names)
    assert "apply_patch" not in names


@pytest.mark.parametrize("id", ["claude-sonnet-5-5", "gpt-6.1-sol"])
@pytest.mark.parametrize("tools", [(read, apply_patch), (read, edit), (write, read)])
async def test_a_list_of_ones_own_is_respected(
    world: World, id: str, tools: tuple[Tool, ...]
) -> None:
    """Where there is one way to change files, it is offered to every model."""
    assert await offered(world, id, tools) == [each.name for each in tools]


async def test_an_editor_of_ones_own_is_always_offered(world: World) -> None:
    """Also one that bears the name of a built-in one."""

    @tool("edit", description="Edits in a way of its own.")
    async def own(call: Call) -> Output:
        return Output("done")

    others = tuple(each for each in BUILTIN if each is not edit)
    names = await offered(world, "gpt-6.1-sol", (*others, own))
    assert {"edit", "apply_patch"} <= set(names)
    assert "write" not in names
