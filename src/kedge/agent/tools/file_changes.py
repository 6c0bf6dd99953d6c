"""Changes of files by tools: read, ask with the diff, lock, check again, write all files or
none."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from kedge._async import to_the_end
from kedge._failpoints import reach
from kedge.agent.tools.paths import FilePlace, is_same_place
from kedge.agent.tools.tool import ToolFailure
from kedge.domain.errors import FileBusy, FileChanged, InvalidPath, WriteFailed
from kedge.domain.text import printable
from kedge.engine.files.edits import (
    LONGEST_DIFF,
    Edit,
    FileWork,
    Found,
    TextDiff,
    look,
    mode_of_new_file,
    put,
    text_diff,
    work_of,
)

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call
    from kedge.engine.turns import Turn


@dataclass(frozen=True, slots=True)
class Replacement:
    """New content for a place; None deletes the file."""

    place: FilePlace
    before: Found
    after: bytes | None
    mode: int | None = None
    """Type and permission bits of a new file; an existing one keeps its own."""

    @property
    def edit(self) -> Edit:
        """The same for the engine."""
        return Edit(self.place.root, self.place.below, self.before, self.after, self.mode)


Plan: TypeAlias = Callable[[Mapping[FilePlace, Found]], Sequence[Replacement]]
"""Computes the new contents of files from the current ones."""

_ALONE: "WeakKeyDictionary[Turn, dict[Path, asyncio.Lock]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Changed:
    """The outcome of one file."""

    place: FilePlace
    before: Found
    diff: TextDiff

    @property
    def filediff(self) -> dict[str, Any]:
        """In the form that clients of OpenCode draw."""
        return {
            "file": printable(self.place.path),
            "patch": self.diff.text,
            "additions": self.diff.additions,
            "deletions": self.diff.deletions,
        }


async def change(
    call: "Call", places: Sequence[FilePlace], plan: Plan, *, unseen: bool
) -> list[Changed]:
    """Change files as planned, if that is permitted.

    With `unseen`, also files that the session has never read: the plan says what it expects to
    find. A file that changed since the session read it is never written.
    """
    for place in places:
        if place.is_inside_git:
            raise ToolFailure(
                f"{printable(place.path)} is inside of .git, where kedge writes nothing. Use git "
                "commands."
            )
        await call.ask_outside(place.path)
    async with _alone(call, places):
        found = await asyncio.to_thread(_look, places)
        replacements = await asyncio.to_thread(plan, found)
        told = await asyncio.to_thread(_told, replacements)
        await call.ask("edit", _patterns(places), metadata=_metadata(told))
        work = await asyncio.to_thread(work_of, [each.edit for each in replacements])
        may_write = call.still_at_work()
        await _declare(call, places, work, unseen)
        reach("steps-stored")
        if await asyncio.to_thread(_look, places) != found or not all(map(is_same_place, places)):
            raise ToolFailure(
                "A file changed after it was looked at, and nothing was written. Read it again, "
                "then try again."
            )
        writing = partial(put, work, tag=call.part_id, may_write=may_write)
        try:
            await to_the_end(asyncio.to_thread(writing))
        except WriteFailed as failure:
            raise ToolFailure(str(failure)) from failure
        reach("steps-done")
    for changed in told:
        call.edited(changed.place.path)
    return told


@asynccontextmanager
async def _alone(call: "Call", places: Sequence[FilePlace]) -> AsyncIterator[None]:
    """One call of a turn at a time, so that each asks about what it will really do."""
    locks = _ALONE.setdefault(call.step.turn, {})
    async with AsyncExitStack() as held:
        for real in sorted({place.real for place in places}):
            await held.enter_async_context(locks.setdefault(real, asyncio.Lock()))
        yield


async def _declare(call: "Call", places: Sequence[FilePlace], work: FileWork, unseen: bool) -> None:
    # The real paths: a symlink on the way to them is not touched.
    paths = [place.real for place in places]
    unread: list[Path] = []
    while True:
        try:
            await call.writes(*paths, reads=unread, work=work)
        except (FileChanged, FileBusy) as error:
            new = call.worktree.resolve() / error.path
            if isinstance(error, FileBusy) or error.known or not unseen or new in unread:
                raise ToolFailure(f"{error}.") from error
            unread.append(new)
        else:
            return


def _look(places: Sequence[FilePlace]) -> dict[FilePlace, Found]:
    return {place: _found(place) for place in places}


def _found(place: FilePlace) -> Found:
    try:
        return look(place.root, place.below, named=place.path, is_own=place.is_own)
    except InvalidPath as error:
        raise ToolFailure(str(error)) from error


def _told(replacements: Sequence[Replacement]) -> list[Changed]:
    """The diffs, which share the room of one."""
    told = []
    room = LONGEST_DIFF
    for each in replacements:
        diff = text_diff(each.place.path, each.before.content, each.after, max(room, 0))
        room -= len(diff.text.encode())
        told.append(Changed(each.place, each.before, diff))
    return told


def _patterns(places: Sequence[FilePlace]) -> list[str]:
    return list(dict.fromkeys(pattern for place in places for pattern in place.patterns))


def _metadata(told: Sequence[Changed]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "filepath": ", ".join(printable(each.place.path) for each in told),
        "diff": "".join(each.diff.text for each in told),
    }
    omitted = sum(each.diff.omitted for each in told)
    return {**metadata, "omitted": omitted} if omitted else metadata


def new_file(place: FilePlace, before: Found, after: bytes) -> Replacement:
    """New content for a place; an existing file keeps its permission bits."""
    mode = None if before.exists else mode_of_new_file()
    return Replacement(place, before, after, mode)
