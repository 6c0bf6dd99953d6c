"""The offline model behind OpenAI's protocol, so that the real OpenCode can answer as kedge does.

Run as a program it prints its port, and ends with whoever started it.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

from kedge.model.offline.model import Pause, acts_of
from kedge.model.port import (
    AssistantTurn,
    ModelFailure,
    ModelRequest,
    TextDelta,
    ToolCalled,
    ToolResult,
    ToolSpec,
    ToolUse,
    UserTurn,
)
from kedge.model.port import Text as Words
from tests.support.model_server import (
    Answer,
    Call,
    Item,
    ModelServer,
    Refusal,
    Reply,
    Request,
    Text,
    Wait,
)


class OfflineServer(ModelServer):
    """Answers as `kedge/offline` does, but that a pause never ends."""

    def __init__(self) -> None:
        super().__init__(())

    def _choose(self, request: Request) -> Reply:
        try:
            return self._answer(request)
        except ModelFailure as failure:
            return Refusal(status=400, message=str(failure))

    def _answer(self, request: Request) -> Answer:
        items: list[Item] = []
        for act in acts_of(_asked(request), given=0):
            if isinstance(act, Pause):
                items.append(Wait())
            elif isinstance(act, TextDelta):
                items.append(Text.of(act.text))
            elif isinstance(act, ToolCalled):
                items.append(Call(name=act.name, pieces=(act.raw,)))
        return Answer(items=tuple(items))


def _asked(request: Request) -> ModelRequest:
    tools = tuple(ToolSpec(name=name, description="", parameters={}) for name in request.tools)
    return ModelRequest(
        system=(),
        turns=tuple(_turns(request.body.get("messages", []))),
        tools=tools,
        purpose="title" if request.wants_title else "answer",
    )


def _turns(messages: list[dict[str, Any]]) -> Iterator[UserTurn | AssistantTurn]:
    for message in messages:
        match message:
            case {"role": "user", "content": str(text)}:
                yield UserTurn(content=(Words(text=text),))
            case {"role": "user", "content": list(blocks)}:
                yield UserTurn(content=tuple(Words(text=each.get("text", "")) for each in blocks))
            case {"role": "assistant", "tool_calls": list(calls)}:
                yield AssistantTurn(content=tuple(_use(call) for call in calls))
            case {"role": "assistant", "content": str(text)}:
                yield AssistantTurn(content=(Words(text=text),))
            case {"role": "tool", "tool_call_id": str(id), "content": content}:
                yield UserTurn(content=(ToolResult(call_id=id, name="", output=str(content)),))


def _use(call: dict[str, Any]) -> ToolUse:
    function = call["function"]
    input = json.loads(function["arguments"] or "{}")
    return ToolUse(call_id=call["id"], name=function["name"], input=input)


async def _serve() -> None:
    async with OfflineServer() as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
