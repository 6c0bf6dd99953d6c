"""Undo and redo of chosen calls, from the request to the receipt."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kedge._async import to_the_end
from kedge.domain.errors import InvalidInput
from kedge.domain.ids import check_id
from kedge.domain.receipts import Receipt
from kedge.domain.sessions import SessionSummary
from kedge.engine.diffs.summaries import resummed, summarise
from kedge.engine.revert.calls import Calls, calls_to_redo, calls_to_undo
from kedge.engine.revert.execution import execute, plan_data
from kedge.engine.revert.lease import Lease, leased, stop_tasks
from kedge.engine.revert.prepare import Asked, Prepared, Preparing
from kedge.engine.revert.receipts import SNAPSHOTS_OFF, notes_of_calls, nothing_done
from kedge.engine.revert.recover import Unfinished
from kedge.engine.validation import check_list, check_text
from kedge.store.queries.changes import ChangeKey, in_order
from kedge.store.queries.undone import Wanted, family_of, select, subtasks_of

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session


def wanted(
    *, calls: object, parts: object, messages: object, files: Sequence[bytes] | None
) -> Wanted:
    """The calls that are meant, as a caller named them."""
    named = [each for each in (calls, parts, messages) if each is not None]
    if not named and files is None:
        raise InvalidInput("name calls, parts, messages or files")
    found = Wanted(
        is_all=not named,
        calls=tuple(check_text(each, "calls") for each in _listed(calls, "calls")),
        parts=tuple(check_id("prt", each) for each in _listed(parts, "parts")),
        messages=tuple(check_id("msg", each) for each in _listed(messages, "messages")),
    )
    if named and not (found.calls or found.parts or found.messages):
        raise InvalidInput("no call is named")
    return found


def _listed(given: object, name: str) -> Sequence[object]:
    return () if given is None else tuple(check_list(given, name))


class Undoing:
    """Undoes and redoes chosen calls of an engine's sessions."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._unfinished = Unfinished(engine)

    async def undo(self, session: "Session", wanted: Wanted, asked: Asked) -> Receipt:
        """Take chosen calls out of the files; see `Session.undo`."""
        return await self._do(session, wanted, asked, is_redo=False)

    async def redo(self, session: "Session", wanted: Wanted, asked: Asked) -> Receipt:
        """Put undone calls back; see `Session.redo`."""
        if asked.strategy == "overwrite":
            raise InvalidInput("strategy must be merge or abort here", field="strategy")
        return await self._do(session, wanted, asked, is_redo=True)

    async def _do(
        self, session: "Session", wanted: Wanted, asked: Asked, *, is_redo: bool
    ) -> Receipt:
        # What does not exist is told of even while the session runs.
        await self._engine.store.scan(partial(select, session.id, wanted))
        if not asked.dry_run:
            return await to_the_end(self._carry_out(session, wanted, asked, is_redo))
        await self._engine.runs.end_dead_run(session.id)
        await self._unfinished.recover_session(session.id)
        calls = await self._calls(session, wanted, asked, is_redo)
        if calls.words:
            return self._nothing_done(calls, asked)
        async with self._prepared(session, calls, asked) as prepared:
            return await self._receipt(session, calls, prepared, asked, applied=False)

    async def _carry_out(
        self, session: "Session", wanted: Wanted, asked: Asked, is_redo: bool
    ) -> Receipt:
        await self._unfinished.recover_session(session.id)
        async with leased(self._engine, session.id, hides=False) as lease:
            await session.refresh()
            if not is_redo:
                await self._stop_subtasks(session, wanted, asked)
            calls = await self._calls(session, wanted, asked, is_redo)
            if calls.words:
                return self._nothing_done(calls, asked)
            async with self._prepared(session, calls, asked) as prepared:
                return await self._execute(session, lease, calls, prepared, asked)

    def _nothing_done(self, calls: Calls, asked: Asked) -> Receipt:
        notes = [*calls.words, *([] if self._engine.settings.snapshots else [SNAPSHOTS_OFF])]
        return nothing_done(asked.strategy, *notes)

    async def _execute(
        self, session: "Session", lease: Lease, calls: Calls, prepared: Prepared, asked: Asked
    ) -> Receipt:
        keys, counts = calls.settled(prepared)
        stopped = asked.strategy == "abort" and prepared.has_conflict
        if stopped or not keys:
            return await self._receipt(session, calls, prepared, asked, applied=False)
        receipt = await self._receipt(session, calls, prepared, asked, applied=True)
        data = msgspec.structs.replace(
            plan_data(self._engine, receipt, prepared),
            chosen=keys,
            counts=counts,
            summary=await self._summary(session, calls, keys),
        )
        done = await execute(session, lease, "redo" if calls.is_redo else "undo", data, prepared)
        if done.files != receipt.files:
            await summarise(session)
        return done

    async def _calls(
        self, session: "Session", wanted: Wanted, asked: Asked, is_redo: bool
    ) -> Calls:
        gather = calls_to_redo if is_redo else calls_to_undo
        return await gather(self._engine.store, session.info, wanted, asked)

    def _prepared(
        self, session: "Session", calls: Calls, asked: Asked
    ) -> AbstractAsyncContextManager[Prepared]:
        # The calls were chosen by file already.
        everything = replace(asked, files=None)
        return Preparing(self._engine, session, calls.material, everything).prepared(None)

    async def _receipt(
        self,
        session: "Session",
        calls: Calls,
        prepared: Prepared,
        asked: Asked,
        *,
        applied: bool,
    ) -> Receipt:
        notes = [] if calls.is_redo else await notes_of_calls(self._engine, session, calls.parts)
        told = replace(prepared, notes=(*calls.notes, *notes))
        return told.receipt(asked.strategy, applied=applied)

    async def _stop_subtasks(self, session: "Session", wanted: Wanted, asked: Asked) -> None:
        """Stop the tasks in the background that the calls have begun; with files alone, only those
        that changed one of them."""
        store = self._engine.store
        chosen = await store.scan(partial(select, session.id, wanted))
        children = await store.scan(partial(subtasks_of, chosen.parts))
        if wanted.is_all:
            paths = ((each, each.path_from(session.worktree)) for each in chosen.changes)
            there = {each.session_id for each, path in paths if path and asked.includes(path)}
            families = {each: await store.scan(partial(family_of, each)) for each in children}
            children = [each for each in children if families[each] & there]
        await stop_tasks(self._engine, children)

    async def _summary(
        self, session: "Session", calls: Calls, keys: Iterable[ChangeKey]
    ) -> SessionSummary | None:
        """The session's summary when the plan is carried out, unless it tells of a revert."""
        if session.info.revert is not None:
            return None
        chosen = set(keys)
        before = [each for own in calls.standing.values() for each in own]
        after = [each for each in before if each.key not in chosen]
        if calls.is_redo:
            back = [each for own in calls.chosen.values() for each in own if each.key in chosen]
            after = sorted([*before, *back], key=in_order)
        return await resummed(session, before, after)
