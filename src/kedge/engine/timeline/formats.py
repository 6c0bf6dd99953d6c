"""How snapshots and the states of declared paths are written into the rows of the timeline."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kedge.snapshot.values import Absent, Present, Reason, Snapshot, State, Uncovered
from kedge.store.verbs.changes import StoredState


class _PathState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state as it is written down: a blob, a reason, or nothing for nothing there."""

    blob: str | None = None
    mode: int = 0
    reason: str | None = None


class _DeclaredPath(msgspec.Struct, frozen=True, omit_defaults=True):
    path: bytes
    before: _PathState
    after: _PathState | None = None


class _DeclaredCall(msgspec.Struct, frozen=True, omit_defaults=True):
    paths: list[_DeclaredPath]
    looked: int | None = None


@dataclass(frozen=True, slots=True)
class DeclaredStates:
    """What a declared call found and left at its paths."""

    before: dict[bytes, State]
    after: dict[bytes, State]
    """Empty while it is at it."""
    looked: int | None
    """The newest number of the timeline before it looked at what it left."""


def snapshot_text(snapshot: Snapshot) -> str:
    """A snapshot as a sample keeps it."""
    return msgspec.json.encode(snapshot).decode()


def read_snapshot(text: str) -> Snapshot:
    """The snapshot that a sample keeps."""
    return msgspec.json.decode(text, type=Snapshot)


def declared_data(
    before: Mapping[bytes, State],
    after: Mapping[bytes, State] | None = None,
    *,
    looked: int | None = None,
) -> str:
    """What a declared call found and, once it is over, left at its paths."""
    paths = [
        _DeclaredPath(path, _written(state), None if after is None else _written(after[path]))
        for path, state in before.items()
    ]
    return msgspec.json.encode(_DeclaredCall(paths, looked)).decode()


def read_declared(data: str) -> DeclaredStates:
    """What a declared call found and left."""
    call = msgspec.json.decode(data, type=_DeclaredCall)
    before = {each.path: _read(each.before) for each in call.paths}
    after = {each.path: _read(each.after) for each in call.paths if each.after is not None}
    return DeclaredStates(before, after, call.looked)


def stored(state: State) -> StoredState:
    """A covered state as changes keep it."""
    assert not isinstance(state, Uncovered)
    return (state.blob, state.mode) if isinstance(state, Present) else None


def restored(state: StoredState) -> Present | Absent:
    """A state from how changes keep it."""
    return Absent() if state is None else Present(*state)


def _written(state: State) -> _PathState:
    match state:
        case Present(blob=blob, mode=mode):
            return _PathState(blob, mode)
        case Uncovered(reason=reason):
            return _PathState(reason=reason.value)
        case Absent():
            return _PathState()


def _read(written: _PathState) -> State:
    if written.reason is not None:
        return Uncovered(Reason(written.reason))
    return Absent() if written.blob is None else Present(written.blob, written.mode)
