"""Which calls are chosen to be undone or redone, and whether that did what it must: judged by what
happened, with no plan of its own."""

import os
from collections.abc import Iterator, Sequence
from functools import partial

from kedge.domain.file_states import LEFT, Absent, Present
from kedge.domain.parts import ToolPart
from kedge.engine.revert.merge import Source
from kedge.engine.session import Session
from kedge.snapshot.files.reader import is_same
from kedge.store.port import Store
from kedge.store.queries.changes import StoredChange, family_changes
from tests.engine.revert.plan_documents import author, split
from tests.engine.revert.plan_judge import Happened, judge_files, judge_kept
from tests.engine.revert.plan_model import Record
from tests.engine.revert.plan_trees import State
from tests.engine.revert.whole_model import Foreseen, Model
from tests.engine.revert.whole_programs import Choose
from tests.engine.revert.whole_talks import Member, Row

GONE = "nothing is left there of what was to be undone or put back"


def named(member: Member, action: Choose) -> tuple[dict[str, list[str]], list[Row]]:
    """The arguments that name the chosen calls, and what these did; empty without any call."""
    if action.by == "files":
        return {}, member.rows
    talks = {talk.place.pos: talk for talk in member.talks}
    homes: dict[tuple[int, str], None] = {}
    wanted = [row for row in member.rows if not action.is_redo or row.record in member.out]
    for row in sorted(wanted, key=lambda row: (row.pos, row.part)):
        talk = talks.get(row.pos)
        if talk is not None and any(call.part == row.part for call in talk.calls):
            homes[row.pos, row.part] = None
    if action.by == "messages":
        places = list(dict.fromkeys(pos for pos, _ in homes))
        chosen = {places[-1 - n % len(places)] for n in action.which} if places else set()
        rows = [row for row in member.rows if row.pos in chosen]
        return {"messages": [talks[pos].id for pos in sorted(chosen)]}, rows
    calls = list(homes)
    picked = {calls[-1 - n % len(calls)] for n in action.which} if calls else set()
    rows = [row for row in member.rows if (row.pos, row.part) in picked]
    return {"parts": [part for _, part in sorted(picked)]}, rows


def judge_chosen(
    world: Happened, member: Member, done: Foreseen, *, is_redo: bool, by_force: set[bytes]
) -> None:
    """Fail if somebody lost work, or not exactly the chosen calls went or came."""
    undoing = done.undoing
    assert [entry.path for entry in done.entries] == sorted(undoing.records)
    told = {entry.path for entry in done.entries if entry.outcome not in LEFT}
    assert {step.path for step in undoing.plan.steps} <= told
    if is_redo or undoing.strategy == "overwrite":
        judge_kept(world, undoing)
    else:
        judge_files(world, undoing)
    for entry in done.entries:
        if entry.path not in by_force:
            own = undoing.records[entry.path]
            _check_lines_of_others(world, undoing.before.state(entry.path), done, own, entry.path)
            if entry.outcome not in LEFT and entry.reason != GONE:
                _check_own_lines(world, member, done, own, entry.path, is_redo=is_redo)
    if not is_redo:
        _check_deletions(world, done)


def _check_lines_of_others(
    world: Happened, before: State, done: Foreseen, own: Sequence[Record], path: bytes
) -> None:
    """A line that was only ever added, by what is not chosen, is still there; also if the session
    itself added it."""
    left = _lines(world, done.undoing.after.state(path))
    for line in _lines(world, before):
        touching = list(_touching(world, line))
        if author(line) and len(touching) == 1 and touching[0].path == path:
            assert touching[0] in own or line in left, line


def _check_own_lines(
    world: Happened,
    member: Member,
    done: Foreseen,
    own: Sequence[Record],
    path: bytes,
    *,
    is_redo: bool,
) -> None:
    """The lines that only one chosen call added, and nobody else ever touched, are there or not."""
    left = _lines(world, done.undoing.after.state(path))
    for record in own:
        for line in set(_lines(world, record.after)) - set(_lines(world, record.before)):
            touching = list(_touching(world, line))
            here = all(each is record or each in member.acts for each in touching)
            if here and record.source is not Source.SHARED and author(line):
                assert (line in left) == is_redo, line


def _check_deletions(world: Happened, done: Foreseen) -> None:
    """Deleted is only what a chosen call had made."""
    for step in done.undoing.plan.steps:
        if isinstance(step.want, Absent):
            own = [e for e in done.undoing.records[step.path] if e.source is not Source.SHARED]
            if done.undoing.strategy != "overwrite":
                assert isinstance(own[0].before, Absent)


def _touching(world: Happened, line: bytes) -> Iterator[Record]:
    for each in world.log:
        if (line in _lines(world, each.before)) != (line in _lines(world, each.after)):
            yield each


def _lines(world: Happened, state: State) -> list[bytes]:
    return split(world.blobs[state.blob]) if isinstance(state, Present) else []


def settle(model: Model, name: str, done: Foreseen, stored: set[Record]) -> set[bytes]:
    """Note which changes are in effect now; gives the paths that were put back by force.

    Only by force may that be more than was chosen: then the store says which.
    """
    member, undoing = model.members[name], done.undoing
    chosen: set[Record] = set()
    for entry in done.entries:
        if entry.outcome not in LEFT and entry.reason != GONE:
            own = undoing.records[entry.path]
            chosen |= {each for each in own if each.source is not Source.SHARED}
    more = stored ^ member.out ^ chosen
    if undoing.strategy != "overwrite":
        assert not more
    by_force = {each.path for each in more}
    assert by_force <= {each.path for each in chosen}
    assert chosen <= stored ^ member.out
    for path in by_force:
        firsts = [each.before for each in stored if each.path == path]
        assert any(is_same(undoing.after.state(path), first) for first in firsts)
    member.out = stored
    return by_force


async def stored_out(store: Store, session: Session, member: Member) -> set[Record]:
    """Which changes the store says are undone by choice."""
    top = os.fsencode(session.worktree) + b"/"
    stored: dict[bytes, list[StoredChange]] = {}
    for change in await store.read(partial(family_changes, session.id, 0)):
        if change.source not in ("folder", "revert"):
            path = os.path.join(os.fsencode(change.worktree), change.path)
            stored.setdefault(path.removeprefix(top), []).append(change)
    out: set[Record] = set()
    for path, changes in stored.items():
        here = [row for row in member.rows if row.path == path and row.plan is None]
        own = sorted((r.record for r in here if r.record), key=lambda each: each.number)
        pairs = zip(sorted(changes, key=lambda each: each.timeline), own, strict=True)
        out |= {record for each, record in pairs if each.undone_by is not None}
    return out


async def check_marks(session: Session, member: Member) -> None:
    """Each part says whether what its call did is in effect."""
    for talk in member.talks:
        for call in talk.calls:
            rows = [r for r in member.rows if (r.pos, r.part) == (call.pos, call.part)]
            files = [row for row in rows if row.record is not None]
            out = {row.path for row in files if row.record in member.out}
            left = {row.path for row in files if row.record not in member.out}
            part = await session.part(talk.id, call.part or "")
            assert isinstance(part, ToolPart)
            told = part.undone and (part.undone.files, part.undone.left)
            assert told == ((len(out), len(left) or None) if out else None), (told, out, left)
