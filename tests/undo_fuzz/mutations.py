"""Ways of breaking kedge in memory. The fuzzer has to notice each of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from kedge.domain.file_states import Absent, FileStep, Known, Outcome, Present, State, Uncovered
from kedge.domain.receipts import Receipt
from kedge.engine.revert import merge, path_plan, prepare, receipts, safety, service
from kedge.engine.revert import plan as planning
from kedge.engine.revert.merge import Conflict, Contents, PathHistory, Segment
from kedge.engine.revert.prepare import Asked
from kedge.engine.timeline import attribution, observed, recovery
from kedge.store.queries import change_queries
from tests.undo_fuzz.campaign import Level

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutation:
    """One way of breaking kedge."""

    name: str
    level: Level
    apply: Callable[[Patch], None]
    seed: int = 0
    """Where to begin; the bound on rounds counts from here."""


def _merge_takes_one_side(patch: Patch) -> None:
    """What others changed in a file goes when the session's lines go."""
    patch.setattr(merge, "merge_lines", lambda base, theirs, ours: theirs)


def _conflicts_are_overruled(patch: Patch) -> None:
    """Where it cannot be told apart whose a line is, the session's version goes all the same."""
    real = merge.without

    def without(segment: Segment, now: Known, contents: Contents) -> Known:
        try:
            return real(segment, now, contents)
        except Conflict:
            return segment.before

    patch.setattr(path_plan, "without", without)


def _changed_files_are_deleted(patch: Patch) -> None:
    """A file that the session made goes though others changed it since."""
    real = merge.without

    def without(segment: Segment, now: Known, contents: Contents) -> Known:
        return segment.before if segment.before == Absent() else real(segment, now, contents)

    def check(history: PathHistory, now: Present) -> None:
        """All is well."""

    patch.setattr(path_plan, "without", without)
    patch.setattr(path_plan, "_check_deletion", check)


def _shared_is_own(patch: Patch) -> None:
    """What may be another session's is undone."""
    patch.setattr(merge, "_is_shared", lambda segment: False)


def _the_last_check_is_off(patch: Patch) -> None:
    """What the planner says is done, whoever's only copy goes."""
    patch.setattr(planning, "check", lambda *given: safety.Verdict({}, {}))


def _copies_are_not_looked_at_again(patch: Patch) -> None:
    """What depends on a copy elsewhere goes, though that copy could not be made."""
    real = planning._steps

    def steps(*given: Any) -> tuple[FileStep, ...]:  # noqa: ANN401 - as the real one's
        return tuple(replace(step, needs=()) for step in real(*given))

    patch.setattr(planning, "_steps", steps)


def _a_path_is_forgotten(patch: Patch) -> None:
    """The receipt leaves a path out."""
    real = planning.plan

    def plan(*given: Any, **named: Any) -> planning.Plan:  # noqa: ANN401 - as the planner's
        made = real(*given, **named)
        return replace(made, entries=made.entries[1:])

    patch.setattr(prepare, "plan", plan)


def _segments_are_undone_in_the_wrong_order(patch: Patch) -> None:
    """The oldest change is undone first."""
    real = merge.composed
    patch.setattr(path_plan, "composed", lambda given: real(given)[::-1])


def _the_receipt_lies(patch: Patch) -> None:
    """What was left alone is called restored."""
    real = receipts.corrected

    def corrected(planned: Receipt, results: Any) -> Receipt:  # noqa: ANN401 - as the real one's
        said = real(planned, results)
        files = [
            msgspec.structs.replace(entry, outcome=Outcome.RESTORED, reason=None)
            if entry.outcome is Outcome.CONFLICT
            else entry
            for entry in said.files
        ]
        return msgspec.structs.replace(said, files=files)

    patch.setattr("kedge.engine.revert.apply.corrected", corrected)


def _a_dry_run_is_hopeful(patch: Patch) -> None:
    """A dry run plans with another strategy than it was asked for."""
    real = prepare.Preparing.__init__

    def make(self: Any, engine: Any, session: Any, material: Any, asked: Asked) -> None:  # noqa: ANN401 - as the real one's
        chosen = replace(asked, strategy="overwrite") if asked.dry_run else asked
        real(self, engine, session, material, chosen)

    patch.setattr(prepare.Preparing, "__init__", make)


def _unrevert_overwrites(patch: Patch) -> None:
    """What people saved after a revert goes when it is taken back."""
    patch.setattr(service, "Asked", lambda: Asked(strategy="overwrite"))


def _overlapping_commands_are_own(patch: Patch) -> None:
    """What changed while commands of two sessions ran counts as either's own."""
    real = attribution.ownership

    def ownership(*given: Any) -> attribution.Ownership:  # noqa: ANN401 - as the real one's
        found = real(*given)
        is_shared = found is attribution.Ownership.SHARED
        return attribution.Ownership.MINE if is_shared else found

    patch.setattr(observed, "ownership", ownership)


def _uncovered_is_absent(patch: Patch) -> None:
    """What was not looked at counts as not there, however old it is."""

    def is_change(first: attribution.Point, last: attribution.Point) -> bool:
        return first.state != last.state and first.end <= last.start

    def examined(state: State) -> Known:
        return Absent() if isinstance(state, Uncovered) else state

    async def all_of(self: object, snapshots: object, changes: list[Any]) -> list[Any]:
        return changes

    patch.setattr(attribution, "_is_change", is_change)
    patch.setattr(observed, "examined", examined)
    patch.setattr(observed.UnknownEffects, "_without_moved_in", all_of)


def _what_was_left_is_forgotten(patch: Patch) -> None:
    """A final revert forgets the changes that it could not undo."""
    patch.setattr(change_queries, "LEFT", frozenset())


def _the_dead_own_everything(patch: Patch) -> None:
    """What people saved after a process was killed counts as its own."""

    def doubted(changes: Iterable[Any], worktree: str, life: object) -> list[Any]:
        return list(changes)

    patch.setattr(observed, "doubted", doubted)
    patch.setattr(recovery, "doubted", doubted)


MUTATIONS: Iterable[Mutation] = (
    Mutation("merge takes one side", "planner", _merge_takes_one_side),
    Mutation("conflicts are overruled", "planner", _conflicts_are_overruled),
    Mutation("changed files are deleted", "planner", _changed_files_are_deleted),
    Mutation("shared is own", "planner", _shared_is_own),
    Mutation("wrong order", "planner", _segments_are_undone_in_the_wrong_order, seed=250),
    Mutation("the last check is off", "planner", _the_last_check_is_off),
    Mutation("copies are not looked at again", "disk", _copies_are_not_looked_at_again, seed=66),
    Mutation("a path is forgotten", "disk", _a_path_is_forgotten),
    Mutation("the receipt lies", "disk", _the_receipt_lies, seed=7),
    Mutation("a dry run is hopeful", "disk", _a_dry_run_is_hopeful, seed=7),
    Mutation("unrevert overwrites", "disk", _unrevert_overwrites, seed=20),
    Mutation("overlapping commands are own", "disk", _overlapping_commands_are_own, seed=1),
    Mutation("uncovered is absent", "disk", _uncovered_is_absent, seed=127),
    Mutation("the dead own everything", "disk", _the_dead_own_everything, seed=30),
    Mutation("what was left is forgotten", "disk", _what_was_left_is_forgotten, seed=61),
)
