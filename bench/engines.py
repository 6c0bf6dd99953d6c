"""Engines that protect the files of a worktree, ready to be timed, and turns that change files."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import kedge
from bench.scratch import Scratch
from bench.snapshots_sides import left_out_of_collections, wait_until_independent
from bench.trees import Tree

_SETTINGS = kedge.Settings(snapshot_budget=3600)
"""As shipped, but that a snapshot may take as long as it takes: it is to be timed, not refused."""


@asynccontextmanager
async def protecting(scratch: Scratch, tree: Tree) -> AsyncIterator[kedge.Engine]:
    """An engine on a tree, after its first snapshot and all that follows from that."""
    async with scratch.engine(directory=tree.root, settings=_SETTINGS) as engine:
        snapshots = await engine.snapshots()
        await snapshots.track()
        await asyncio.to_thread(wait_until_independent, snapshots.snapshots)
        with left_out_of_collections():
            yield engine


async def changed_by(
    engine: kedge.Engine, change: Callable[[], object]
) -> tuple[kedge.Session, str]:
    """A new session that changed files in a call of unknown effect, and the id of its prompt."""
    session = await engine.sessions.create()
    async with (
        session.turn("Change these files") as turn,
        turn.step() as step,
        step.tool("bash", {}, effects="unknown"),
    ):
        change()
    return session, turn.message.id
