"""Runs programs on a real engine and real files, with processes that are killed; the oracle judges
what is on disk afterwards."""

import asyncio
import base64
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

import kedge
from kedge._failpoints import armed
from kedge.domain.receipts import Receipt
from kedge.engine.engine import Engine
from kedge.engine.parts import ToolCall
from kedge.engine.session import Session
from kedge.engine.steps import Step
from kedge.engine.turns import Turn
from kedge.store.queries.plans import open_plans
from tests.support.timeouts import PATIENCE
from tests.undo_fuzz.oracle import (
    Undoing,
    Violation,
    check_diff,
    judge,
    judge_broken,
    undoing_of,
)
from tests.undo_fuzz.program import (
    IGNORE_RULES,
    PERSON,
    SESSIONS,
    Action,
    BrokenRevert,
    CloseShell,
    Declared,
    EndStep,
    EndTurn,
    Fork,
    InShell,
    Killed,
    Op,
    OpenShell,
    Program,
    RedoCalls,
    Reopen,
    Revert,
    Save,
    Shell,
    UndoCalls,
    Unrevert,
)
from tests.undo_fuzz.world import (
    CHANGES,
    OWN,
    Entries,
    Entry,
    File,
    Record,
    Row,
    State,
    Tree,
    Undone,
    Wanted,
    World,
    above,
    again,
    is_behind_link,
    missing_folders,
    others,
    standing_by_path,
)

GONE = "nothing is left there of what was to be undone or put back"
_TOP = Path(__file__).parents[2]
_OUTSIDE = (".git", ".gitignore")
"""What is in the folder and not in the world."""
_LINE = re.compile(rb"^([+-])(\d.*)$", re.MULTILINE)
_SETTINGS = kedge.Settings(stop_patience=PATIENCE, snapshot_budget=PATIENCE)


def run(program: Program, figures: Counter[str] | None = None, *, git: bool = True) -> None:
    """Run a program in a folder of its own; raises `Violation`."""
    folder = Path(tempfile.mkdtemp(prefix="undo-fuzz-"))
    try:
        asyncio.run(
            DiskRun(folder, Counter() if figures is None else figures, git=git).run(program)
        )
    finally:
        shutil.rmtree(folder)


@dataclass
class Busy:
    """A session in a turn."""

    turn: Turn
    step: Step | None = None
    shell: ToolCall | None = None


class Middle:
    """The middle of a revert: comes once."""

    def __init__(self, come: Callable[[], tuple[list[Record], list[Record]]]) -> None:
        self._come = come
        self.came = False
        self.written: tuple[list[Record], list[Record]] = [], []
        """Files and folders that the revert had made by then."""

    def come(self) -> None:
        """It is here."""
        self.came = True
        self.written = self._come()


class DiskRun:
    """One program at work on a real folder."""

    def __init__(self, folder: Path, figures: Counter[str], *, git: bool) -> None:
        self._data = folder / "data"
        self._root = folder / "work"
        self._git = git
        self._figures = figures
        self._world = World(is_real=True)
        self._busy: dict[str, Busy] = {}
        self._sessions: dict[str, Session] = {}
        self._stack = AsyncExitStack()

    async def run(self, program: Program) -> None:
        """Do everything, and look at the files after each action."""
        self._lay()
        async with self._stack:
            await self._open()
            for name in SESSIONS:
                self._sessions[name] = await self._engine.sessions.create()
                self._world.join(name)
            for action in program:
                await self._do(action)
                self._check_tree(action)
            for name in SESSIONS:
                await self._end_turn(name)
                await self._check_diff(name)
        self._figures["rounds"] += 1

    def _lay(self) -> None:
        self._root.mkdir()
        (self._root / ".gitignore").write_text(IGNORE_RULES)
        write_files(self._root, self._world.tree.files)
        if self._git:
            environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
            who = ("-c", "user.name=a", "-c", "user.email=a@b")
            for command in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "first")):
                subprocess.run(("git", *command), cwd=self._root, env=environment, check=True)

    async def _open(self) -> None:
        opened = kedge.open(
            self._root,
            database=self._data / "kedge.db",
            data_dir=self._data,
            settings=_SETTINGS,
        )
        self._engine: Engine = await self._stack.enter_async_context(opened)
        for name, session in self._sessions.items():
            self._sessions[name] = await self._engine.sessions.get(session.id)

    async def _close_engine(self) -> None:
        for name in list(self._busy):
            await self._end_turn(name)
        await self._stack.aclose()

    def _check_tree(self, action: Action) -> None:
        found = read_files(self._root)
        if found != self._world.tree:
            paths = found.differences(self._world.tree) or ["folders"]
            raise Violation("fuzzer", paths[0], f"the files are not as foreseen after {action}")

    async def _do(self, action: Action) -> None:
        match action:
            case Save(op):
                self._write(self._world.changes(op, PERSON))
            case Declared(who, op, meanwhile):
                await self._declared(who, op, meanwhile)
            case Shell(who, ops):
                await self._shell(who, ops)
            case OpenShell(who):
                await self._open_shell(who)
            case InShell(who, op) if self._world.is_running(who):
                self._write(self._world.changes(op, who))
            case CloseShell(who):
                await self._close_shell(who)
            case _:
                await self._do_other(action)

    async def _do_other(self, action: Action) -> None:
        match action:
            case EndStep(who):
                await self._end_step(who)
            case EndTurn(who):
                await self._end_turn(who)
            case Fork(who):
                await self._fork(who)
            case Revert():
                await self._revert(action)
            case Unrevert(who):
                await self._unrevert(who)
            case UndoCalls() | RedoCalls():
                await self._of_calls(action)
            case Reopen():
                await self._close_engine()
                await self._open()
            case Killed():
                await self._killed(action)
            case BrokenRevert():
                await self._broken_revert(action)

    # Turns and calls.

    async def _step(self, who: str) -> Step:
        if who not in self._busy:
            turn = self._sessions[who].turn("Go on")
            await turn.__aenter__()
            self._busy[who] = Busy(turn)
            self._world.prompt(who, turn.message.id)
        busy = self._busy[who]
        if busy.step is None:
            busy.step = busy.turn.step()
            await busy.step.__aenter__()
            self._world.answer(who, busy.step.message.id)
        return busy.step

    async def _open_shell(self, who: str) -> None:
        if not self._world.is_running(who):
            call = (await self._step(who)).tool("bash", {}, effects="unknown")
            await call.__aenter__()
            self._busy[who].shell = call
            self._world.begin_shell(who, call.part.id)

    async def _close_shell(self, who: str) -> None:
        busy = self._busy.get(who)
        if busy is not None and busy.shell is not None:
            await busy.shell.__aexit__(None, None, None)
            busy.shell = None
            self._world.end_shell(who)

    async def _end_step(self, who: str) -> None:
        await self._close_shell(who)
        busy = self._busy.get(who)
        if busy is not None and busy.step is not None:
            await busy.step.__aexit__(None, None, None)
            busy.step = None
            self._world.look()

    async def _end_turn(self, who: str) -> None:
        await self._end_step(who)
        if who in self._busy:
            await self._busy.pop(who).turn.__aexit__(None, None, None)

    async def _shell(self, who: str, ops: Sequence[Op]) -> None:
        was_running = self._world.is_running(who)
        await self._open_shell(who)
        for op in ops:
            self._write(self._world.changes(op, who))
        if not was_running:
            await self._close_shell(who)

    async def _declared(self, who: str, op: Op, meanwhile: Op | None) -> None:
        changes = self._world.changes(op, who)
        if not changes:
            return
        if is_behind_link(self._world.tree, changes):
            await self._shell(who, (op,))
            return
        step = await self._step(who)
        missing = missing_folders(self._world.tree, changes)
        call = step.tool("write", {}, reads=list(changes), writes=list(changes))
        await call.__aenter__()
        self._world.begin_declared(who, call.part.id, changes)
        if meanwhile is not None:
            self._write(self._world.changes(meanwhile, PERSON))
            changes = again(self._world.tree, changes)
        self._write(changes)
        await call.__aexit__(None, None, None)
        self._world.end_declared(who, missing & self._world.tree.folders)

    def _write(self, changes: Mapping[str, State]) -> None:
        write_files(self._root, changes)
        self._world.write(changes)

    async def _fork(self, who: str) -> None:
        """A fork owns nothing of what the copied messages did."""
        await self._end_turn(who)
        fork = await self._sessions[who].fork()
        for message in (await fork.messages()).messages[:1]:
            receipt = await fork.revert(message.info.id, dry_run=True)
            if receipt.files:
                raise Violation("fork", receipt.files[0].path, "undone, though it is the origin's")
        if diffs := await fork.diff():
            raise Violation("fork", str(diffs[0].file), "in the diff, though it is the origin's")
        self._sessions[who] = fork
        self._world.join(who)

    # Undos.

    async def _revert(self, action: Revert) -> None:
        who = action.who
        await self._end_turn(who)
        places = self._world.members[who].places()
        if not places:
            return
        message, part, place = places[-1 - action.back % len(places)]
        wanted = Wanted(action.strategy, action.scope, action.files)
        ask = partial(
            self._sessions[who].revert,
            message,
            part,
            strategy=action.strategy,
            scope=action.scope,
            files=action.files,
        )
        told = await ask(dry_run=True)
        self._check_tree(action)
        before, pending = self._world.tree.copy(), bool(self._world.members[who].pending)
        rows = self._world.reverting(who, place)
        receipt = await ask()
        _check_dry_run(told, receipt)
        undoing = self._judged(who, rows, wanted, receipt)
        if not undoing.applied:
            return
        self._world.reverted(who, place, wanted, undoing.after, undoing.entries)
        await self._check_diff(who)
        if action.and_back:
            await self._unrevert(who)
            if not pending and self._world.tree.files != before.files:
                path = self._world.tree.differences(before)[0]
                raise Violation("way back", path, "not as before after revert and unrevert")

    async def _unrevert(self, who: str) -> None:
        await self._end_turn(who)
        rows = self._world.unreverting(who)
        is_pending = bool(self._world.members[who].pending)
        receipt = await self._sessions[who].unrevert()
        if is_pending:
            undoing = self._judged(who, rows, Wanted(), receipt)
            self._world.unreverted(who, undoing.after, undoing.entries)
            await self._check_diff(who)
        elif receipt.files:
            raise Violation("receipt", receipt.files[0].path, "unreverted, with nothing pending")

    async def _of_calls(self, action: UndoCalls | RedoCalls) -> None:
        if isinstance(action, UndoCalls):
            await self._undo_calls(action)
        else:
            await self._redo_calls(action)

    async def _undo_calls(self, action: UndoCalls) -> None:
        who = action.who
        await self._end_turn(who)
        member = self._world.members[who]
        calls = [call for message in member.messages for call in message.calls]
        chosen = calls[::-1][action.first :: action.step][: action.count]
        if not chosen or member.pending:
            return
        rows = self._world.undoing(who, {order for _, order in chosen})
        parts = [id for id, _ in chosen]
        before = self._world.tree.copy()
        told = await self._sessions[who].undo(parts=parts, dry_run=True)
        self._check_tree(action)
        receipt = await self._sessions[who].undo(parts=parts)
        _check_dry_run(told, receipt)
        undoing = self._judged_calls(who, rows, receipt, applied=receipt.applied)
        moot = {path for path, each in undoing.entries.items() if each.reason == GONE}
        if not receipt.applied:
            return
        self._world.undid(who, rows, undoing.after, undoing.entries, moot)
        await self._check_diff(who)
        self._figures["undos of calls"] += 1
        if action.and_back:
            await self._take_back(who, self._world.members[who].undone[-1])
            if self._world.tree.files != before.files:
                path = self._world.tree.differences(before)[0]
                raise Violation("way back", path, "not as before after undo and redo")

    async def _redo_calls(self, action: RedoCalls) -> None:
        await self._end_turn(action.who)
        member = self._world.members[action.who]
        if member.undone and not member.pending:
            await self._take_back(action.who, member.undone[action.which % len(member.undone)])

    async def _take_back(self, who: str, undone: Undone) -> None:
        """Redo all that an undo took out, and nothing else."""
        member = self._world.members[who]
        orders = {row.order for row in undone.rows}
        if {row for row in member.out if row.order in orders} != set(undone.rows):
            return
        parts = [
            id for message in member.messages for id, order in message.calls if order in orders
        ]
        if not parts:
            return
        receipt = await self._sessions[who].redo(parts=parts)
        paths = {record.path for record in undone.records}
        rows = [Row(0, 0, record) for record in undone.records]
        untouched = [
            each
            for each in receipt.files
            if each.path not in paths and each.outcome.value not in CHANGES
        ]
        shown = [each for each in receipt.files if each not in untouched]
        seen = msgspec.structs.replace(receipt, files=shown)
        undoing = self._judged_calls(who, rows, seen, applied=receipt.applied)
        if receipt.applied:
            entries = _entries(receipt)
            moot = {path for path, each in entries.items() if each.reason == GONE}
            stays = {path: replace(entries[path], outcome="conflict") for path in moot}
            self._world.redid(who, undone, undoing.after, entries | stays)
            await self._check_diff(who)
            self._figures["redos of calls"] += 1

    def _judged_calls(
        self, who: str, rows: Sequence[Row], receipt: Receipt, *, applied: bool
    ) -> Undoing:
        after = read_files(self._root)
        entries = _entries(receipt)
        undoing = undoing_of(self._world, who, rows, Wanted(), entries, after, applied=applied)
        judge(self._world, undoing, self._figures)
        return undoing

    def _judged(self, who: str, rows: Sequence[Row], wanted: Wanted, receipt: Receipt) -> Undoing:
        after = read_files(self._root)
        entries = _entries(receipt)
        applied = receipt.applied
        conflicts = any(entry.outcome == "conflict" for entry in entries.values())
        if applied == (wanted.strategy == "abort" and conflicts):
            raise Violation("abort", "", f"applied is {applied}")
        undoing = undoing_of(self._world, who, rows, wanted, entries, after, applied=applied)
        judge(self._world, undoing, self._figures)
        return undoing

    async def _check_diff(self, who: str) -> None:
        """What the session is said to have changed is what it did."""
        if self._world.is_blurred:
            return
        said: dict[str, list[tuple[tuple[bytes, ...], tuple[bytes, ...]]]] = {}
        for diff in await self._sessions[who].diff():
            said.setdefault(str(diff.file), []).append(_pair((diff.patch or "").encode()))
        for path, rows in standing_by_path(self._world, who).items():
            own = [row.record for row in rows if row.record.source in OWN]
            everything = [*own, *others(self._world, own)]
            if all(each.sure for each in everything) and not any(map(_is_binary, everything)):
                check_diff(own, others(self._world, own), said.get(path, []))
                self._figures["diffs"] += 1

    # Kills.

    async def _killed(self, action: Killed) -> None:
        """A process dies in a call; a person saves before anybody else looks."""
        who = action.who
        changes = self._first_of(action)
        if not changes or (action.declares and is_behind_link(self._world.tree, changes)):
            return
        await self._close_engine()
        orders = {
            "role": "declared" if action.declares else "shell",
            "paths": list(changes),
            "changes": _encoded(changes),
        }
        with self._victim(who, orders) as process:
            assert process.stdout is not None
            prompt, answer, part = json.loads(process.stdout.readline())
            process.kill()
        self._world.prompt(who, prompt)
        self._world.answer(who, answer)
        missing: set[str] = set()
        if action.declares:
            missing = missing_folders(self._world.tree, changes)
            self._world.begin_declared(who, part, changes)
        else:
            self._world.begin_shell(who, part)
        self._world.write(changes)
        self._world.end_killed(who, missing & self._world.tree.folders)
        if action.after is not None:
            self._write(self._world.changes(action.after, PERSON))
        self._figures["kills"] += 1
        await self._open()

    def _first_of(self, action: Killed) -> dict[str, State]:
        """What the first operation of a call comes to that comes to anything."""
        found = (self._world.changes(op, action.who) for op in action.ops)
        return next((changes for changes in found if changes), {})

    async def _broken_revert(self, action: BrokenRevert) -> None:
        """A process dies in a revert, or a person saves in the middle of it."""
        who = action.who
        await self._end_turn(who)
        places = self._world.members[who].places()
        if not places:
            return
        message, part, place = places[-1 - action.back % len(places)]
        rows, before = self._world.reverting(who, place), self._world.tree.copy()
        middle = Middle(partial(self._in_the_middle, action))
        if action.killed:
            await self._close_engine()
            orders = {"role": "revert", "message": message, "part": part}
            with self._victim(who, orders, point=action.point) as process:
                process.communicate()
                self._figures["kills"] += process.returncode != 0
            middle.come()
            await self._open()
            receipt = await self._pending_receipt(who)
        else:
            with armed(action.point, middle.come):
                receipt = await self._sessions[who].revert(message, part)
            self._figures["disturbed"] += middle.came
            if not middle.came:
                middle.come()
        after = read_files(self._root)
        if receipt is None:
            if after.files != self._world.tree.files:
                path = after.differences(self._world.tree)[0]
                raise Violation("broken", path, "changed without a plan")
            return
        entries = _entries(receipt)
        undoing = undoing_of(self._world, who, rows, Wanted(), entries, after, applied=True)
        judge_broken(self._world, undoing, before, self._figures)
        self._world.is_blurred = True
        self._world.reverted(who, place, Wanted(), after, entries, middle.written)

    def _in_the_middle(self, action: BrokenRevert) -> tuple[list[Record], list[Record]]:
        """Note what a revert has written so far, and let a person save."""
        written = self._world.carried_out(action.who, read_files(self._root, own=False))
        if action.meanwhile is not None:
            changes = self._world.changes(action.meanwhile, PERSON)
            self._world.disturbed.update(changes)
            self._write(changes)
        return written

    async def _pending_receipt(self, who: str) -> Receipt | None:
        """What the newest pending revert said in the end; None if there is none."""
        session = self._sessions[who]
        await session.refresh()
        plans = await self._engine.store.read(partial(open_plans, session.id))
        known = len(self._world.members[who].pending)
        return plans[-1].data.receipt if len(plans) > known else None

    def _victim(
        self, who: str, orders: Mapping[str, object], *, point: str | None = None
    ) -> "subprocess.Popen[bytes]":
        """A process that does as it is told, and is to be killed."""
        environment = {key: value for key, value in os.environ.items() if key != "KEDGE_FAILPOINT"}
        if point is not None:
            environment["KEDGE_FAILPOINT"] = point
        whole = {
            **orders,
            "root": str(self._root),
            "data": str(self._data),
            "session": self._sessions[who].id,
        }
        pipe = subprocess.PIPE
        return subprocess.Popen(
            (sys.executable, "-m", "tests.undo_fuzz.victim", json.dumps(whole)),
            cwd=_TOP,
            env=environment,
            stdin=pipe,
            stdout=pipe,
        )


def write_files(root: Path, changes: Mapping[str, State]) -> None:
    """Make paths hold states, deletions first, as the world does; what is moved is renamed."""
    moves = _moves(root, changes)
    for path, state in changes.items():
        place = root / path
        if state is None and path not in moves and os.path.lexists(place):
            place.unlink()
    for old, new in moves.items():
        _make_room(root / new)
        (root / old).rename(root / new)
    for path, state in changes.items():
        if state is not None and path not in moves.values():
            _put(root / path, state)


def _moves(root: Path, changes: Mapping[str, State]) -> dict[str, str]:
    """The files that go from one path to another, as they are."""
    moves: dict[str, str] = {}
    for old in (path for path, state in changes.items() if state is None):
        if os.path.lexists(root / old):
            found = _read(root / old)
            new = [path for path, state in changes.items() if state == found]
            if len(new) == 1 and old not in above(new[0]) and new[0] not in moves.values():
                moves[old] = new[0]
    return moves


def _make_room(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        # The world makes sure that there are only folders in it.
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)


def _put(place: Path, state: File) -> None:
    _make_room(place)
    if place.is_symlink() or (place.exists() and not state.is_regular):
        place.unlink()
    if state.is_regular:
        place.write_bytes(state.content)
        place.chmod(stat.S_IMODE(state.mode))
    else:
        place.symlink_to(state.content.decode())


def _read(place: Path) -> File:
    mode = place.lstat().st_mode
    content = os.readlink(place).encode() if stat.S_ISLNK(mode) else place.read_bytes()
    return File(content, mode)


def read_files(root: Path, *, own: bool = True) -> Tree:
    """All that is in a folder; without kedge's own short-lived files if a process just died."""
    tree = Tree()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _OUTSIDE]
        for name in (*folders, *files):
            place = Path(folder, name)
            path = place.relative_to(root).as_posix()
            if path in _OUTSIDE or (not own and ".kedge-" in name):
                continue
            if stat.S_ISDIR(place.lstat().st_mode):
                tree.folders.add(path)
            else:
                tree.files[path] = _read(place)
    return tree


def _encoded(changes: Mapping[str, State]) -> dict[str, tuple[str, int] | None]:
    return {
        path: None if state is None else (base64.b64encode(state.content).decode(), state.mode)
        for path, state in changes.items()
    }


def _entries(receipt: Receipt) -> Entries:
    return {
        entry.path: Entry(entry.outcome.value, entry.reason, entry.source)
        for entry in receipt.files
    }


def _check_dry_run(told: Receipt, receipt: Receipt) -> None:
    """What was told beforehand is what happened."""
    if told.applied:
        raise Violation("dry run", "", "it says that it was applied")
    if _entries(told) != _entries(receipt) or told.notes != receipt.notes:
        raise Violation("dry run", "", f"it said {told.files}, and it was {receipt.files}")


def _pair(patch: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The lines that a patch removes, and those that it adds."""
    signs: dict[bytes, list[bytes]] = {b"-": [], b"+": []}
    for found in _LINE.finditer(patch):
        end = b"" if patch[found.end() + 1 :].startswith(b"\\") else b"\n"
        signs[found[1]].append(found[2] + end)
    return tuple(signs[b"-"]), tuple(signs[b"+"])


def _is_binary(record: Record) -> bool:
    states = (record.before, record.after)
    return any(state is not None and b"\0" in state.content for state in states)
