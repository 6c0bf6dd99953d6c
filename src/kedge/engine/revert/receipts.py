"""Receipts: what was planned for each path, what was done, and what was not inspected."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kedge.domain.file_states import Outcome
from kedge.domain.parts import ToolCompleted, ToolPart, ToolRunning
from kedge.domain.receipts import Receipt, ReceiptEntry, RevertStrategy, receipt_entry
from kedge.engine.revert.plan import Entry
from kedge.snapshot.values import Head, Result, Snapshot
from kedge.store.queries.boundaries import Boundary
from kedge.store.queries.changes import family_calls
from kedge.store.queries.messages import get_message
from kedge.store.queries.plans import PlanStep, StepOutcome
from kedge.store.queries.tails import part_of_call
from kedge.store.queries.timeline import head_at
from kedge.store.queries.undone import unknown_calls

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

_FAILED = {Outcome.CONFLICT, Outcome.SKIPPED}
KNOWN = {Outcome.RESTORED, Outcome.RECREATED, Outcome.DELETED}
"""After these outcomes the session knows the content of a path, as it had it before."""


def nothing_done(strategy: RevertStrategy, *notes: str) -> Receipt:
    """A receipt of a revert with nothing to do."""
    return Receipt(files=[], notes=list(notes), applied=False, strategy=strategy)


def receipt_of(
    entries: Iterable[Entry], notes: Iterable[str], strategy: RevertStrategy, *, applied: bool
) -> Receipt:
    """The receipt of a plan before it is carried out."""
    files = [
        receipt_entry(entry.path, entry.outcome, entry.reason, entry.source) for entry in entries
    ]
    return Receipt(files=files, notes=list(notes), applied=applied, strategy=strategy)


def corrected(planned: Receipt, results: Mapping[bytes, Result]) -> Receipt:
    """The receipt of a plan after it was carried out, corrected where others interfered."""
    files = [_corrected(entry, results.get(entry.path_bytes)) for entry in planned.files]
    return msgspec.structs.replace(planned, files=files)


def _corrected(entry: ReceiptEntry, result: Result | None) -> ReceiptEntry:
    if result is None or result.outcome not in _FAILED:
        return entry
    return msgspec.structs.replace(entry, outcome=result.outcome, reason=result.reason or None)


def step_outcomes(
    steps: Sequence[PlanStep], results: Mapping[bytes, Result]
) -> dict[int, StepOutcome]:
    """The outcome of each step."""
    return {step.number: _step_outcome(results[step.path].outcome) for step in steps}


def _step_outcome(outcome: Outcome) -> StepOutcome:
    if outcome is Outcome.CONFLICT:
        return "conflict"
    return "skipped" if outcome is Outcome.SKIPPED else "done"


_LONGEST = 80
"""Characters of a command that are enough to recognize it."""

_UNSEEN = (
    "ignored files, files that are too large, paths outside the folder, HEAD and effects elsewhere"
    " were not inspected"
)
SNAPSHOTS_OFF = (
    "snapshots are switched off: what calls did to files is not known, and is not undone"
)


async def notes_of(
    engine: "Engine",
    session: "Session",
    boundary: Boundary | None,
    snapshot: Snapshot | None,
    unmatched: Iterable[bytes],
) -> list[str]:
    """What a user should know about a revert; `unmatched` are requested paths without a change."""
    if boundary is None:
        return []
    notes = [f"the session changed nothing at {_text(path)}" for path in unmatched]
    if await _is_copied(engine, session, boundary):
        origin = session.info.fork.sessionID if session.info.fork else ""
        notes.append(f"what was done before the fork belongs to {origin}, and is undone there")
    if not engine.settings.snapshots:
        notes.append(SNAPSHOTS_OFF)
    notes += await _unknown_calls(engine, session, boundary)
    # A step of the turn stands behind its prompt; a part is part of its step.
    step = boundary.pos if boundary.part_id else boundary.pos + 1
    found = await engine.store.read(partial(head_at, session.id, step))
    if found is not None and snapshot is not None and snapshot.head is not None:
        before = Head(ref=found[0], commit=found[1])
        if before != snapshot.head:
            moved = f"from {_words(before)} to {_words(snapshot.head)}"
            notes.append(f"HEAD moved {moved} since; it was left there")
    return notes


async def _is_copied(engine: "Engine", session: "Session", boundary: Boundary) -> bool:
    """Whether the boundary is a message that a fork copied from its origin."""
    if session.info.fork is None:
        return False
    message = await engine.store.scan(partial(get_message, session.id, boundary.message_id))
    return message.decoded().info.time.created < session.info.time.created


def _text(path: bytes) -> str:
    return path.decode(errors="replace") or "."


async def _unknown_calls(engine: "Engine", session: "Session", boundary: Boundary) -> list[str]:
    """What is unknown about the reverted calls of unknown effect, in their order."""
    script = partial(family_calls, session.id, boundary.pos, from_part=boundary.part_id)
    notes = []
    for call in await engine.store.scan(script):
        part = await engine.store.read(partial(part_of_call, call))
        if part is None:
            # The part was removed.
            continue
        name = _name(part) if isinstance(part, ToolPart) else part.id
        notes.append(_unseen(name, call.reason))
    return notes


async def notes_of_calls(
    engine: "Engine", session: "Session", parts: Sequence[tuple[str, int, str]]
) -> list[str]:
    """What a user should know about the undo of single calls."""
    if not engine.settings.snapshots:
        return [SNAPSHOTS_OFF]
    found = await engine.store.scan(partial(unknown_calls, parts))
    return [_unseen(_name(part), reason) for part, reason in found]


def _unseen(name: str, reason: str | None) -> str:
    unseen = f"what it did to files is not known, because {reason}"
    return f"{unseen if reason else _UNSEEN}: {name}"


def _name(part: ToolPart) -> str:
    state = part.state
    title = state.title if isinstance(state, ToolCompleted | ToolRunning) else None
    what = str(title or state.input.get("command") or "")
    return f"{part.tool} ({what[:_LONGEST]})" if what else part.tool


def _words(head: Head) -> str:
    commit = head.commit[:12] if head.commit else "no commit"
    return f"{head.ref} ({commit})" if head.ref else commit
