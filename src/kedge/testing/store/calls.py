"""Checks of the calls of the timeline: those that left something to clean up are kept."""

from kedge.domain.sessions import SessionInfo
from kedge.store.queries.timeline import (
    NewCall,
    abandon_calls,
    begin_call,
    calls_of_machine,
    clean_up_call,
    end_call,
    leftovers,
    next_number,
    open_calls,
)
from kedge.store.transaction import Script
from kedge.testing.store.database import Database
from kedge.testing.store.scene import Scene, opened

_STEPS = '{"paths":[],"steps":[1]}'
_NONE = '{"paths":[]}'


async def a_call_that_left_something_is_kept(database: Database) -> None:
    """Until its leftovers are cleaned up on its machine; other calls are dropped when they end."""
    async with opened(database) as scene:
        info = await scene.add_session()
        for part, machine in (("prt_1", "here"), ("prt_2", "here"), ("prt_3", "there")):
            await scene.write(_begin, info, part, machine, _STEPS)
        assert await scene.read(leftovers, "here") == []
        await scene.write(_end, info, "prt_1", "here", _NONE)
        assert [each.part_id for each in await scene.read(open_calls, info.id)] == [
            "prt_2",
            "prt_3",
        ]
        await scene.write(abandon_calls, info.id)
        assert await scene.read(open_calls, info.id) == []
        assert await _left(scene, "here") == [("prt_2", _STEPS)]
        assert await _left(scene, "there") == [("prt_3", _STEPS)]
        await scene.write(_begin, info, "prt_4", "here", _NONE)
        await scene.write(_end, info, "prt_4", "here", _NONE)
        assert await _left(scene, "here") == [("prt_2", _STEPS)]
        await scene.write(clean_up_call, info.id, "prt_2", machine="here", data=_NONE)
        assert await scene.read(calls_of_machine, "here") == []
        assert await _left(scene, "there") == [("prt_3", _STEPS)]


async def _left(scene: Scene, machine: str) -> list[tuple[str, str]]:
    return [(each.part_id, each.data) for each in await scene.read(leftovers, machine)]


def _begin(info: SessionInfo, part_id: str, machine: str, data: str) -> Script[None]:
    call = NewCall(
        session_id=info.id,
        part_id=part_id,
        message_id="msg_1",
        worktree="/work",
        machine=machine,
        kind="declared",
        asked=0,
        data=data,
    )
    yield from begin_call(call, (yield from next_number()))


def _end(info: SessionInfo, part_id: str, machine: str, data: str) -> Script[None]:
    number = yield from next_number()
    yield from end_call(info.id, part_id, machine=machine, ended=number, data=data)
