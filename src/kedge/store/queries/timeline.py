"""The timeline: one order of all changes to files, the running calls, and the snapshots taken
meanwhile; attribution of the changes is done elsewhere."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kedge.store.transaction import Row, Script, row, rows, run

CallKind: TypeAlias = Literal["opening", "unknown", "declared"]
"""A call of unknown effect is `opening` while its first snapshot is taken: it is not active yet,
but calls that are active from then on are kept for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A snapshot of a worktree and its place in the timeline."""

    number: int
    asked: int
    """The newest number before it inspected anything."""
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCall:
    """A tool call that runs, or ended while others of its machine did."""

    session_id: str
    part_id: str
    message_id: str
    worktree: str
    machine: str
    kind: CallKind
    asked: int
    """The newest number before it inspected anything."""
    began: int
    ended: int | None
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A tool call that is about to begin."""

    session_id: str
    part_id: str
    message_id: str
    worktree: str
    machine: str
    kind: CallKind
    asked: int
    data: str


def timeline_head() -> Script[int]:
    """The newest number of the timeline."""
    found = yield from row("timeline_head")
    assert found is not None
    return int(found[0])


def next_number() -> Script[int]:
    """A new number of the timeline.

    Nothing is locked after it: a transaction with a number commits soon, and numbers are in the
    order of commits.
    """
    found = yield from row("timeline_next")
    assert found is not None
    return int(found[0])


def begin_call(call: NewCall, number: int) -> Script[None]:
    """Begin a call; it is active from this number on."""
    yield from run(
        "call_begin",
        session_id=call.session_id,
        part_id=call.part_id,
        message_id=call.message_id,
        worktree=call.worktree,
        machine=call.machine,
        kind=call.kind,
        asked=call.asked,
        began=number,
        data=call.data,
    )


def open_up(session_id: str, part_id: str, *, asked: int, number: int) -> Script[None]:
    """Make an opening call active from this number on."""
    yield from run(
        "call_open_up", session_id=session_id, part_id=part_id, asked=asked, began=number
    )


def abandon_calls(session_id: str) -> Script[None]:
    """Give up the calls of a session whose effects are unknown: other changes of their paths are
    attributed to no session."""
    if (yield from open_calls(session_id)):
        number = yield from next_number()
        yield from run("call_abandon", session_id=session_id, ended=number)


def end_call(session_id: str, part_id: str, *, machine: str, ended: int, data: str) -> Script[None]:
    """End a call, which was active until this number; it is dropped when it is no longer needed."""
    yield from run("call_end", session_id=session_id, part_id=part_id, ended=ended, data=data)
    yield from forget(machine)


def forget(machine: str) -> Script[None]:
    """Drop calls that ended before the oldest running call of unknown effect began, and left
    nothing to clean up."""
    oldest = yield from row("call_oldest", machine=machine)
    before = 2**62 if oldest is None else int(oldest[0])
    yield from run("call_forget", machine=machine, before=before)
    yield from run("sample_forget", machine=machine, before=before)


def add_sample(machine: str, worktree: str, sample: Sample) -> Script[None]:
    """Store a snapshot, if a running call may need it."""
    if (yield from row("call_oldest", machine=machine)) is not None:
        yield from run(
            "sample_add",
            machine=machine,
            worktree=worktree,
            number=sample.number,
            asked=sample.asked,
            data=sample.data,
        )


def samples_since(machine: str, worktree: str, since: int) -> Script[list[Sample]]:
    """The snapshots of a worktree from a number on, in order."""
    found = yield from rows("sample_list", machine=machine, worktree=worktree, since=since)
    return [Sample(number=number, asked=asked, data=data) for number, asked, data in found]


def calls_of_machine(machine: str) -> Script[list[StoredCall]]:
    """The calls that run on a machine, and those that ended while others did."""
    return [_call(each) for each in (yield from rows("call_list", machine=machine))]


def open_calls(session_id: str) -> Script[list[StoredCall]]:
    """The calls of a session that have not ended."""
    return [_call(each) for each in (yield from rows("call_open", session_id=session_id))]


def leftovers(machine: str) -> Script[list[StoredCall]]:
    """The calls of a machine that are over and may have left temporary files beside files."""
    return [_call(each) for each in (yield from rows("call_leftovers", machine=machine))]


def clean_up_call(session_id: str, part_id: str, *, machine: str, data: str) -> Script[None]:
    """Record that what a call left beside files was cleaned up, except for what its data still
    lists."""
    yield from run("call_cleaned_up", session_id=session_id, part_id=part_id, data=data)
    yield from forget(machine)


def _call(found: Row) -> StoredCall:
    session_id, part_id, message_id, worktree, machine, kind, asked, began, ended, data = found
    return StoredCall(
        session_id=session_id,
        part_id=part_id,
        message_id=message_id,
        worktree=worktree,
        machine=machine,
        kind=kind,
        asked=asked,
        began=began,
        ended=ended,
        data=data,
    )


StoredHead = tuple[str | None, str | None]
"""The ref, None when detached, and the commit, None before the first one."""


def note_head(session_id: str, message_id: str, head: StoredHead) -> Script[None]:
    """Store the repository's HEAD at a message, unless it is the same as before."""
    found = yield from row("message_get", session_id=session_id, id=message_id)
    assert found is not None
    pos = found[4]
    if (yield from head_at(session_id, pos)) != head:
        ref, commit = head
        yield from run("head_add", session_id=session_id, pos=pos, ref=ref, commit_id=commit)


def head_at(session_id: str, pos: int) -> Script[StoredHead | None]:
    """The repository's HEAD at the message at a position; None if it was not recorded."""
    found = yield from row("head_at", session_id=session_id, pos=pos)
    return None if found is None else (found[0], found[1])
