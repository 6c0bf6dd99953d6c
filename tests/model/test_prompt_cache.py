"""Whatever a conversation grows by, Claude finds all of it that it was sent before in its cache."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.model.catalog import Catalog
from kedge.model.port import (
    AssistantTurn,
    Media,
    ModelRequest,
    Reasoning,
    Text,
    ToolResult,
    ToolUse,
    UserTurn,
)
from tests.model.prompt_cache import PromptCache
from tests.model.scene import ANTHROPIC, CHAT, READ, ask, config_for
from tests.model.test_requests import PIXEL
from tests.support.model_server import ModelServer, Reply, Request, answer
from tests.support.model_server import Text as Said

CLAUDE = "fake/fake-model"
_SIGNED = Reasoning(text="hm", metadata={"provider": "anthropic", "signature": "sealed"})

_words = st.sampled_from(["", "words", "more words\n"])
_output = st.sampled_from(["x", "text of a file\n"])
_seen = st.sampled_from([(), (Media(mime="image/png", data=PIXEL),)])
_steps = st.lists(
    st.tuples(st.integers(0, 30), st.booleans(), _words, _output, _seen), min_size=1, max_size=6
)
_Steps = list[tuple[int, bool, str, str, tuple[Media, ...]]]


def _turns(steps: _Steps) -> list[tuple[UserTurn | AssistantTurn, ...]]:
    """The conversation at each request."""
    turns: list[UserTurn | AssistantTurn] = [UserTurn(content=(Text(text="begin"),))]
    grown = [tuple(turns)]
    for number, (calls, thinks, said, output, media) in enumerate(steps):
        ids = [f"call_{number}_{each}" for each in range(calls)]
        answered = (
            *((_SIGNED,) if thinks else ()),
            Text(text=said or "" if calls else "done"),
            *(ToolUse(call_id=id, name="read", input={"filePath": id}) for id in ids),
        )
        results = [
            ToolResult(call_id=id, name="read", output=output, media=media if id == ids[0] else ())
            for id in ids
        ]
        prompt: tuple[Text | Media | ToolResult, ...] = (Text(text=f"prompt {number}"), *media)
        heard = tuple(results) if calls else prompt
        turns += [AssistantTurn(content=answered, model=CLAUDE), UserTurn(content=heard)]
        grown.append(tuple(turns))
    return grown


@settings(max_examples=25)
@given(st.sampled_from([CHAT, ANTHROPIC]), _steps)
async def test_what_was_sent_is_found(npm: str, steps: _Steps) -> None:
    """With no more marks than Claude takes, and none on what cannot have one."""
    cache = PromptCache()

    def script(request: Request) -> Reply:
        cache.ask(request)
        return answer(Said.of("ok"))

    async with ModelServer(script) as server:
        catalog = Catalog(config_for(server.url, npm, id="anthropic/claude-sonnet-5.5"), {})
        model = catalog.open(catalog.model("fake", "fake-model"))
        for turns in _turns(steps):
            await ask(model, ModelRequest(system=("Be brief.",), turns=turns, tools=(READ,)))
        await catalog.aclose()
    assert cache.found[1:] == cache.sizes[:-1]
