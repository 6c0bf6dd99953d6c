"""Whether an undoing did what it must and nothing that it must not, told from all that happened."""

import stat
from collections.abc import Iterator
from typing import Protocol

from kedge.domain.file_states import Absent, Outcome, Present
from kedge.engine.revert.merge import PathHistory, Segment, Source
from kedge.engine.revert.plan import plan
from kedge.engine.revert.safety import ONLY_COPY
from kedge.snapshot.files.reader import is_same
from kedge.snapshot.objects.formats import blob_id
from tests.engine.revert.plan_documents import Slots, author, document, slots_of, split
from tests.engine.revert.plan_model import Record, Undoing
from tests.engine.revert.plan_trees import Blobs, State, Tree, prefixes

CHANGES = {
    Outcome.RESTORED,
    Outcome.MERGED,
    Outcome.DELETED,
    Outcome.RECREATED,
}


class Happened(Protocol):
    """All that ever happened in a worktree."""

    blobs: Blobs
    log: list[Record]
    trees: list[Tree]


def judge(world: Happened, undoing: Undoing) -> None:
    """Fail if anything is not as promised."""
    judge_plan(world, undoing)
    judge_files(world, undoing)
    if undoing.strategy != "overwrite":
        for entry in undoing.plan.entries:
            _check_deletion(world, undoing, entry.path)


def judge_plan(world: Happened, undoing: Undoing) -> None:
    """Fail if the plan could not be carried out, or not be taken back."""
    _check_plan(world, undoing)
    _check_way_back(world, undoing)


def judge_files(world: Happened, undoing: Undoing) -> None:
    """Fail if somebody lost work, or nothing was undone where it could be."""
    for entry in undoing.plan.entries:
        _check_said(undoing, entry.path, entry.outcome)
        if undoing.strategy == "overwrite":
            _check_overwritten(undoing, entry.path, entry.outcome)
        else:
            _check_boundary(world, undoing, entry.path)
            _check_replayed(world, undoing, entry.path)
            _check_kept(world, undoing, entry.path)


def judge_kept(world: Happened, undoing: Undoing) -> None:
    """Fail if somebody lost work, or the outcomes are not true."""
    for entry in undoing.plan.entries:
        _check_said(undoing, entry.path, entry.outcome)
        if undoing.strategy != "overwrite":
            _check_kept(world, undoing, entry.path)


def _check_plan(world: Happened, undoing: Undoing) -> None:
    """Planned the same from any order, with all bytes known before anything is touched."""
    again = plan(
        undoing.histories[::-1],
        world.blobs.__getitem__,
        strategy=undoing.strategy,
        made_folders=undoing.made[::-1],
    )
    assert again == undoing.plan
    assert [entry.path for entry in again.entries] == sorted(undoing.records)
    for blob, content in again.contents.items():
        assert blob_id(content).hex() == blob
    for step in again.steps:
        assert step.expect == undoing.before.state(step.path)
        for state in (step.expect, step.want):
            assert isinstance(state, Absent | Present)
            assert isinstance(state, Absent) or state.blob in world.blobs.keys() | again.contents
    conflicts = [e for e in again.entries if e.outcome is Outcome.CONFLICT]
    if undoing.strategy == "abort" and conflicts:
        assert not again.steps
        assert not again.folders


def _check_way_back(world: Happened, undoing: Undoing) -> None:
    """To undo it with nothing in between gives the identical files, modes included."""
    tree = undoing.after.copy()
    back = plan(_inverse(undoing), (world.blobs | undoing.plan.contents).__getitem__)
    tree.carry_out(back)
    assert tree.files == undoing.before.files


def _inverse(undoing: Undoing) -> list[PathHistory]:
    return [
        PathHistory(
            path=step.path,
            segments=(
                Segment(
                    undoing.before.state(step.path), undoing.after.state(step.path), Source.REVERT
                ),
            ),
            disk=undoing.after.disk(step.path),
            others_later=False,
        )
        for step in undoing.plan.steps
    ]


def _check_said(undoing: Undoing, path: bytes, outcome: Outcome) -> None:
    """The outcome says what really became of the path."""
    before, after = undoing.before.state(path), undoing.after.state(path)
    assert (before != after) == (outcome in CHANGES)
    assert isinstance(after, Absent) or outcome is not Outcome.DELETED
    if outcome in CHANGES:
        assert isinstance(before, Absent) == (outcome is Outcome.RECREATED)
    own = [each for each in undoing.records[path] if each.source is not Source.SHARED]
    assert bool(own) == (outcome is not Outcome.SHARED)


def _check_overwritten(undoing: Undoing, path: bytes, outcome: Outcome) -> None:
    own = [each for each in undoing.records[path] if each.source is not Source.SHARED]
    if own and outcome is not Outcome.CONFLICT:
        assert is_same(undoing.after.state(path), own[0].before)


def _check_boundary(world: Happened, undoing: Undoing, path: bytes) -> None:
    """(a) Nobody else touched the path, nor made a folder or a file of it: it is as it was."""
    if undoing.strategy == "abort" and not undoing.plan.steps:
        return
    if _is_withheld(undoing, path):
        return
    if not any(_is_near(each.path, path) for each in _others(world, undoing)):
        assert is_same(undoing.after.state(path), world.trees[undoing.since].state(path))


def _is_withheld(undoing: Undoing, path: bytes) -> bool:
    """Whether the last check left the path, or one in its way, as it is: somebody may have touched
    another path, at which the same content was."""
    return any(
        entry.reason == ONLY_COPY and _is_near(entry.path, path) for entry in undoing.plan.entries
    )


def _is_near(path: bytes, other: bytes) -> bool:
    return path == other or path in prefixes(other) or other in prefixes(path)


def _others(world: Happened, undoing: Undoing) -> Iterator[Record]:
    """What happened since, but for what is to be undone."""
    own = {
        id(each)
        for records in undoing.records.values()
        for each in records
        if each.source is not Source.SHARED
    }
    for each in world.log:
        if each.number > undoing.since and id(each) not in own:
            yield each


def _check_replayed(world: Happened, undoing: Undoing, path: bytes) -> None:
    """(b) Others changed other slots: what is left is what they alone would have made of it."""
    if undoing.strategy == "abort" and not undoing.plan.steps:
        return
    own = [each for each in undoing.records[path] if each.source is not Source.SHARED]
    others = [each for each in _others(world, undoing) if each.path == path]
    mine, theirs = _touched(world.blobs, own), _touched(world.blobs, others)
    if not own or mine is None or theirs is None or mine & theirs or _is_withheld(undoing, path):
        return
    disk, first = undoing.before.state(path), own[0].before
    assert isinstance(disk, Present)
    assert isinstance(first, Present)
    now, then = (_slots(world.blobs, state) for state in (disk, first))
    assert now is not None
    assert then is not None
    slots = tuple(then[n] if n in mine else now[n] for n in range(len(now)))
    expected = Present(blob_id(document(slots)).hex(), first.mode if "mode" in mine else disk.mode)
    assert undoing.after.state(path) == expected


def _touched(blobs: Blobs, records: list[Record]) -> set[int | str] | None:
    """Which slots were changed, and whether the mode was; None if more than that was."""
    touched: set[int | str] = set()
    for each in records:
        before, after = _slots(blobs, each.before), _slots(blobs, each.after)
        if before is None or after is None:
            return None
        assert isinstance(each.before, Present)
        assert isinstance(each.after, Present)
        touched |= {number for number in range(len(before)) if before[number] != after[number]}
        if each.before.mode != each.after.mode:
            touched.add("mode")
    return touched


def _slots(blobs: Blobs, state: State) -> Slots | None:
    if isinstance(state, Absent) or not stat.S_ISREG(state.mode):
        return None
    return slots_of(blobs[state.blob])


def _check_kept(world: Happened, undoing: Undoing, path: bytes) -> None:
    """(c) Every line that others added is still there; in a conflict all the file is, see above."""
    before, after = (tree.state(path) for tree in (undoing.before, undoing.after))
    if not isinstance(before, Present) or before == after:
        return
    left = split(world.blobs[after.blob]) if isinstance(after, Present) else []
    for line in split(world.blobs[before.blob]):
        if _was_added_by_others(world, undoing, path, line):
            assert line in left


def _was_added_by_others(world: Happened, undoing: Undoing, path: bytes, line: bytes) -> bool:
    """Whether others made a line here since, and nobody's revert or rename brought it back."""
    if author(line) in (None, undoing.session.name):
        return False
    adding = [each for each in world.log if _adds(world.blobs, each, line)]
    here = [each for each in adding if each.path == path and each.number > undoing.since]
    return here[:1] == adding[:1] and not any(
        each.of_plan or each.actor == undoing.session.name for each in here
    )


def _adds(blobs: Blobs, record: Record, line: bytes) -> bool:
    return line in _lines(blobs, record.after) and line not in _lines(blobs, record.before)


def _lines(blobs: Blobs, state: State) -> list[bytes]:
    return split(blobs[state.blob]) if isinstance(state, Present) else []


def _check_deletion(world: Happened, undoing: Undoing, path: bytes) -> None:
    """Deleted is only what the session itself made, and no other session changed since."""
    before, after = (tree.state(path) for tree in (undoing.before, undoing.after))
    if isinstance(before, Absent) or isinstance(after, Present):
        return
    own = [each for each in undoing.records[path] if each.source is not Source.SHARED]
    assert isinstance(own[0].before, Absent)
    assert is_same(before, own[-1].after)
    for each in _others(world, undoing):
        if each.path == path and each.number > own[0].number:
            assert each.source is None or each.actor == undoing.session.name
