"""Repairs: what the doctor can put in order by itself.

    for each in planned(report): ...
    outcome = await repair(report, data_dir=..., database=...)

Each repair looks again before it changes anything. The rows that it changes or removes are saved in
a file of the data folder first. No repair removes an object of a snapshot.
"""

import asyncio
import base64
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from kedge.domain.clock import Clock, SystemClock
from kedge.domain.errors import KedgeError
from kedge.domain.ids import IdMaker
from kedge.engine.doctor.findings import KINDS, Finding, Report
from kedge.engine.engine import Engine
from kedge.engine.open import open_store
from kedge.engine.os_process import machine
from kedge.engine.processes import end_processes
from kedge.engine.settings import Settings, data_folder, database_address, make_private_folder
from kedge.store.queries import repairs
from kedge.store.queries.checkup import examine_session, is_id
from kedge.store.queries.grants import end_rules
from kedge.store.queries.processes import processes_of
from kedge.store.queries.search import index_anew
from kedge.store.transaction import ScriptMaker

_FOLDER = "repairs"
_OTHERS = 0o077
_OF_A_RUN = ("lease", "request", "ask", "call", "process", "piece", "plan", "message", "part")
_LET_GO = frozenset(
    {
        "message-open",
        "tool-running",
        "ask-open",
        "call-open",
        "process-left",
        "request-open",
        "text-left",
    }
)
_RECOVERED = frozenset({"run-cut-off", "revert-unfinished"})


@dataclass(frozen=True, slots=True)
class Repair:
    """One repair, of everything of its kind in one session, project or file."""

    codes: tuple[str, ...]
    about: str
    does: str
    """What it does, in words."""


@dataclass(slots=True)
class Outcome:
    """What became of repairs."""

    saved: Path | None = None
    """The file with the rows as they were before."""
    done: list[Repair] = field(default_factory=list)
    failed: list[tuple[Repair, str]] = field(default_factory=list)
    """With the reason."""


def planned(report: Report) -> list[Repair]:
    """The repairs of what was found, in the order in which they are made."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for each in report.findings:
        if each.kind.repair:
            found.setdefault((_group(each.code), each.about), []).append(each)
    return [_repair(about, each) for (_, about), each in sorted(found.items())]


def _group(code: str) -> str:
    if code in _LET_GO:
        return "2 let go"
    return "1 recover" if code in _RECOVERED else f"3 {code}"


def _repair(about: str, findings: Sequence[Finding]) -> Repair:
    codes = tuple(dict.fromkeys(each.code for each in findings))
    does = dict.fromkeys(KINDS[code].repair for code in codes)
    what = "; ".join(dict.fromkeys(each.what for each in findings))
    return Repair(codes, about, f"{what}: {'; '.join(does)}")


async def repair(
    plan: Sequence[Repair],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    database: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
) -> Outcome:
    """Carry out repairs, each by itself."""
    data, now = data_folder(data_dir), clock or SystemClock()
    chosen = settings or Settings()
    outcome = Outcome()
    for each in [each for each in plan if each.codes[0] in _OF_FILES]:
        await _attempt(outcome, each, partial(asyncio.to_thread, _OF_FILES[each.codes[0]], each))
    rest = [each for each in plan if each.codes[0] not in _OF_FILES]
    if not rest:
        return outcome
    ids = IdMaker(now)
    store = await open_store(database_address(database), data, ids)
    engine = Engine(store, data=data, clock=now, ids=ids, random=os.urandom, settings=chosen)
    try:
        work = _Rows(engine, outcome)
        for each in rest:
            await _attempt(outcome, each, partial(work.repair, each))
    finally:
        await engine.close()
    return outcome


async def _attempt(outcome: Outcome, each: Repair, work: Callable[[], Awaitable[bool]]) -> None:
    try:
        is_done = await work()
    except (KedgeError, OSError) as error:
        outcome.failed.append((each, str(error)))
        return
    if is_done:
        outcome.done.append(each)
    else:
        outcome.failed.append((each, "it is no longer as it was found; examine again"))


def _close_folder(each: Repair) -> bool:
    path = Path(each.about)
    path.chmod(path.stat().st_mode & 0o7777 & ~_OTHERS)
    return True


def _complete_store(each: Repair) -> bool:
    from kedge.snapshot.objects.layout import prepare

    prepare(Path(each.about))
    return True


_OF_FILES: dict[str, Callable[[Repair], bool]] = {
    "folder-open": _close_folder,
    "store-incomplete": _complete_store,
}


class _Rows:
    """Repairs in the database."""

    def __init__(self, engine: Engine, outcome: Outcome) -> None:
        self._engine = engine
        self._store = engine.store
        self._outcome = outcome
        self._has_recovered = False

    async def repair(self, each: Repair) -> bool:
        code = each.codes[0]
        if code in _RECOVERED:
            return await self._recover(each.about)
        if code in _LET_GO:
            return await self._let_go(each.about)
        others = {
            "rows-orphaned": self._orphans,
            "lists-differ": self._lists,
            "replay-differs": self._announce,
            "search-ahead": self._index,
            "rule-left": self._rules,
            "reference-not-kept": self._hold,
        }
        return await others[code](each.about)

    async def _recover(self, session_id: str) -> bool:
        await self._save(_OF_A_RUN, session_id)
        if not self._has_recovered:
            await self._engine.recovery.recover()
            self._has_recovered = True
        return True

    async def _let_go(self, session_id: str) -> bool:
        from kedge.engine.timeline.recovery import give_up_calls

        await self._save(_OF_A_RUN, session_id)
        await end_processes(await self._store.read(partial(processes_of, session_id)))
        closing = partial(give_up_calls, session_id, "it was closed by kedge doctor")
        now = self._engine.clock.now()
        return await self._write(partial(repairs.let_go, session_id, now, closing))

    async def _orphans(self, about: str) -> bool:
        table, owner = about.split(" ", 1)
        await self._save((table,), owner)
        return await self._write(partial(repairs.drop_orphans, table, owner))

    async def _lists(self, session_id: str) -> bool:
        await self._save(("session_place", "session"), session_id)
        return await self._write(partial(repairs.list_anew, session_id))

    async def _announce(self, session_id: str) -> bool:
        await self._save(("event",), session_id)
        now = self._engine.clock.now()
        return await self._write(partial(repairs.announce_anew, session_id, now))

    async def _index(self, about: str) -> bool:
        await self._save(("meta",), "search_mark")
        await self._store.write(index_anew)
        await self._engine.upkeep.index()
        return True

    async def _rules(self, owner: str) -> bool:
        await self._save(("permission_rule",), owner)
        await self._store.write(partial(end_rules, owner))
        return True

    async def _hold(self, session_id: str) -> bool:
        found = await self._store.scan(partial(examine_session, session_id, machine()))
        if found is None:
            return False
        ids = found.files | found.shown
        return await asyncio.to_thread(_hold, self._engine.data, session_id, ids)

    async def _write(self, script: ScriptMaker[bool]) -> bool:
        return await self._store.write_bulk(script)

    async def _save(self, tables: Sequence[str], owner: str) -> None:
        lines = []
        for table in tables:
            for found in await self._store.scan(partial(repairs.rows_of, table, owner)):
                line = {"table": table, "owner": owner, "row": [_plain(each) for each in found]}
                lines.append(msgspec.json.encode(line) + b"\n")
        if lines:
            await asyncio.to_thread(self._append, b"".join(lines))

    def _append(self, lines: bytes) -> None:
        if self._outcome.saved is None:
            folder = self._engine.data / _FOLDER
            make_private_folder(folder)
            name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            self._outcome.saved = folder / f"{name}-{os.getpid()}.jsonl"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self._outcome.saved, flags, 0o600), "ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def _plain(value: object) -> object:
    """A column as JSON has it; bytes that are not text are in Base64."""
    if isinstance(value, bytes | memoryview):
        raw = bytes(value)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(raw).decode()}
    return value


def _hold(data: Path, session_id: str, ids: set[str]) -> bool:
    """Hold those contents for a session that a store has, in the store that has them."""
    from kedge.snapshot.objects.formats import TREE
    from kedge.snapshot.objects.store import ObjectStore
    from kedge.snapshot.objects.view import stores_in

    for root in stores_in(data):
        with ObjectStore(root) as store:
            here = {raw for id in ids if is_id(id) and store.has(raw := bytes.fromhex(id))}
            trees = {raw for raw in here if store.read(raw)[0] == TREE}
            store.hold(session_id, here - trees, trees)
    return True
