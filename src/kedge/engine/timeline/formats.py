"""The stored form of snapshots and of the states of declared paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kedge.domain.file_states import Absent, FileStep, Present, Reason, State, Uncovered
from kedge.snapshot.files.steps import RootedStep
from kedge.snapshot.values import Snapshot


class _PathState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stored state: a blob, a reason, or neither if nothing is there."""

    blob: str | None = None
    mode: int = 0
    reason: str | None = None


class _DeclaredPath(msgspec.Struct, frozen=True, omit_defaults=True):
    path: bytes
    before: _PathState
    after: _PathState | None = None


class _DeclaredStep(msgspec.Struct, frozen=True, omit_defaults=True):
    root: bytes
    number: int
    path: bytes
    expect: _PathState
    want: _PathState


class _DeclaredCall(msgspec.Struct, frozen=True, omit_defaults=True):
    paths: list[_DeclaredPath]
    looked: int | None = None
    since: int | None = None
    missing: list[bytes] = []
    steps: list[_DeclaredStep] = []  # queries use the name of this field


class _UnknownCall(msgspec.Struct, frozen=True, omit_defaults=True):
    since: int | None = None


@dataclass(frozen=True, slots=True)
class DeclaredStates:
    """What a declared call found and left at its paths."""

    before: dict[bytes, State]
    after: dict[bytes, State]
    """Empty while it runs."""
    looked: int | None
    """The newest number of the timeline before it inspected what it left."""
    since: int | None = None
    """When it began, on the file system's clock."""
    missing: tuple[bytes, ...] = ()
    """Missing folders of its paths, from the file system's root on."""
    steps: tuple[RootedStep, ...] = ()
    """What it does to files, for recovery after a crash."""


def snapshot_text(snapshot: Snapshot) -> str:
    """A snapshot in its stored form."""
    return msgspec.json.encode(snapshot).decode()


def read_snapshot(text: str) -> Snapshot:
    """The snapshot of a stored form."""
    return msgspec.json.decode(text, type=Snapshot)


def declared_data(
    before: Mapping[bytes, State],
    after: Mapping[bytes, State] | None = None,
    *,
    looked: int | None = None,
    since: int | None = None,
    missing: Sequence[bytes] = (),
    steps: Sequence[RootedStep] = (),
) -> str:
    """What a declared call found and, once it is over, left at its paths."""
    paths = [
        _DeclaredPath(path, _written(state), None if after is None else _written(after[path]))
        for path, state in before.items()
    ]
    todo = [
        _DeclaredStep(
            each.root,
            each.step.number,
            each.step.path,
            _written(each.step.expect),
            _written(each.step.want),
        )
        for each in steps
    ]
    return msgspec.json.encode(_DeclaredCall(paths, looked, since, list(missing), todo)).decode()


def read_declared(data: str) -> DeclaredStates:
    """What a declared call found and left."""
    call = msgspec.json.decode(data, type=_DeclaredCall)
    before = {each.path: _read(each.before) for each in call.paths}
    after = {each.path: _read(each.after) for each in call.paths if each.after is not None}
    return DeclaredStates(
        before,
        after,
        call.looked,
        since=call.since,
        missing=tuple(call.missing),
        steps=tuple(map(_read_step, call.steps)),
    )


def unknown_data(since: int | None) -> str:
    """When a call of unknown effect began, on the file system's clock."""
    return msgspec.json.encode(_UnknownCall(since)).decode()


def read_since(data: str) -> int | None:
    """When a call of unknown effect began; earlier versions did not store that."""
    return None if data == "[]" else msgspec.json.decode(data, type=_UnknownCall).since


def _read_step(written: _DeclaredStep) -> RootedStep:
    step = FileStep(
        number=written.number,
        path=written.path,
        expect=_read(written.expect),
        want=_read(written.want),
    )
    return RootedStep(written.root, step)


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
