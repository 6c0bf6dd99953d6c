"""Runs a program on a real engine and real files, and holds everything against the model."""

import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import kedge
from kedge.domain.errors import FileChanged
from kedge.domain.file_states import Absent, Present
from kedge.domain.receipts import Receipt
from kedge.engine.engine import Engine
from kedge.engine.parts import ToolCall
from kedge.engine.revert.merge import Source
from kedge.engine.revert.safety import ONLY_COPY
from kedge.engine.session import Session
from kedge.engine.steps import Step
from kedge.engine.turns import Turn
from kedge.snapshot.files.reader import is_same
from tests.engine.revert.plan_documents import SLOTS, Lines, document, slots_of, split
from tests.engine.revert.plan_judge import CHANGES, judge_files, judge_kept, judge_plan
from tests.engine.revert.plan_model import PERSON, Undoing, clearing
from tests.engine.revert.plan_trees import LINK, Blobs, State, Tree
from tests.engine.revert.whole_calls import check_marks, judge_chosen, named, settle, stored_out
from tests.engine.revert.whole_files import change, scanned
from tests.engine.revert.whole_model import Foreseen, Model
from tests.engine.revert.whole_programs import (
    Action,
    Chmod,
    Choose,
    CloseShell,
    Delete,
    Edit,
    EditSlot,
    EndStep,
    EndTurn,
    Link,
    OpenShell,
    Patch,
    Program,
    Rename,
    Reopen,
    Revert,
    Unrevert,
    Work,
    Write,
)
from tests.engine.revert.whole_talks import Row, Wanted


@dataclass
class Busy:
    """A session in a turn."""

    turn: Turn
    step: Step | None = None
    shell: ToolCall | None = None


class Known:
    """All that happened, also what nobody has looked at yet."""

    def __init__(self, model: Model) -> None:
        self.blobs, self.trees = model.blobs, model.trees
        self.log = model.log + model.unsettled()


class Run:
    """One program at work."""

    def __init__(self, folder: Path, program: Program, figures: Counter[str]) -> None:
        self._home = folder
        self._root = folder / "work"
        self._program = program
        self._figures = figures
        self._names = [f"s{number}" for number in range(program.sessions)]
        self._lines = Lines()
        self._busy: dict[str, Busy] = {}
        self._sessions: dict[str, Session] = {}

    async def run(self) -> None:
        """Do everything, and look after each action."""
        self._root.mkdir()
        blobs = Blobs()
        empty: tuple[bytes, ...] = ()
        old = {path: blobs.file(document((empty,) * SLOTS)) for path in self._program.files}
        change(self._root, old, blobs)
        self._model = Model(self._names, scanned(self._root, blobs), blobs)
        async with AsyncExitStack() as self._stack:
            engine = await self._open()
            self._sessions = {name: await engine.sessions.create() for name in self._names}
            for action in self._program.actions:
                self._figures["actions"] += 1
                await self._do(action)
                self._check_tree()
            for name in list(self._busy):
                await self._end_turn(name)
            self._check_tree()
        self._figures["runs"] += 1

    async def _open(self) -> Engine:
        place = self._home / "data"
        self._engine = await self._stack.enter_async_context(
            kedge.open(self._root, database=place / "kedge.db", data_dir=place)
        )
        return self._engine

    def _check_tree(self) -> None:
        assert scanned(self._root, self._model.blobs) == self._model.tree

    async def _do(self, action: Action) -> None:
        match action:
            case Work():
                await self._work(action)
            case Reopen():
                await self._reopen()
            case OpenShell(who):
                await self._open_shell(self._name(who))
            case CloseShell(who):
                await self._close_shell(self._name(who))
            case EndStep(who):
                await self._end_step(self._name(who))
            case EndTurn(who):
                await self._end_turn(self._name(who))
            case Revert():
                await self._revert(self._name(action.who), action)
            case Unrevert(who):
                await self._unrevert(self._name(who))
            case Choose():
                await self._choose(self._name(action.who), action)

    def _name(self, who: int) -> str:
        return self._names[who % len(self._names)]

    # Turns, steps and calls.

    async def _step(self, name: str) -> Step:
        if name not in self._busy:
            turn = self._sessions[name].turn("Go on")
            await turn.__aenter__()
            self._busy[name] = Busy(turn)
            self._model.prompt(name, turn.message.id)
        busy = self._busy[name]
        if busy.step is None:
            busy.step = busy.turn.step()
            await busy.step.__aenter__()
            self._model.answer(name, busy.step.message.id)
        return busy.step

    async def _open_shell(self, name: str) -> None:
        if not self._model.is_running(name):
            call = (await self._step(name)).tool("bash", {}, effects="unknown")
            await call.__aenter__()
            self._busy[name].shell = call
            self._model.begin_unknown(name)
            self._model.begin_call(name, call.part.id)

    async def _close_shell(self, name: str) -> None:
        busy = self._busy.get(name)
        if busy is not None and busy.shell is not None:
            await busy.shell.__aexit__(None, None, None)
            busy.shell = None
            self._model.end_shell(name)

    async def _end_step(self, name: str) -> None:
        await self._close_shell(name)
        busy = self._busy.get(name)
        if busy is not None and busy.step is not None:
            await busy.step.__aexit__(None, None, None)
            busy.step = None
            self._model.look()

    async def _end_turn(self, name: str) -> None:
        await self._end_step(name)
        if name in self._busy:
            await self._busy.pop(name).turn.__aexit__(None, None, None)

    async def _reopen(self) -> None:
        for name in list(self._busy):
            await self._end_turn(name)
        await self._stack.aclose()
        engine = await self._open()
        for name, session in self._sessions.items():
            self._sessions[name] = await engine.sessions.get(session.id)

    # Changes of files.

    async def _work(self, work: Work) -> None:
        actors = [*self._names, PERSON]
        actor = actors[work.who % len(actors)]
        changes = self._changes(work.edit, actor)
        if not changes:
            return
        if actor == PERSON or self._model.is_running(actor):
            self._change(changes)
        elif work.declares:
            for each in _portions(changes, self._model):
                if not await self._declared(actor, each, work):
                    break
        else:
            await self._open_shell(actor)
            self._meddle(work)
            self._change(self._changes(work.edit, actor))
            await self._close_shell(actor)

    def _change(self, changes: Mapping[bytes, State]) -> list[bytes]:
        change(self._root, changes, self._model.blobs)
        return self._model.change(changes)

    def _meddle(self, work: Work) -> None:
        if work.meanwhile is not None:
            self._change(self._changes(work.meanwhile, PERSON))

    async def _declared(self, name: str, changes: Mapping[bytes, State], work: Work) -> bool:
        """Change files in a declared call, unless it is refused."""
        step = await self._step(name)
        paths = [os.fsdecode(path) for path in changes]
        touched = self._named(changes)
        call = step.tool("write", {}, reads=paths if work.reads else [], writes=paths)
        refused = not work.reads and self._model.is_refused(name, touched)
        try:
            await call.__aenter__()
        except FileChanged:
            assert refused
            self._model.begin_call(name, call.part.id)
            self._figures["refused"] += 1
            return False
        assert not refused
        self._model.begin_declared(touched)
        self._model.begin_call(name, call.part.id)
        was_absent = [path for path in touched if isinstance(self._model.tree.state(path), Absent)]
        self._meddle(work)
        made = self._change(changes)
        await call.__aexit__(None, None, None)
        needed = [folder for folder in made if any(p.startswith(folder + b"/") for p in was_absent)]
        self._model.end_tool(name, touched, needed)
        return True

    def _named(self, paths: Mapping[bytes, State]) -> list[bytes]:
        """The paths in the worktree that a call touches that names these: links lead further."""
        top = os.fsencode(self._root) + b"/"
        whole = [each for path in paths for each in (top + path, os.path.realpath(top + path))]
        return [each.removeprefix(top) for each in dict.fromkeys(whole) if each.startswith(top)]

    def _changes(self, edit: Edit, actor: str) -> dict[bytes, State]:
        """What an edit comes to now; empty if nothing is there to be edited."""
        tree, blobs = self._model.tree, self._model.blobs
        match edit:
            case Write(path, mode):
                lines = tuple((self._lines.fresh(actor),) for _ in range(SLOTS))
                new = blobs.file(document(lines), stat.S_IFREG | mode)
                return {**clearing(tree, path), path: new}
            case Link(path, to):
                return {**clearing(tree, path), path: blobs.file(to, LINK)}
            case Delete(which) | Rename(which):
                return self._moved(which, edit.to if isinstance(edit, Rename) else None)
            case EditSlot() | Patch() | Chmod():
                return self._edited(edit, actor)

    def _moved(self, which: int, to: bytes | None) -> dict[bytes, State]:
        files = sorted(self._model.tree.files)
        if not files:
            return {}
        path = files[which % len(files)]
        if to is None:
            return {path: Absent()}
        state = self._model.tree.files[path]
        return {path: Absent(), **clearing(self._model.tree, to), to: state}

    def _edited(self, edit: EditSlot | Patch | Chmod, actor: str) -> dict[bytes, State]:
        blobs = self._model.blobs
        found = self._model.tree.files.items()
        files = sorted(path for path, state in found if stat.S_ISREG(state.mode))
        if not files:
            return {}
        path = files[edit.which % len(files)]
        state = self._model.tree.files[path]
        content = blobs[state.blob]
        match edit:
            case EditSlot(_, chosen, count):
                slots = slots_of(content)
                if slots is None:
                    return {}
                slot = self._own_slot(actor) if chosen is None else chosen
                fresh = tuple(self._lines.fresh(actor) for _ in range(count))
                content = document((*slots[:slot], fresh, *slots[slot + 1 :]))
            case Patch(_, at, cut):
                lines = split(content)
                lines[at : at + cut] = [self._lines.fresh(actor)]
                content = b"".join(lines)
            case Chmod(_, mode):
                return {path: Present(state.blob, stat.S_IFREG | mode)}
        return {path: blobs.file(content, state.mode)}

    def _own_slot(self, actor: str) -> int:
        return self._names.index(actor) if actor in self._names else SLOTS - 1

    # Reverts.

    async def _revert(self, name: str, action: Revert) -> None:
        await self._end_turn(name)
        session, member, wanted = self._sessions[name], self._model.members[name], action.wanted
        places = member.places()
        if not places:
            return
        message, part, boundary = places[-1 - action.back % len(places)]
        files = None if wanted.files is None else [*wanted.files]
        ask = partial(
            session.revert,
            message,
            part,
            strategy=wanted.strategy,
            scope=wanted.scope,
            files=files,
        )
        foreseen = self._model.revert(name, boundary, wanted)
        told = None
        if action.dry_run:
            told = await ask(dry_run=True)
            assert not told.applied
            self._check_tree()
        receipt = await ask()
        if told is not None:
            assert (told.files, told.notes) == (receipt.files, receipt.notes)
        if member.has_chosen:
            foreseen = self._seen(foreseen, receipt)
        self._check_receipt(receipt, foreseen)
        was_pending = bool(member.pending)
        before = self._model.tree
        if foreseen.applied:
            self._model.reverted(name, foreseen, boundary, wanted)
        await self._check_undone(session, foreseen)
        if action.and_back and foreseen.applied:
            await self._unrevert(name)
            if not was_pending:
                assert self._model.tree.files == before.files

    async def _unrevert(self, name: str) -> None:
        await self._end_turn(name)
        if not self._model.members[name].pending:
            assert (await self._sessions[name].unrevert()).files == []
            return
        foreseen = self._model.unrevert(name)
        receipt = await self._sessions[name].unrevert()
        if self._model.members[name].has_chosen:
            foreseen = self._seen(foreseen, receipt)
        self._check_receipt(receipt, foreseen)
        self._model.unreverted(name, foreseen)
        await self._check_undone(self._sessions[name], foreseen)

    def _check_receipt(self, receipt: Receipt, foreseen: Foreseen) -> None:
        self._figures["undoings"] += 1
        for entry in receipt.files:
            self._figures[entry.outcome.value] += 1
            if entry.outcome.value == "conflict":
                self._figures[f"conflict: {entry.reason}"] += 1
        told = [(each.path_bytes, each.outcome, each.reason, each.source) for each in receipt.files]
        assert told == [(e.path, e.outcome, e.reason, e.source) for e in foreseen.entries]
        assert receipt.applied == foreseen.applied

    async def _check_undone(self, session: Session, foreseen: Foreseen) -> None:
        """Nobody lost anything, and all that was there before can still be read."""
        self._check_tree()
        undoing = foreseen.undoing
        happened = Known(self._model)
        if self._model.members[undoing.session.name].has_chosen:
            judge_kept(happened, undoing)
        else:
            judge_plan(happened, undoing)
            judge_files(happened, undoing)
            self._check_deletions(undoing)
        await self._check_readable(session, undoing)

    async def _check_readable(self, session: Session, undoing: Undoing) -> None:
        snapshots = (await session.snapshots()).snapshots
        for path, state in undoing.before.files.items():
            if undoing.after.files.get(path) != state:
                assert snapshots.read(state.blob) == self._model.blobs[state.blob]

    def _seen(self, foreseen: Foreseen, receipt: Receipt) -> Foreseen:
        """What a revert of a session came to of which calls were undone by choice: there are more
        ways to take out the same then. What it is about is foreseen all the same."""
        after = scanned(self._root, self._model.blobs)
        seen = self._model.seen(foreseen.undoing, receipt, after)
        assert [each.path for each in seen.entries] == [each.path for each in foreseen.entries]
        is_conflict = any(each.outcome.value == "conflict" for each in receipt.files)
        stopped = foreseen.undoing.strategy == "abort" and is_conflict
        assert receipt.applied == (not stopped)
        told = {each.path for each in seen.entries if each.outcome in CHANGES}
        assert {step.path for step in seen.undoing.plan.steps} == told
        return seen

    # Chosen calls.

    async def _choose(self, name: str, action: Choose) -> None:
        await self._end_turn(name)
        arguments, rows = named(self._model.members[name], action)
        if not rows or not (arguments or action.files):
            return
        before = self._model.tree
        taken = await self._do_chosen(name, action, arguments, rows)
        if taken and action.and_back:
            back = replace(action, is_redo=not action.is_redo, strategy="merge", dry_run=True)
            # Nothing else may go or come with it.
            parts = {(row.pos, row.part) for row in taken}
            member = self._model.members[name]
            same = [row for row in member.rows if (row.pos, row.part) in parts]
            arguments = {"parts": sorted({part for _, part in parts})}
            wanted = Wanted(files=action.files)
            about = self._model.chosen(name, same, wanted, is_redo=back.is_redo)
            if {row.record for row in about} == {row.record for row in taken}:
                await self._do_chosen(name, back, arguments, same)
                self._figures["chosen and back"] += 1
                self._check_back(before)
        if action.reopens:
            await self._reopen()
            await check_marks(self._sessions[name], self._model.members[name])

    def _check_back(self, before: Tree) -> None:
        """There and back is as before, but for what the last check leaves in place: it cannot
        always tell a content that was put back from one that was moved here."""
        if self._withheld:
            self._figures["chosen and back, some withheld"] += 1
        else:
            assert self._model.tree.files == before.files

    async def _do_chosen(
        self, name: str, action: Choose, arguments: Mapping[str, Sequence[str]], rows: Sequence[Row]
    ) -> list[Row]:
        """Undo or redo calls; gives the changes that went or came."""
        session, member = self._sessions[name], self._model.members[name]
        wanted = Wanted(strategy=action.strategy, files=action.files)
        about = self._model.chosen(name, rows, wanted, is_redo=action.is_redo)
        undoing = self._model.undoing_of(name, about, wanted)
        files = None if action.files is None else [*action.files]
        act = session.redo if action.is_redo else session.undo
        ask = partial(
            act,
            parts=arguments.get("parts"),
            messages=arguments.get("messages"),
            files=files,
            strategy=action.strategy,
        )
        told = None
        if action.dry_run:
            told = await ask(dry_run=True)
            assert not told.applied
            self._check_tree()
        was_out, pending = set(member.out), session.info.revert
        receipt = await ask()
        if told is not None:
            assert (told.files, told.notes) == (receipt.files, receipt.notes)
        done = self._model.seen(undoing, receipt, scanned(self._root, self._model.blobs))
        stored = await stored_out(self._engine.store, session, member)
        if receipt.applied:
            self._model.did_choose(name, done)
            by_force = settle(self._model, name, done, stored)
        else:
            assert stored == was_out
            assert not done.undoing.plan.steps
            by_force = set()
        self._check_tree()
        happened = Known(self._model)
        judge_chosen(happened, member, done, is_redo=action.is_redo, by_force=by_force)
        await self._check_readable(session, done.undoing)
        await check_marks(session, member)
        await session.refresh()
        assert session.info.revert == pending
        self._withheld = any(entry.reason == ONLY_COPY for entry in receipt.files)
        self._count_chosen(action, receipt, is_pending=bool(member.pending))
        moved = was_out ^ member.out
        return [row for row in member.rows if row.record in moved]

    def _count_chosen(self, action: Choose, receipt: Receipt, *, is_pending: bool) -> None:
        word = "redo" if action.is_redo else "undo"
        self._figures[f"{word} of calls{', a revert pending' * is_pending}"] += receipt.applied
        for entry in receipt.files:
            self._figures[f"{word} of calls: {entry.outcome.value}"] += 1

    def _check_deletions(self, undoing: Undoing) -> None:
        """Deleted is only what the session made itself, and nobody whose change counts changed."""
        if undoing.strategy == "overwrite":
            return
        others = [
            row
            for name, member in self._model.members.items()
            for row in member.rows
            if name != undoing.session.name
        ]
        for step in undoing.plan.steps:
            if isinstance(step.want, Absent):
                own = [e for e in undoing.records[step.path] if e.source is not Source.SHARED]
                assert isinstance(own[0].before, Absent)
                assert is_same(own[-1].after, step.expect)
                assert not any(
                    row.path == step.path and row.number > own[0].number for row in others
                )


def _portions(changes: Mapping[bytes, State], model: Model) -> list[dict[bytes, State]]:
    """What one declared call can do: what is behind a symlink can be named when that is gone."""
    first: dict[bytes, State] = {}
    then: dict[bytes, State] = {}
    for path, state in changes.items():
        now = model.tree.state(path)
        is_link_to_go = isinstance(state, Absent) and isinstance(now, Present) and now.is_link
        (first if is_link_to_go else then)[path] = state
    return [each for each in (first, then) if each]
