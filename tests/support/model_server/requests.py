"""What a client asked of the scripted server, in words that fit every protocol."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_TEXTS = ("text", "input_text", "output_text")


@dataclass(eq=False)
class Request:
    """One request; `ended` is set when its answer is over, `dropped` if the client left before."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: bool = False

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation, with the system text as a first message where it is apart."""
        body = self.body
        messages: list[dict[str, Any]] = body.get("messages", [])
        if "input" in body:
            messages = [item for item in body["input"] if "role" in item]
        elif "contents" in body:
            messages = [_turn(content) for content in body["contents"]]
        system = body.get("system") or body.get("instructions")
        if "systemInstruction" in body:
            system = _turn(body["systemInstruction"])["content"]
        return [{"role": "system", "content": system}, *messages] if system else messages

    @property
    def system(self) -> str:
        """The system text."""
        roles = ("system", "developer")
        return "\n".join(
            _text(message["content"]) for message in self.messages if message["role"] in roles
        )

    @property
    def prompt(self) -> str:
        """What the person said last."""
        said = [text for message in self.messages if (text := _said(message))]
        return said[-1] if said else ""

    @property
    def rounds(self) -> int:
        """How many answers called tools since the person spoke."""
        count = 0
        for message in self.messages:
            if _said(message):
                count = 0
            elif message["role"] == "assistant" and _calls(message):
                count += 1
        return count

    @property
    def tools(self) -> list[str]:
        """The names of the tools that may be called."""
        names = []
        for tool in self.body.get("tools", []):
            told = tool.get("functionDeclarations", [tool.get("function", tool)])
            names += [one["name"] for one in told]
        return names

    @property
    def may_call(self) -> bool:
        """Whether there are tools, and the model may call them."""
        choice = self.body.get("tool_choice", "auto")
        if isinstance(choice, dict):
            choice = choice["type"]
        google = self.body.get("toolConfig", {}).get("functionCallingConfig", {})
        return bool(self.tools) and "none" not in (choice, google.get("mode", "").lower())

    @property
    def wants_title(self) -> bool:
        """Whether it asks for a title for the session and not for the next answer."""
        return not self.tools and "title" in self.system.lower()


def _turn(content: dict[str, Any]) -> dict[str, Any]:
    """What Google calls a content, as the others have it."""
    blocks = [{"type": "text", **part} if "text" in part else part for part in content["parts"]]
    return {"role": content.get("role", "system"), "content": blocks}


def _said(message: dict[str, Any]) -> str:
    return _text(message["content"]) if message["role"] == "user" else ""


def _calls(message: dict[str, Any]) -> bool:
    if message.get("tool_calls"):
        return True
    return any(block.get("type") == "tool_use" for block in _blocks(message.get("content")))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in _blocks(content) if block.get("type") in _TEXTS)


def _blocks(content: object) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))
