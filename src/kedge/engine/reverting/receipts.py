"""Receipts: what was planned for each path, and what became of it."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kedge.domain.receipts import (
    Receipt,
    ReceiptEntry,
    ReceiptOutcome,
    RevertStrategy,
    receipt_entry,
)
from kedge.engine.undo.planning import Entry
from kedge.snapshot.values import Outcome, Result
from kedge.store.verbs.plans import PlanStep, StepOutcome

_FAILED: dict[Outcome, ReceiptOutcome] = {
    Outcome.CONFLICT: ReceiptOutcome.CONFLICT,
    Outcome.SKIPPED: ReceiptOutcome.SKIPPED,
}
KNOWN = {ReceiptOutcome.RESTORED, ReceiptOutcome.RECREATED, ReceiptOutcome.DELETED}
"""After these a session knows what a path holds: it held it before."""


def nothing_done(strategy: RevertStrategy, *notes: str) -> Receipt:
    """There was nothing to do."""
    return Receipt(files=[], notes=list(notes), applied=False, strategy=strategy)


def receipt_of(
    entries: Iterable[Entry], notes: Iterable[str], strategy: RevertStrategy, *, applied: bool
) -> Receipt:
    """What a plan is going to do."""
    files = [
        receipt_entry(entry.path, entry.outcome, entry.reason, entry.source) for entry in entries
    ]
    return Receipt(files=files, notes=list(notes), applied=applied, strategy=strategy)


def corrected(planned: Receipt, results: Mapping[bytes, Result]) -> Receipt:
    """What a plan did, where somebody came in between."""
    files = [_corrected(entry, results.get(entry.path_bytes)) for entry in planned.files]
    return msgspec.structs.replace(planned, files=files)


def _corrected(entry: ReceiptEntry, result: Result | None) -> ReceiptEntry:
    if result is None or result.outcome not in _FAILED:
        return entry
    return msgspec.structs.replace(
        entry, outcome=_FAILED[result.outcome], reason=result.reason or None
    )


def step_outcomes(
    steps: Sequence[PlanStep], results: Mapping[bytes, Result]
) -> dict[int, StepOutcome]:
    """What became of each step."""
    return {step.n: _step_outcome(results[step.path].outcome) for step in steps}


def _step_outcome(outcome: Outcome) -> StepOutcome:
    if outcome is Outcome.CONFLICT:
        return "conflict"
    return "skipped" if outcome is Outcome.SKIPPED else "done"
