"""Checks of parts: all kinds of them, their order, and the totals that follow them."""

from typing import Any

from kedge.domain import wire
from kedge.domain.errors import (
    InvalidInput,
    MessageNotFound,
    PartNotFound,
    SessionNotFound,
    TooLarge,
)
from kedge.domain.messages import Message
from kedge.domain.parts import Part
from kedge.domain.sessions import CacheCount, TokenCount
from kedge.store.queries.messages import remove_message
from kedge.store.queries.parts import get_part, put_part, remove_part
from kedge.store.queries.sessions import delete_session, get_session
from kedge.testing.store.database import Database
from kedge.testing.store.scene import START, Scene, changed, opened, refused

_TOKENS = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}, "total": 15}
_SOURCE = {"value": "@a", "start": 0, "end": 2}
_INPUT = {"path": "a\u0000b", "n": [1.5, None, True]}
KINDS: list[dict[str, Any]] = [
    {
        "type": "text",
        "text": "é\u0000\u2028😀",
        "time": {"start": 1, "end": 2},
        "metadata": {"a": 1},
    },
    {"type": "subtask", "prompt": "p", "description": "d", "agent": "a"},
    {"type": "reasoning", "text": "hm", "time": {"start": 1}},
    {
        "type": "file",
        "mime": "text/plain",
        "url": "file:///a",
        "source": {"type": "file", "text": _SOURCE, "path": "a"},
    },
    {
        "type": "tool",
        "callID": "c",
        "tool": "t",
        "state": {"status": "pending", "input": {}, "raw": ""},
    },
    {
        "type": "tool",
        "callID": "c",
        "tool": "t",
        "state": {"status": "running", "input": _INPUT, "time": {"start": 1}},
    },
    {
        "type": "tool",
        "callID": "c",
        "tool": "t",
        "state": {
            "status": "completed",
            "input": _INPUT,
            "output": "out",
            "title": "",
            "metadata": {},
            "time": {"start": 1, "end": 2, "compacted": 3},
        },
    },
    {
        "type": "tool",
        "callID": "c",
        "tool": "t",
        "state": {"status": "error", "input": {}, "error": "no", "time": {"start": 1, "end": 2}},
    },
    {"type": "step-start"},
    {"type": "step-finish", "reason": "stop", "cost": 0.5, "tokens": _TOKENS},
    {"type": "snapshot", "snapshot": "abc"},
    {"type": "patch", "hash": "abc", "files": ["/a"]},
    {"type": "agent", "name": "plan", "source": _SOURCE},
    {
        "type": "retry",
        "attempt": 1,
        "error": {"name": "APIError", "data": {"message": "m"}},
        "time": {"created": 1},
    },
    {"type": "compaction", "auto": True, "tail_start_id": "msg_x"},
]
"""Every kind of part, and every state of a tool, as on the wire."""


async def every_kind_of_part_reads_back(database: Database) -> None:
    """With all its fields, and with keys that kedge does not know."""
    async with opened(database) as scene:
        message = await scene.add_user(await scene.add_session())
        parts = [_part(scene, message, {**kind, "unknown": {"k": [1]}}) for kind in KINDS]
        parts += [_part(scene, message, kind) for kind in KINDS]
        for part in parts:
            await scene.put(part)
            assert await scene.read(get_part, message.sessionID, message.id, part.id) == part
        [(_, stored)] = await scene.messages(await scene.read(get_session, message.sessionID))
        assert stored == parts
        assert [wire.encode(each) for each in stored] == [wire.encode(each) for each in parts]


async def parts_are_ordered_by_id(database: Database) -> None:
    """By their bytes, not by a language's rules, whenever they were stored."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        ids = ["prt_b", "prt_B", "prt_a", "prt_-", "prt_1", "prt_Z", "prt__", "prt_aa", "prt_0f"]
        for id in ids:
            await scene.add_text(message, id=id)
        [(_, parts)] = await scene.messages(info)
        assert [part.id for part in parts] == sorted(ids)


async def a_part_is_replaced(database: Database) -> None:
    """The last write of an id counts; a part of the same id in another message is another part."""
    async with opened(database) as scene:
        info = await scene.add_session()
        one, two = await scene.add_user(info), await scene.add_user(info)
        part = await scene.add_text(one, "first")
        await scene.add_text(two, "other", id=part.id)
        after = changed(part, text="second")
        await scene.put(after)
        assert await scene.read(get_part, info.id, one.id, part.id) == after
        assert [len(parts) for _, parts in await scene.messages(info)] == [1, 1]


async def a_part_needs_its_message(database: Database) -> None:
    """In an unknown message or session, or in a deleted one, nothing is stored."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        head = (await scene.events())[-1].seq
        with refused(MessageNotFound):
            await scene.put(changed(scene.text(message), messageID="msg_none"))
        with refused(SessionNotFound):
            await scene.put(changed(scene.text(message), sessionID="ses_none"))
        with refused(PartNotFound):
            await scene.read(get_part, info.id, message.id, "prt_none")
        assert await scene.events(head) == []
        await scene.write(delete_session, info.id, START)
        with refused(SessionNotFound):
            await scene.put(scene.text(message))
        with refused(SessionNotFound):
            await scene.put(scene.finish(message, 1))


async def a_removed_part_is_gone(database: Database) -> None:
    """Removing what does not exist is reported and harmless, also in an unknown message."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        part, kept = await scene.add_text(message), await scene.add_text(message)
        assert await scene.write(remove_part, info.id, message.id, part.id) is True
        assert await scene.write(remove_part, info.id, message.id, part.id) is False
        assert await scene.write(remove_part, info.id, "msg_none", part.id) is False
        assert await scene.messages(info) == [(message, [kept])]


async def totals_follow_finished_steps(database: Database) -> None:
    """Cost and tokens of a session are those of its step-finish parts, added, changed and
    removed."""
    async with opened(database) as scene:
        info = await scene.add_session()
        one, two = await scene.add_user(info), await scene.add_user(info)
        first = scene.finish(one, 0.1, input=1, output=2, reasoning=3, read=4, write=5)
        second = scene.finish(two, 0.2, input=10)
        await scene.put(first)
        await scene.put(second)
        assert await _totals(scene, info.id) == (0.3, _tokens(11, 2, 3, 4, 5))
        await scene.put(changed(second, cost=0.7))
        assert await _totals(scene, info.id) == (0.8, _tokens(11, 2, 3, 4, 5))
        await scene.write(remove_part, info.id, one.id, first.id)
        assert await _totals(scene, info.id) == (0.7, _tokens(10))
        await scene.write(remove_message, info.id, two.id)
        assert await _totals(scene, info.id) == (0, _tokens(0))
        assert await scene.read(get_session, info.id) == info


async def a_part_keeps_its_kind(database: Database) -> None:
    """A part of another kind under the same id is refused, so that totals cannot lose track."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        text, finish = await scene.add_text(message), scene.finish(message, 0.5, input=7)
        await scene.put(finish)
        before, head = await scene.messages(info), (await scene.events())[-1].seq
        for part in (scene.text(message, id=finish.id), changed(finish, id=text.id)):
            with refused(InvalidInput):
                await scene.put(part)
        assert await scene.messages(info) == before
        assert await _totals(scene, info.id) == (0.5, _tokens(7))
        assert await scene.events(head) == []


async def a_part_over_the_limit_is_refused(database: Database) -> None:
    """50 MB, or fewer characters that need more bytes, are not stored, not even in part."""
    async with opened(database) as scene:
        info = await scene.add_session()
        message = await scene.add_user(info)
        part = await scene.add_text(message)
        head = (await scene.events())[-1].seq
        for big in ("x" * 50_000_000, "é" * 17 * 1024 * 1024):
            with refused(TooLarge):
                await scene.bulk(put_part, changed(part, text=big), now=START)
        assert await scene.messages(info) == [(message, [part])]
        assert await scene.events(head) == []


async def lone_surrogates_become_replacement_characters(database: Database) -> None:
    """Text that is not Unicode is mended; NUL characters are kept."""
    async with opened(database) as scene:
        info = await scene.add_session(title="a\ud800b\0")
        message = await scene.add_user(info)
        part = await scene.add_text(message, "x\udfff\0y")
        assert (await scene.read(get_session, info.id)).title == "a\ufffdb\0"
        stored = await scene.read(get_part, info.id, message.id, part.id)
        assert stored == changed(part, text="x\ufffd\0y")


def _part(scene: Scene, message: Message, kind: dict[str, Any]) -> Part:
    home = {"id": scene.ids.part(), "sessionID": message.sessionID, "messageID": message.id}
    part: Part = wire.convert({**kind, **home}, Part)
    return part


def _tokens(input: int, output: int = 0, reasoning: int = 0, *cache: int) -> TokenCount:
    read, write = cache or (0, 0)
    counts = CacheCount(read=read, write=write)
    return TokenCount(input=input, output=output, reasoning=reasoning, cache=counts)


async def _totals(scene: Scene, session_id: str) -> tuple[float, TokenCount]:
    info = await scene.read(get_session, session_id)
    return info.cost, info.tokens
