"""Plans: what a revert is about to write and its outcome, stored so that an interrupted revert can
be completed and a finished one can be taken back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from kedge.domain import wire
from kedge.domain.file_states import FileStep, examined
from kedge.domain.receipts import Receipt
from kedge.domain.sessions import FileDiff, SessionSummary
from kedge.store.queries.boundaries import Boundary
from kedge.store.queries.changes import ChangeKey, state_columns, state_of_columns
from kedge.store.transaction import Row, Script, batch, row, rows, run

PlanKind: TypeAlias = Literal["revert", "files", "unrevert", "undo", "redo"]
PlanState: TypeAlias = Literal["planned", "pending", "undone", "final"]
StepOutcome: TypeAlias = Literal["done", "unsure", "conflict", "skipped", "undone"]
"""An unrevert that cannot take back all steps leaves those it has taken back as undone. A step is
unsure that could not be done after a crash, but may have been done before it."""


class PlanData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is needed to finish a plan, by any process."""

    machine: str
    """The machine that has the files."""
    partID: str
    """Names the plan among the calls of the timeline, and the changes of a files-only revert."""
    messageID: str | None = None
    """The boundary of a revert: the message,"""
    boundaryPartID: str | None = None
    """the part of it,"""
    pos: int | None = None
    """and the position of the message, which may be gone when it is needed."""
    snapshot: str | None = None
    summary: SessionSummary | None = None
    """What was reverted, for the session object; of an undo or redo, what is left."""
    before: SessionSummary | None = None
    """The session object's summary before the revert."""
    diffs: list[FileDiff] = msgspec.field(default_factory=list)
    """What was reverted, for the event; without patches."""
    folders: list[bytes] = msgspec.field(default_factory=list)
    """Folders to remove if they are empty, the deepest first."""
    made: list[bytes] = msgspec.field(default_factory=list)
    """Folders that are created for files; taking back the plan removes them."""
    needs: dict[int, list[tuple[bytes, str, bool]]] = msgspec.field(default_factory=dict)
    """By the number of a step, the copies of which one must exist before it is carried out: path,
    blob, and whether it is a symlink."""
    leaves_files: bool = False
    """Whether only messages were to be reverted."""
    files: list[bytes] | None = None
    """The requested paths, which include what is below them."""
    chosen: list[ChangeKey] = msgspec.field(default_factory=list)
    """The changes that an undo takes out, or a redo puts back."""
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """By the number of a step, how many of the chosen changes it takes out or puts back."""
    receipt: Receipt

    @property
    def boundary(self) -> Boundary | None:
        """The boundary of the revert."""
        if self.messageID is None or self.pos is None:
            return None
        return Boundary(message_id=self.messageID, part_id=self.boundaryPartID, pos=self.pos)

    def looks_at(self, path: bytes) -> bool:
        """Whether the plan covers a path."""
        return not self.leaves_files and (self.files is None or is_among(path, self.files))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep(FileStep):
    """A step of a stored plan, and what became of it."""

    outcome: StepOutcome | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was carried out, as far as is known."""
        return self.outcome in ("done", "unsure")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlan:
    """A plan that is about to be stored."""

    id: str
    session_id: str
    worktree: str
    kind: PlanKind
    data: PlanData
    time_created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan(NewPlan):
    """A plan as it is stored."""

    state: PlanState
    timeline: int


def is_among(path: bytes, chosen: Iterable[bytes]) -> bool:
    """Whether a path is one of those chosen, or below one; an empty path is the root."""
    return any(not each or path == each or path.startswith(each + b"/") for each in chosen)


def add_plan(plan: NewPlan, steps: Sequence[PlanStep], *, number: int) -> Script[None]:
    """Store a plan before any of it is carried out."""
    yield from run(
        "plan_add",
        id=plan.id,
        session_id=plan.session_id,
        worktree=plan.worktree,
        kind=plan.kind,
        timeline=number,
        data=wire.encode(plan.data),
        now=plan.time_created,
    )
    yield from batch(
        "plan_step_add",
        [
            {
                "plan_id": plan.id,
                "n": step.number,
                "path": step.path,
                **state_columns("expect", examined(step.expect)),
                **state_columns("want", examined(step.want)),
            }
            for step in steps
        ],
    )


def get_plan(id: str) -> Script[StoredPlan | None]:
    """One plan."""
    found = yield from row("plan_get", id=id)
    return None if found is None else _plan(found)


def open_plans(session_id: str) -> Script[list[StoredPlan]]:
    """The plans of a session that are unfinished or pending, oldest first."""
    return [_plan(each) for each in (yield from rows("plan_open", session_id=session_id))]


def pending_plans(session_id: str) -> Script[list[StoredPlan]]:
    """The plans that an unrevert takes back, oldest first."""
    return [plan for plan in (yield from open_plans(session_id)) if plan.state == "pending"]


def unfinished_plans() -> Script[list[StoredPlan]]:
    """The unfinished plans of all sessions, oldest first."""
    return [_plan(each) for each in (yield from rows("plan_unfinished"))]


def sessions_with_unfinished() -> Script[list[str]]:
    """The sessions with unfinished plans."""
    return [each[1] for each in (yield from rows("plan_unfinished"))]


def is_unfinished(session_id: str) -> Script[bool]:
    """Whether a plan of the session is unfinished."""
    found = yield from open_plans(session_id)
    return any(plan.state == "planned" for plan in found)


def plan_steps(id: str) -> Script[list[PlanStep]]:
    """The steps of a plan, in the order in which they are carried out."""
    return [_step(each) for each in (yield from rows("plan_steps", plan_id=id))]


def close_plan(
    id: str,
    state: PlanState,
    data: PlanData,
    outcomes: Mapping[int, StepOutcome],
    *,
    now: int,
) -> Script[None]:
    """Store the outcome of a plan and of each of its steps."""
    yield from batch(
        "plan_step_close",
        [{"plan_id": id, "n": n, "outcome": outcome} for n, outcome in outcomes.items()],
    )
    yield from run("plan_close", id=id, state=state, data=wire.encode(data), now=now)


def settle_plans(plans: Iterable[NewPlan], state: PlanState) -> Script[None]:
    """Close pending plans that were taken back, or are final."""
    yield from batch("plan_set_state", [{"id": plan.id, "state": state} for plan in plans])


def narrow_plan(plan: NewPlan, undone: Iterable[int]) -> Script[None]:
    """Record that some steps of a pending plan were taken back. The plan becomes a files-only one:
    its other steps stand, and no message is hidden any more."""
    steps = [{"plan_id": plan.id, "n": n, "outcome": "undone"} for n in undone]
    yield from batch("plan_step_close", steps)
    yield from run("plan_set_kind", id=plan.id, kind="files")


def _plan(found: Row) -> StoredPlan:
    id, session_id, worktree, kind, state, timeline, data, created = found
    return StoredPlan(
        id=id,
        session_id=session_id,
        worktree=worktree,
        kind=kind,
        state=state,
        timeline=timeline,
        data=wire.decode(data, PlanData),
        time_created=created,
    )


def _step(found: Row) -> PlanStep:
    n, path, expect_blob, expect_mode, want_blob, want_mode, outcome = found
    return PlanStep(
        number=n,
        path=bytes(path),
        expect=state_of_columns(expect_blob, expect_mode),
        want=state_of_columns(want_blob, want_mode),
        outcome=outcome,
    )
