"""The prompt cache of Claude, as it is documented, for requests in Anthropic's protocol and in chat
completions."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_server import Request

LOOKBACK = 20
MARKS = 4


class PromptCache:
    """Remembers what was marked, and finds what it can."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self.sizes: list[int] = []
        """How many blocks each request had."""
        self.found: list[int] = []
        """How many of them were in the cache."""
        self.marks: list[int] = []

    def ask(self, request: Request) -> None:
        """Look a request up, then keep it as far as it is marked."""
        blocks = list(_blocks(request.body))
        marks = [at for at, (_, is_marked) in enumerate(blocks, 1) if is_marked]
        assert len(marks) <= MARKS, "more marks than Claude takes"
        starts = [json.dumps([block for block, _ in blocks[:at]]) for at in range(len(blocks) + 1)]
        looked_at = [at - back for at in marks for back in range(LOOKBACK) if at > back]
        self.found.append(max((at for at in looked_at if starts[at] in self._kept), default=0))
        self.sizes.append(len(blocks))
        self.marks.append(len(marks))
        self._kept.update(starts[at] for at in marks)


def _blocks(body: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Tools, system text and conversation in the order of the cache, with their marks."""
    for tool in body.get("tools", []):
        yield _split(tool)
    for block in body.get("system", []):
        yield _split(block)
    for message in body["messages"]:
        if not isinstance(content := message.get("content"), list):
            content = [content] if content else []
        for block in content:
            text, is_marked = _split(block)
            assert not is_marked or text.get("text", "x"), "a mark on an empty text is refused"
            yield [message["role"], text], is_marked
        yield from ((call, False) for call in message.get("tool_calls", []))


def _split(block: Any) -> tuple[Any, bool]:  # noqa: ANN401 - any JSON
    if not isinstance(block, dict):
        return block, False
    bare = {key: value for key, value in block.items() if key != "cache_control"}
    return bare, len(bare) < len(block)
