"""However a stream is torn, it says the same; however it is spoilt, something comes of it."""

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kedge.model.port import Finished, ModelEvent, ModelFailure, ToolCalled
from tests.model.raw_scene import heard, merged
from tests.model.scene import ANTHROPIC, CHAT, GOOGLE, KEY, RESPONSES, every_protocol, text_of
from tests.support.model_server import (
    Answer,
    Call,
    Request,
    Text,
    Thinking,
    anthropic,
    google,
    openai,
    responses,
)
from tests.support.raw_server import Raw
from tests.support.timeouts import PATIENCE

_FRAMES = {
    CHAT: openai.frames,
    ANTHROPIC: anthropic.frames,
    RESPONSES: responses.frames,
    GOOGLE: google.frames,
}
NPMS = list(_FRAMES)
RECORDED = Answer(
    items=(
        Thinking.of("let me ", "see ✓", signature="sealed"),
        Text.of("Ich lese ", "„a.txt“\u2028 ", '\\ and "b".\n'),
        Call(name="read", pieces=('{"filePath": ', '"a\\"} {.txt"}'), id="call_a"),
        Call(name="read", pieces=('{"filePath": "ü",', ' "limit": 3}'), id="call_b"),
    )
)
_JUNK: list[Any] = [None, 7, -1, 1e300, "", "x", [], {}, [None], {"a": 1}, True, "\ud800"]


def frames(npm: str, answer: Answer = RECORDED) -> list[bytes]:
    """An answer as the server of a protocol sends it."""
    request = Request(path="", headers={}, body={"stream_options": {"include_usage": True}})
    ids = (f"made_{number}" for number in itertools.count())
    return [each for each in _FRAMES[npm](answer, request, ids) if isinstance(each, bytes)]


async def whole(npm: str, raw: Raw) -> list[ModelEvent]:
    """The events of a stream, with their pieces joined."""
    return merged(await heard(raw, npm, reasoning=True))


@settings(max_examples=25)
@given(npm=st.sampled_from(NPMS), seed=st.integers(0, 2**32), end=st.sampled_from([b"\n", b"\r\n"]))
async def test_a_torn_stream_says_the_same(npm: str, seed: int, end: bytes) -> None:
    """Pieces of the network end anywhere: inside of a line, a character, or the end of a line."""
    body = b"".join(frames(npm)).replace(b"\n", end)
    chance = random.Random(seed)
    cuts = tuple(chance.randrange(len(body)) for _ in range(chance.choice([1, 5, 40])))
    assert await whole(npm, Raw(body=body, cuts=cuts)) == await whole(npm, Raw(body=body))


@every_protocol
async def test_a_stream_byte_by_byte(npm: str) -> None:
    """The smallest pieces there are."""
    body = b"".join(frames(npm))
    torn = Raw(body=body, cuts=tuple(range(len(body))))
    assert await whole(npm, torn) == await whole(npm, Raw(body=body))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
async def test_a_chat_in_other_deltas_says_the_same(seed: int) -> None:
    """A server may put as much or as little into a delta as it likes."""
    chance = random.Random(seed)
    parts = [_torn(item, chance) for item in RECORDED.items]
    torn = Answer(items=tuple(parts))
    expected = await whole(CHAT, Raw(body=b"".join(frames(CHAT))))
    assert await whole(CHAT, Raw(body=b"".join(frames(CHAT, torn)))) == expected


def _torn(item: Any, chance: random.Random) -> Any:  # noqa: ANN401 - an item of an answer
    text = "".join(item.pieces)
    cuts = sorted(chance.randrange(len(text)) for _ in range(chance.randrange(8)))
    pieces = tuple(text[start:end] for start, end in itertools.pairwise([0, *cuts, len(text)]))
    return type(item)(
        **{name: getattr(item, name) for name in item.__struct_fields__} | {"pieces": pieces}
    )


def spoilt(npm: str, chance: random.Random) -> Raw:
    """A stream with a few things wrong."""
    found = frames(npm)
    for _ in range(chance.choice([1, 1, 2, 4])):
        place = chance.randrange(len(found))
        match chance.randrange(7):
            case 0:
                found[place : place + 1] = []
            case 1:
                found.insert(place, chance.choice(found))
            case 2:
                chance.shuffle(found)
            case 3:
                found[place] = _with_junk(found[place], chance)
            case 4:
                found[place] = _without(found[place], chance)
            case 5:
                data = bytearray(found[place])
                data[chance.randrange(len(data))] = chance.randrange(256)
                found[place] = bytes(data)
            case _:
                found[place] = found[place][: chance.randrange(len(found[place]))]
        if not found:
            break
    body = b"".join(found)
    if chance.random() < 0.2:
        body = body[: chance.randrange(len(body) + 1)]
    return Raw(
        body=body,
        framing=chance.choice(["chunked", "length", "close"]),
        ends=chance.choice(["clean", "clean", "clean", "early", "reset"]),
    )


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        return
    for key, each in inner:
        yield (*path, key)
        yield from _places(each, (*path, key))


def _changed(frame: bytes, chance: random.Random, *, remove: bool) -> bytes:
    head, found, data = frame.partition(b"data: ")
    if not found or not data.startswith(b"{"):
        return frame
    try:
        value = json.loads(data)
    except ValueError:
        # Spoilt already.
        return frame
    places = list(_places(value))
    if not places:
        return frame
    *path, last = chance.choice(places)
    inner = value
    for key in path:
        inner = inner[key]
    if remove:
        del inner[last]
    else:
        inner[last] = chance.choice(_JUNK)
    return head + found + json.dumps(value).encode() + b"\n\n"


def _with_junk(frame: bytes, chance: random.Random) -> bytes:
    return _changed(frame, chance, remove=False)


def _without(frame: bytes, chance: random.Random) -> bytes:
    return _changed(frame, chance, remove=True)


async def outcome(npm: str, raw: Raw) -> list[ModelEvent] | ModelFailure:
    """What a stream comes to; anything else that is raised is a bug."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await heard(raw, npm, reasoning=True)
        except ModelFailure as failure:
            return failure


@pytest.mark.parametrize("npm", NPMS)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
async def test_a_spoilt_stream_is_an_answer_or_a_failure(npm: str, seed: int) -> None:
    """Never a traceback, never a wait without an end, never an empty success."""
    found = await outcome(npm, spoilt(npm, random.Random(seed)))
    if isinstance(found, ModelFailure):
        assert str(found).strip()
        assert KEY not in repr(found.failure)
    else:
        assert isinstance(found[-1], Finished)
        assert text_of(found).strip() or any(isinstance(each, ToolCalled) for each in found)
