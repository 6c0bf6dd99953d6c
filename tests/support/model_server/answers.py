"""What a scripted model answers, whatever the protocol; each of them can be written as JSON."""

import json
from typing import TypeAlias

import msgspec


class _Item(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


class Text(_Item, frozen=True, tag="text"):
    """Words, in the pieces they are sent in."""

    pieces: tuple[str, ...]

    @classmethod
    def of(cls, *pieces: str) -> "Text":
        """The pieces as arguments."""
        return cls(pieces=pieces)

    @classmethod
    def words(cls, text: str) -> "Text":
        """One piece for each word, with the space after it."""
        return cls(pieces=split_words(text))


class Thinking(_Item, frozen=True, tag="thinking"):
    """Thoughts, in the pieces they are sent in; Anthropic signs them."""

    pieces: tuple[str, ...]
    signature: str = ""

    @classmethod
    def of(cls, *pieces: str, signature: str = "") -> "Thinking":
        """The pieces as arguments."""
        return cls(pieces=pieces, signature=signature)


class Call(_Item, frozen=True, tag="call"):
    """A tool call; its arguments are sent as they are, so they need not be JSON."""

    name: str
    pieces: tuple[str, ...]
    id: str = ""
    """Empty: the server makes one up."""

    @classmethod
    def of(cls, tool: str, /, *, call_id: str = "", **arguments: object) -> "Call":
        """The arguments as they are, in one piece of JSON."""
        return cls(name=tool, pieces=(json.dumps(arguments),), id=call_id)


class Wait(_Item, frozen=True, tag="wait"):
    """Nothing comes until the test calls `server.release` with this name."""

    name: str = "go"


class Cut(_Item, frozen=True, tag="cut"):
    """The connection is reset."""


class Junk(_Item, frozen=True, tag="junk"):
    """Bytes that the protocol does not know, sent as they are."""

    text: str


class Fault(_Item, frozen=True, tag="fault"):
    """An error in the middle of an answer that began well."""

    message: str = "scripted failure"
    kind: str = "overloaded_error"


Item: TypeAlias = Text | Thinking | Call | Wait | Cut | Junk | Fault


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as kedge counts them: `input` without the cached, `output` without the thoughts."""

    input: int = 100
    output: int = 10
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    """Anthropic's only."""


_USUAL = Usage()


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="answer"):
    """A streamed answer."""

    items: tuple[Item, ...]
    finish: str | None = None
    """stop, tool-calls, length or content-filter; None: tool-calls if there are any, else stop."""
    usage: Usage | None = _USUAL
    at_once: bool = False
    """Everything in one write, as fast as it can be sent."""
    pace: float = 0
    """Seconds between two frames, as with a slow model."""
    ends: bool = True
    """False: the connection is closed properly before the protocol's last words."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="refusal"):
    """An answer with an error status instead of a stream."""

    status: int
    message: str = "scripted failure"
    code: str = "scripted"
    headers: dict[str, str] = {}
    body: str | None = None
    """Sent as it is, instead of an error in the form of the protocol."""
    wait: str | None = None
    """The name of a wait before the first byte."""


Reply: TypeAlias = Answer | Refusal


def answer(
    *items: Item, finish: str | None = None, usage: Usage | None = _USUAL, ends: bool = True
) -> Answer:
    """A streamed answer with its items as arguments."""
    return Answer(items=items, finish=finish, usage=usage, ends=ends)


def finish_of(reply: Answer) -> str:
    """Why the model stopped."""
    if reply.finish is not None:
        return reply.finish
    return "tool-calls" if any(isinstance(item, Call) for item in reply.items) else "stop"


def split_words(text: str) -> tuple[str, ...]:
    """The words of a text, each with the blanks after it."""
    pieces = text.split(" ")
    return tuple(f"{piece} " for piece in pieces[:-1]) + tuple(filter(None, pieces[-1:]))
