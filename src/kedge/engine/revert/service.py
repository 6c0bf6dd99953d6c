"""Revert and unrevert, from the request to the receipt."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kedge._async import to_the_end
from kedge.domain.errors import SessionBusy
from kedge.domain.file_states import LEFT, State
from kedge.domain.receipts import Receipt
from kedge.domain.sessions import FileDiff, Idle, SessionSummary
from kedge.engine.diffs.diffs import ROOM
from kedge.engine.diffs.summaries import summarise
from kedge.engine.revert.execution import execute, plan_data
from kedge.engine.revert.lease import leased, stop_tasks
from kedge.engine.revert.material import Material, material_of_revert, material_of_unrevert, written
from kedge.engine.revert.prepare import Asked, Prepared, Preparing
from kedge.engine.revert.receipts import nothing_done
from kedge.engine.revert.recover import Unfinished
from kedge.snapshot.diffs.patches import git_diff
from kedge.snapshot.diffs.trees import tree_changes
from kedge.snapshot.values import Change
from kedge.store.queries.boundaries import Boundary, find_boundary
from kedge.store.queries.changes import task_sessions
from kedge.store.queries.plans import PlanData, PlanKind, open_plans

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session


async def reverted_diff(engine: "Engine", session: "Session") -> str:
    """From the files before the first pending revert to those after the last one."""
    nets: dict[bytes, tuple[State, State]] = {}
    for each in await engine.store.scan(partial(written, session.id)):
        for step in each.steps:
            before, _ = nets.get(step.path, (step.expect, step.want))
            nets[step.path] = before, step.want
    changes = [
        Change(path, before, after)
        for path, (before, after) in sorted(nets.items())
        if before != after
    ]
    if not changes:
        return ""

    def read() -> str:
        with engine.diffs.archives.opened(session.info.projectID) as store:
            return git_diff(tree_changes(changes), lambda id: store.read(id)[1], room=ROOM)

    return await asyncio.to_thread(read)


_NOT_THERE = "there is no such message or part in this session"


class Reverts:
    """The reverts of an engine's sessions."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._unfinished = Unfinished(engine)

    async def revert(
        self, session: "Session", message_id: str, part_id: str | None, asked: Asked
    ) -> Receipt:
        """Take a session back to before a message or part; see `Session.revert`."""
        find = partial(find_boundary, session.id, message_id, part_id)
        boundary = await self._engine.store.read(find)
        if boundary is None:
            await self._check_idle(session)
            return nothing_done(asked.strategy, _NOT_THERE)
        if asked.dry_run:
            # As for a real revert: what a dead process left is recovered first.
            await self._engine.runs.end_dead_run(session.id)
            await self._unfinished.recover_session(session.id)
            material = await self._of_revert(session, boundary)
            preparing = Preparing(self._engine, session, material, asked)
            async with preparing.prepared(boundary) as prepared:
                return prepared.receipt(asked.strategy, applied=False)
        return await to_the_end(self._revert(session, message_id, part_id, asked))

    async def _revert(
        self, session: "Session", message_id: str, part_id: str | None, asked: Asked
    ) -> Receipt:
        await self._unfinished.recover_session(session.id)
        async with leased(self._engine, session.id) as lease:
            await session.refresh()
            find = partial(find_boundary, session.id, message_id, part_id)
            boundary = await self._engine.store.read(find)
            if boundary is None:
                return nothing_done(asked.strategy, _NOT_THERE)
            await self._stop_subtasks(session, boundary)
            material = await self._of_revert(session, boundary)
            preparing = Preparing(self._engine, session, material, asked)
            async with preparing.prepared(boundary) as prepared:
                if asked.strategy == "abort" and prepared.has_conflict:
                    return prepared.receipt(asked.strategy, applied=False)
                data = await self._revert_data(session, boundary, asked, material, prepared)
                kind: PlanKind = "files" if asked.scope == "files" else "revert"
                receipt = await execute(session, lease, kind, data, prepared)
                await summarise(session)
                return receipt

    async def _stop_subtasks(self, session: "Session", boundary: Boundary) -> None:
        """Stop the tasks in the background that what is undone has begun."""
        script = partial(task_sessions, session.id, boundary.pos, boundary.part_id)
        # Told after an unrevert; dropped with the prompt that makes the revert final.
        await stop_tasks(self._engine, await self._engine.store.scan(script))

    async def unrevert(self, session: "Session", *, dry_run: bool) -> Receipt:
        """Restore what the pending reverts of a session took out."""
        await session.refresh()
        if not await self._engine.store.read(partial(open_plans, session.id)):
            await self._check_idle(session)
            return nothing_done("merge")
        if dry_run:
            return await self._as_unreverted(session)
        return await to_the_end(self._unrevert(session))

    async def _as_unreverted(self, session: "Session") -> Receipt:
        """The receipt that `unrevert` would give now."""
        await self._engine.runs.end_dead_run(session.id)
        await self._unfinished.recover_session(session.id)
        material = await material_of_unrevert(self._engine.store, session.id, session.worktree)
        if not material.pending:
            return nothing_done("merge")
        async with Preparing(self._engine, session, material, Asked()).prepared(None) as prepared:
            return prepared.receipt("merge", applied=False)

    async def _unrevert(self, session: "Session") -> Receipt:
        await self._unfinished.recover_session(session.id)
        async with leased(self._engine, session.id) as lease:
            await session.refresh()
            material = await material_of_unrevert(self._engine.store, session.id, session.worktree)
            if not material.pending:
                return nothing_done("merge")
            asked = Asked()
            preparing = Preparing(self._engine, session, material, asked)
            async with preparing.prepared(None) as prepared:
                receipt = prepared.receipt(asked.strategy, applied=True)
                data = plan_data(self._engine, receipt, prepared)
                receipt = await execute(session, lease, "unrevert", data, prepared)
                await summarise(session)
                return receipt

    async def _check_idle(self, session: "Session") -> None:
        """When nothing can be done now, that may be different once the session is idle."""
        if not isinstance(await session.status(), Idle):
            raise SessionBusy(session.id)

    async def reverted_diff(self, session: "Session") -> str:
        """What the pending reverts of a session did to files, as `git diff` text."""
        return await reverted_diff(self._engine, session)

    async def recover_session(self, session_id: str) -> None:
        """Complete what a dead process left unfinished in one session."""
        await self._unfinished.recover_session(session_id)

    async def _of_revert(self, session: "Session", boundary: Boundary) -> Material:
        store = self._engine.store
        return await material_of_revert(store, session.id, session.worktree, boundary)

    async def _revert_data(
        self,
        session: "Session",
        boundary: Boundary,
        asked: Asked,
        material: Material,
        prepared: Prepared,
    ) -> PlanData:
        first = session.info.revert
        taken = prepared.snapshot.id if prepared.snapshot else None
        diffs = await self._diffs(session, material, prepared)
        summary = session.info.summary if asked.scope == "files" else _summed(diffs)
        plain = plan_data(self._engine, prepared.receipt(asked.strategy, applied=True), prepared)
        return msgspec.structs.replace(
            plain,
            messageID=boundary.message_id,
            boundaryPartID=boundary.part_id,
            pos=boundary.pos,
            snapshot=first.snapshot if first and first.snapshot else taken,
            summary=summary,
            before=session.info.summary,
            diffs=diffs,
            leaves_files=asked.scope == "messages",
            files=None if asked.files is None else list(asked.files),
        )

    async def _diffs(
        self, session: "Session", material: Material, prepared: Prepared
    ) -> list[FileDiff]:
        """The undone changes, for subscribers."""
        left = {entry.path for entry in prepared.plan.entries if entry.outcome in LEFT}
        undone = [
            change
            for change in material.changes
            if (path := change.path_from(material.root)) is not None and path not in left
        ]
        return await self._engine.diffs.outlines(session, undone) if undone else []


def _summed(diffs: list[FileDiff]) -> SessionSummary:
    return SessionSummary(
        additions=sum(diff.additions for diff in diffs),
        deletions=sum(diff.deletions for diff in diffs),
        files=len(diffs),
    )
