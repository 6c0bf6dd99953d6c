"""What is kept of a conversation between two requests says the same as what is made anew."""

import random
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.config.values import Config
from kedge.domain.providers import ModelInfo
from kedge.model.catalog import Catalog
from kedge.model.endpoint import Protocol
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
from kedge.model.pydantic_ai.request import ConvertedConversations
from tests.model.scene import CHAT, config_for

PROTOCOLS: list[Protocol] = ["chat", "responses", "anthropic", "google"]
_TIME = re.compile(r"timestamp=datetime[^)]*\)+")


def _models() -> list[ModelInfo]:
    configs: list[Config] = [
        config_for("http://x", CHAT, attachment=sees) for sees in (True, False)
    ]
    return [Catalog(each, {}).model("fake", "fake-model") for each in configs]


MODELS = _models()


def _turn(chance: random.Random, number: int) -> UserTurn | AssistantTurn:
    text = Text(text=chance.choice(["", f"words {number}"]))
    if number % 2:
        use = ToolUse(call_id=f"c:{number}", name="read", input={"n": number})
        thought = Reasoning(text="hm", metadata={"signature": f"s{number}"})
        return AssistantTurn(
            content=tuple(chance.sample([text, use, thought], chance.randrange(4))),
            model=chance.choice(["fake/fake-model", "other/one"]),
        )
    result = ToolResult(call_id=f"c:{number - 1}", name="read", output=f"out {number}")
    image = Media(mime="image/png", data=b"\x89PNG")
    return UserTurn(content=tuple(chance.sample([text, result, image], chance.randrange(4))))


def _shown(said: Any) -> str:  # noqa: ANN401 - messages of pydantic-ai
    return _TIME.sub("", repr(said))


@given(st.randoms(use_true_random=False))
def test_what_is_kept_is_what_is_made(chance: random.Random) -> None:
    """However a conversation goes on, is cut, or gets another model or another system text."""
    kept = ConvertedConversations()
    turns: dict[str, list[UserTurn | AssistantTurn]] = {"a": [], "b": []}
    protocol = chance.choice(PROTOCOLS)
    for _ in range(8):
        id = chance.choice(["a", "b"])
        del turns[id][chance.choice([100, 100, 0, 1, 3]) :]
        turns[id] += [_turn(chance, len(turns[id]) + n) for n in range(chance.randrange(4))]
        request = ModelRequest(
            system=chance.choice([(), ("Be brief.",), ("Be brief.", "Be kind.")]),
            turns=tuple(turns[id]),
            conversation=chance.choice([id, id, None]),
        )
        info = chance.choice(MODELS) if chance.randrange(3) == 0 else MODELS[0]
        found = kept.messages(request, info, protocol)
        assert _shown(found) == _shown(ConvertedConversations().messages(request, info, protocol))


def test_what_is_the_same_is_not_made_again() -> None:
    """Only what is new is, also where the last turn was another."""
    kept = ConvertedConversations()
    asked, said = UserTurn(content=(Text(text="a"),)), AssistantTurn(content=(Text(text="b"),))
    turns = (asked, said, asked)
    first = kept.messages(ModelRequest(system=(), turns=turns, conversation="a"), MODELS[0], "chat")
    later = (*turns[:-1], UserTurn(content=(Text(text="new"),)))
    again = kept.messages(ModelRequest(system=(), turns=later, conversation="a"), MODELS[0], "chat")
    assert [one is other for one, other in zip(first, again, strict=True)] == [True, True, False]
    assert "new" in _shown(again[-1])
