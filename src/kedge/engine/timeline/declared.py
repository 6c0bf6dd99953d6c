"""Declared calls: a tool declares what it writes, and the contents before and after are
recorded."""

import logging
import os
import stat
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kedge.domain.errors import FileChanged
from kedge.domain.file_states import Absent, Present, Reason, State, Uncovered
from kedge.engine.timeline.formats import declared_data
from kedge.engine.timeline.timeline import UNPROTECTED, Timeline
from kedge.engine.worktree_paths import NamedPaths, missing_folders
from kedge.snapshot.files.reader import is_same
from kedge.snapshot.files.steps import FileWork, RootedStep
from kedge.store.queries.changes import (
    ChangeSource,
    Home,
    NewChange,
    add_changes,
    get_seen,
    set_seen,
)
from kedge.store.queries.timeline import begin_call, end_call, next_number
from kedge.store.transaction import Script, ScriptMaker

if TYPE_CHECKING:
    from kedge.engine.session import Session

_log = logging.getLogger(__name__)
OUTSIDE = "it is outside of the worktree"
_FOLDER = "it is a folder, and only files can be declared"

PATIENCE = 30.0
"""Seconds that a call waits for another one that writes the same file."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The contents of the paths before the call, or after it."""

    asked: int
    """The newest number of the timeline before anything was inspected."""
    states: dict[bytes, State]
    missing_folders: tuple[bytes, ...]
    """Missing folders of paths that did not exist before the call."""
    folders: tuple[bytes, ...] = ()
    """The paths that are folders."""
    missing_above: tuple[bytes, ...] = ()
    """Missing folders of the files of steps, as whole paths."""


class DeclaredEffects:
    """A call that reads and writes what it declares, and locks each path that it writes."""

    def __init__(
        self,
        timeline: Timeline,
        session: "Session",
        home: Home,
        *,
        reads: NamedPaths,
        writes: NamedPaths,
        work: FileWork | None = None,
    ) -> None:
        self._timeline = timeline
        self._session = session
        self._home = home
        self._reads = reads
        self._writes = writes
        self._work = work
        self._steps = work.steps if work else ()
        self._working = AsyncExitStack()
        """The heartbeat, and the locks of the files."""
        self._found: _Found | None = None

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[ScriptMaker[None]]:
        """Lock the files to be written, and store their current contents."""
        async with AsyncExitStack() as failing:
            failing.push_async_callback(self._working.aclose)
            since: int | None = None
            if self._writes.real:
                since = self._working.enter_context(self._timeline.heartbeat.beating())
            await self._working.enter_async_context(
                self._timeline.locks.locked(self._writes.real, patience=PATIENCE)
            )
            asked = await self._timeline.head()
            states = await identified(self._session, self._reads.inside)
            states |= await captured(self._session, self._writes.inside)
            await self._check_unchanged(states)
            missing = _missing_folders(self._home.worktree, self._written(states))
            above = missing_above(self._steps)
            found = _Found(asked, states, missing, missing_above=above)
            yield partial(self._begin, found, since)
            self._found = found
            failing.pop_all()

    def _begin(self, found: _Found, since: int | None) -> Script[None]:
        if self._writes.inside or self._steps:
            number = yield from next_number()
            data = declared_data(
                self._written(found.states),
                since=since,
                missing=self._missing(found),
                steps=self._steps,
            )
            call = self._timeline.new_call(self._home, "declared", asked=found.asked, data=data)
            yield from begin_call(call, number)

    def _missing(self, found: _Found) -> list[bytes]:
        """All folders that the call may make, as whole paths."""
        top = os.fsencode(self._home.worktree)
        inside = [os.path.join(top, path) for path in found.missing_folders]
        return list(dict.fromkeys((*inside, *found.missing_above)))

    @asynccontextmanager
    async def ending(self) -> AsyncIterator[ScriptMaker[None] | None]:
        """Store the contents after the call, and unlock the files."""
        found, self._found = self._found, None
        async with self._working:
            if found is None:
                yield None
            else:
                if self._writes.real:
                    # Its work is done, and belongs to it even if the process dies from here on.
                    self._timeline.heartbeat.beat()
                looked = await self._timeline.head()
                after = await captured(self._session, self._writes.inside)
                after |= await self._written_by_steps(after)
                missing = _missing_folders(self._home.worktree, self._written(found.states))
                folders = tuple(self._folders(found))
                left = _Found(looked, after, missing, folders)
                yield partial(self._end, found, left)

    def _end(self, found: _Found, left: _Found) -> Script[None]:
        seen = {path: found.states[path] for path in self._reads.inside} | left.states
        yield from set_seen(self._home.session_id, known_blobs(seen))
        if not self._writes.real:
            return
        number = yield from next_number()
        before = self._written(found.states)
        yield from end_call(
            self._home.session_id,
            self._home.part_id,
            machine=self._timeline.machine,
            ended=number,
            data=declared_data(before, left.states, looked=left.asked),
        )
        made = [path for path in found.missing_folders if path not in left.missing_folders]
        changes = [*folder_changes(made), *declared_changes(before, left.states)]
        changes += told(self._writes.outside, OUTSIDE) + told(left.folders, _FOLDER)
        time = self._timeline.clock.now()
        yield from add_changes(self._home, changes, number=number, time=time)

    async def _written_by_steps(self, after: Mapping[bytes, State]) -> dict[bytes, State]:
        """What the call wrote at paths where another program has saved since: the current content
        is not the call's."""
        if self._work is None or not self._work.is_done:
            return {}
        worktree = os.fsencode(self._home.worktree)
        own: dict[bytes, State] = {}
        for each in self._steps:
            path = each.path_in(worktree)
            found = None if path is None else after.get(path)
            if path is None or found is None or isinstance(found, Uncovered):
                continue
            if not is_same(found, each.step.want):
                own[path] = each.step.want
        blobs = [state.blob for state in own.values() if isinstance(state, Present)]
        if blobs:
            snapshots = await self._session.snapshots()
            contents = [self._work.contents[blob] for blob in blobs]
            await snapshots.put_blobs(contents, session=self._session.id)
        return own

    def _folders(self, found: _Found) -> Iterator[bytes]:
        """Paths where there is a folder now and no file before that could be restored."""
        for path, state in self._written(found.states).items():
            if not isinstance(state, Present) and is_folder(self._home.worktree, path):
                yield path

    def _written(self, states: Mapping[bytes, State]) -> dict[bytes, State]:
        return {path: states[path] for path in self._writes.inside}

    async def _check_unchanged(self, states: Mapping[bytes, State]) -> None:
        """Refuse to overwrite content that the session does not know."""
        read_now = set(self._reads.inside)
        paths = [path for path in self._writes.inside if path not in read_now]
        script = partial(get_seen, self._home.session_id, paths)
        seen = await self._timeline.store.read(script)
        for path in paths:
            state = states[path]
            if isinstance(state, Uncovered):
                continue
            blob = state.blob if isinstance(state, Present) else None
            if path not in seen and blob is not None:
                raise FileChanged(os.fsdecode(path), known=False)
            if path in seen and seen[path] != blob:
                raise FileChanged(os.fsdecode(path), known=True)


def known_blobs(states: Mapping[bytes, State]) -> list[tuple[bytes, str | None]]:
    """The known contents of paths, to be recorded as seen; no blob means that nothing is there."""
    return [
        (path, state.blob if isinstance(state, Present) else None)
        for path, state in states.items()
        if not isinstance(state, Uncovered)
    ]


async def identified(session: "Session", paths: Collection[bytes]) -> dict[bytes, State]:
    """The contents that the tool reads; only identified and not stored, as they may be secret or
    large."""

    async def identify() -> dict[bytes, State]:
        return await (await session.snapshots()).identify(paths)

    return await _looked_at(identify, paths)


async def captured(session: "Session", paths: Collection[bytes]) -> dict[bytes, State]:
    """The contents at paths that the tool writes, stored for the session."""

    async def capture() -> dict[bytes, State]:
        return await (await session.snapshots()).capture(paths, session=session.id)

    return await _looked_at(capture, paths)


async def _looked_at(
    look: Callable[[], Awaitable[dict[bytes, State]]], paths: Collection[bytes]
) -> dict[bytes, State]:
    try:
        return await look() if paths else {}
    except (*UNPROTECTED, OSError) as error:
        # The tool works anyway; the receipt of a revert will say what is not covered.
        _log.warning("cannot read the files that a tool names: %s", error)
        return dict.fromkeys(paths, Uncovered(Reason.UNREADABLE))


def declared_changes(
    before: Mapping[bytes, State], after: Mapping[bytes, State], source: ChangeSource = "declared"
) -> list[NewChange]:
    """The changes of paths between two inspections."""
    changes = []
    for path, old in before.items():
        new = after[path]
        if isinstance(old, Uncovered) or isinstance(new, Uncovered):
            side = old if isinstance(old, Uncovered) else new
            assert isinstance(side, Uncovered)
            changes.append(
                NewChange(
                    path=path,
                    before=Absent(),
                    after=Absent(),
                    source="uncovered",
                    reason=side.reason,
                )
            )
        elif old != new:
            changes.append(NewChange(path=path, before=old, after=new, source=source))
    return changes


def _missing_folders(worktree: str, states: Mapping[bytes, State]) -> tuple[bytes, ...]:
    """Missing folders of missing paths, parents first."""
    absent = [path for path, state in states.items() if isinstance(state, Absent)]
    return missing_folders(absent, partial(is_folder, worktree))


def missing_above(steps: Iterable[RootedStep]) -> tuple[bytes, ...]:
    """Missing folders of files that steps create, as whole paths."""
    created = [each.real for each in steps if isinstance(each.step.expect, Absent)]
    return missing_folders(created, os.path.isdir)


def folder_changes(made: Iterable[bytes]) -> list[NewChange]:
    return [
        NewChange(path=path, before=Absent(), after=Present("", stat.S_IFDIR), source="folder")
        for path in made
    ]


def told(paths: Iterable[bytes], reason: str) -> list[NewChange]:
    """The paths that kedge does not cover; those outside the worktree as whole paths."""
    return [
        NewChange(path=path, before=Absent(), after=Absent(), source="uncovered", reason=reason)
        for path in paths
    ]


def is_folder(worktree: str, path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(os.path.join(os.fsencode(worktree), path)).st_mode)
    except OSError:
        return False
