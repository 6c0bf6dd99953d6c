"""Recovery of calls that a process left running when it died: finds out what they did before their
session goes on."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from kedge.domain.errors import SessionNotFound
from kedge.domain.file_states import Absent, State
from kedge.engine.heartbeats import last_beat
from kedge.engine.os_process import engine_of
from kedge.engine.timeline.declared import (
    OUTSIDE,
    captured,
    declared_changes,
    folder_changes,
    is_folder,
    told,
)
from kedge.engine.timeline.effects import SWITCHED_OFF
from kedge.engine.timeline.formats import (
    DeclaredStates,
    declared_data,
    read_declared,
    read_since,
)
from kedge.engine.timeline.leftovers import PutInOrder, put_in_order, stored_in
from kedge.engine.timeline.observed import Life, UnknownEffects, doubted
from kedge.engine.timeline.timeline import home_of
from kedge.snapshot.files.reader import is_same
from kedge.snapshot.files.steps import RootedStep
from kedge.snapshot.worktree.filesystems import Mounts, has_own_clock
from kedge.store.queries.changes import NewChange, add_changes
from kedge.store.queries.leases import run_of
from kedge.store.queries.timeline import StoredCall, end_call, next_number, open_calls
from kedge.store.transaction import Script, ScriptMaker

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

_ELSEWHERE = "it was interrupted on another machine"


@dataclass(frozen=True, slots=True)
class Ends:
    """How the calls of a dead process ended."""

    record: ScriptMaker[None]
    """Stores it."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By part, what users and the model should know."""


@asynccontextmanager
async def closing(
    engine: "Engine", session_id: str, calls: Sequence[StoredCall]
) -> AsyncIterator[Ends | None]:
    """How a session's calls ended; to be stored inside the block.

    Only what was written while their process is known to have lived is theirs.
    """
    try:
        session = await engine.sessions.get(session_id)
    except SessionNotFound:
        yield None
        return
    until = await _last_sign(engine, session_id)
    here = [call for call in calls if call.machine == engine.timeline.machine]
    scripts: list[ScriptMaker[None]] = [
        partial(_give_up, call, _ELSEWHERE) for call in calls if call not in here
    ]
    notes: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for call in here:
            if call.kind == "declared":
                script, note = await _end_declared(stack, engine, session, call, until)
                scripts.append(script)
                notes |= {call.part_id: note} if note else {}
        unknown = [call for call in here if call.kind == "unknown"]
        if unknown:
            taken = await stack.enter_async_context(engine.timeline.sampled(session))
            for call in unknown:
                effects = UnknownEffects.of_call(engine.timeline, session, call)
                life = Life(read_since(call.data), until)
                scripts.append(await effects.end_with(taken, life))
        yield Ends(partial(_one_after_the_other, scripts), notes)


async def _last_sign(engine: "Engine", session_id: str) -> int | None:
    """When the owner of a session was last seen alive, on the file system's clock; None if that is
    not known here, as on another machine or with another data folder."""
    owner, _, _ = await engine.store.read(partial(run_of, session_id))
    if owner is None:
        return None
    return await asyncio.to_thread(_last_beat, engine, engine_of(owner))


def _last_beat(engine: "Engine", owner: str) -> int | None:
    if not has_own_clock(os.fsencode(os.path.realpath(engine.data)), Mounts()):
        return None
    return last_beat(engine.data, owner)


async def _end_declared(
    stack: AsyncExitStack, engine: "Engine", session: "Session", call: StoredCall, until: int | None
) -> tuple[ScriptMaker[None], str]:
    """The script that records the end of a declared call, and the note about it.

    If the call stored its steps, its files are as before or as it wanted them: then their author is
    known. Otherwise that can only be observed.
    """
    order = await put_in_order(stack, engine, call, await stored_in(engine, call.worktree))
    states = read_declared(call.data)
    looked = await engine.timeline.head()
    after = await captured(session, states.before)
    changes = _by_steps(call.worktree, states, declared_changes(states.before, after, "observed"))
    life = Life(states.since, until)
    changes = await asyncio.to_thread(doubted, changes, call.worktree, life)
    top = os.fsencode(call.worktree).rstrip(b"/") + b"/"
    missing = sorted(each.removeprefix(top) for each in states.missing if each.startswith(top))
    made = [path for path in missing if is_folder(call.worktree, path)]
    unseen = [step for step in order.done if _inside(call.worktree, step) not in states.before]
    changes = [*folder_changes(made), *changes, *_unseen(call.worktree, unseen)]
    data = declared_data(states.before, after, looked=looked, steps=order.left)
    ended = partial(_end, call, data, changes, engine.clock.now())
    return ended, _note(call.worktree, states, order)


def _by_steps(
    worktree: str, states: DeclaredStates, changes: Sequence[NewChange]
) -> list[NewChange]:
    """The changes, with those that steps account for: a state that is neither the old nor the
    wanted one was made by others, though some of it may be the call's."""
    wanted = {_inside(worktree, step): step.step.want for step in states.steps}
    return [
        replace(change, source="declared" if _is_as(change, wanted[change.path]) else "shared")
        if change.source == "observed" and change.path in wanted
        else change
        for change in changes
    ]


def _is_as(change: NewChange, want: State) -> bool:
    return is_same(change.after, want)


def _unseen(worktree: str, steps: Sequence[RootedStep]) -> list[NewChange]:
    """What was written where nothing is inspected."""
    inside = [path for step in steps if (path := _inside(worktree, step)) is not None]
    outside = [step.real for step in steps if _inside(worktree, step) is None]
    return [*told(inside, SWITCHED_OFF), *told(outside, OUTSIDE)]


def _end(call: StoredCall, data: str, changes: Sequence[NewChange], time: int) -> Script[None]:
    number = yield from next_number()
    yield from end_call(
        call.session_id, call.part_id, machine=call.machine, ended=number, data=data
    )
    yield from add_changes(home_of(call), changes, number=number, time=time)


def give_up_calls(session_id: str, reason: str) -> Script[None]:
    """Record that what a session's calls did cannot be found out, and why."""
    for call in (yield from open_calls(session_id)):
        if call.message_id:
            yield from _give_up(call, reason)


def _give_up(call: StoredCall, reason: str) -> Script[None]:
    """Record only that there was such a call.

    It stays in the table as given up, so that its machine can clean up what it left.
    """
    number = yield from next_number()
    if call.kind == "declared":
        changes = told(read_declared(call.data).before, reason)
    else:
        changes = [
            NewChange(path=b"", before=Absent(), after=Absent(), source="call", reason=reason)
        ]
    yield from add_changes(home_of(call), changes, number=number)


def _note(worktree: str, states: DeclaredStates, order: PutInOrder) -> str:
    """What happened to the files of a call that was cut off, in words."""
    if not states.steps:
        return ""
    done = ", ".join(_shown(worktree, step) for step in order.done)
    notes = [f"Changed before that: {done}." if done else "No file was changed before that."]
    notes += [f"{_shown(worktree, step)}: {reason}." for step, reason in order.troubles]
    return " ".join(notes)


def _inside(worktree: str, step: RootedStep) -> bytes | None:
    """The path of a step in its worktree; None if it is outside."""
    return step.path_in(os.fsencode(worktree))


def _shown(worktree: str, step: RootedStep) -> str:
    return (_inside(worktree, step) or step.real).decode("utf-8", "backslashreplace")


def _one_after_the_other(scripts: Sequence[ScriptMaker[None]]) -> Script[None]:
    for script in scripts:
        yield from script()
