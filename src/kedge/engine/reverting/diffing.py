"""What pending reverts did to files, as text; read from objects, never stored."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kedge.engine.diffs.diffs import ROOM
from kedge.engine.reverting.material import written
from kedge.engine.timeline.formats import restored
from kedge.snapshot.diffs.states import tree_changes
from kedge.snapshot.diffs.texts import git_diff
from kedge.snapshot.values import Change
from kedge.store.verbs.changes import StoredState

if TYPE_CHECKING:
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session


async def reverted_diff(engine: "Engine", session: "Session") -> str:
    """From what was there before the first pending revert to what the last one left."""
    nets: dict[bytes, tuple[StoredState, StoredState]] = {}
    for each in await engine.store.scan(partial(written, session.id)):
        for step in each.steps:
            before, _ = nets.get(step.path, (step.expect, None))
            nets[step.path] = before, step.want
    changes = [
        Change(path, restored(before), restored(after))
        for path, (before, after) in sorted(nets.items())
        if before != after
    ]
    if not changes:
        return ""

    def read() -> str:
        with engine.diffs.archives.opened(session.info.projectID) as store:
            return git_diff(tree_changes(changes), lambda id: store.read(id)[1], room=ROOM)

    return await asyncio.to_thread(read)
