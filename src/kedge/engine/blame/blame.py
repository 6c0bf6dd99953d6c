"""Blame: who wrote each line of a file as it is on disk."""

import asyncio
import base64
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from kedge.domain.blame import Blame, BlameLine, LineOrigin
from kedge.domain.errors import (
    InvalidInput,
    InvalidPath,
    PathNotFound,
    PathRefused,
    PathUncovered,
    SnapshotError,
    SnapshotRefused,
    TooLarge,
)
from kedge.domain.file_states import State, Uncovered
from kedge.engine.blame.lines import Read, Sources, writers_of
from kedge.engine.blame.versions import UNKNOWN, Version, Versions, Writer, versions_of
from kedge.engine.diffs.diffs import Bounded
from kedge.engine.timeline.formats import read_declared
from kedge.engine.worktree_paths import AnyPath, find_path
from kedge.snapshot import take
from kedge.snapshot.diffs.lines import MOST_BYTES, split_lines
from kedge.snapshot.files.reader import Content, ReadFailure, read_file
from kedge.snapshot.files.root import FolderAbsent, FolderBlocked, Root, writable_components
from kedge.snapshot.history import View
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.objects.store import ObjectStore
from kedge.snapshot.protection import why_refused
from kedge.store.queries.history import (
    CallInfo,
    FileHistory,
    Opening,
    call_infos,
    file_history,
)
from kedge.store.queries.projects import project_of

if TYPE_CHECKING:
    from kedge.engine.engine import Engine, Place

_ROOM = 2_000_000
"""Lines whose writers are remembered."""
_MOST_LINES = 100_000
"""Lines of one file: a few megabytes of line feeds are as many objects."""
_ATTEMPTS = 3
"""How often a file is looked at whose history grows meanwhile."""
_NOW = 2**62
_FAILURES = {
    ReadFailure.FOLDER: "is a folder, not a file",
    ReadFailure.SPECIAL: "is a pipe, a socket or a device, which has no lines",
    ReadFailure.UNSTABLE: "keeps changing; try again when nobody writes it",
}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file on disk, together with its history."""

    data: bytes
    history: FileHistory
    is_steady: bool
    """Whether nothing that is not recorded yet can have written it but a person."""


class Blames:
    """The blame of the files of an engine's worktrees."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        # By a version and all that led to it: the same content may come twice, from others.
        self._known: Bounded[bytes, list[Writer]] = Bounded(_ROOM)

    async def blame(self, path: AnyPath, place: "Place") -> Blame:
        """Who wrote each line of a file; see `Engine.blame`."""
        root = os.fsencode(place.worktree)
        below = await asyncio.to_thread(_real_path, path, place.directory, place.worktree)
        seen = await self._seen(root, below, place)
        first = seen.history.paths[0]
        if not first.writes:
            self._check_protected(place)
        projects = await self._projects(place, seen.history)
        writers = await asyncio.to_thread(self._writers, seen, root, below, place, projects)
        return await self._shown(below, split_lines(seen.data), writers)

    async def _seen(self, root: bytes, below: bytes, place: "Place") -> _Seen:
        whole = os.path.join(root, below)
        ask = partial(file_history, whole, place.worktree)
        history = await self._engine.store.scan(ask)
        for _ in range(_ATTEMPTS):
            data = await asyncio.to_thread(_read, root, below)
            # In this order: what ended before it was looked for is in the history.
            was_running = await self._is_being_written(below, place.worktree)
            now = await self._engine.store.scan(ask)
            if now == history:
                return _Seen(data, history, is_steady=not was_running)
            history = now
        return _Seen(data, history, is_steady=False)

    async def _is_being_written(self, path: bytes, worktree: str) -> bool:
        """Whether a call runs that may write the file."""
        calls = await self._engine.timeline.calls_around(worktree)
        running = [call for call in calls if call.ended is None]
        return any(
            call.kind != "declared"
            or call.worktree != worktree
            or path in read_declared(call.data).before
            for call in running
        )

    def _check_protected(self, place: "Place") -> None:
        """Refuse a file of which kedge cannot know anything."""
        data = os.path.realpath(os.fsencode(self._engine.data))
        reason = why_refused(os.fsencode(place.worktree), {data})
        if reason is None and not self._engine.settings.snapshots:
            reason = "snapshots are switched off"
        if reason is not None:
            raise SnapshotRefused(f"nothing is known of the file: {reason}")

    async def _projects(self, place: "Place", history: FileHistory) -> list[str]:
        """The projects whose object stores have the contents."""
        projects = [place.project.id]
        for worktree in history.worktrees:
            found = await self._engine.store.read(partial(project_of, worktree))
            if found is not None and found.id not in projects:
                projects.append(found.id)
        return projects

    def _writers(
        self, seen: _Seen, root: bytes, below: bytes, place: "Place", projects: Sequence[str]
    ) -> list[Writer]:
        blob = blob_id(seen.data).hex()
        archives = self._engine.diffs.archives
        with archives.opened(place.project.id) as store, archives.reading(projects) as blobs:
            opening = seen.history.opening
            files = None if opening is None else _files(store, opening)
            paths: dict[bytes, Versions] = {}
            for each in seen.history.paths:
                is_first = opening is not None and opening.precedes(each)
                known = _state(files, root, each.path) if is_first else None
                if each.path == seen.history.paths[0].path:
                    if isinstance(known, Uncovered) and not each.writes:
                        raise PathUncovered(_shown(below), known.reason)
                    paths[each.path] = _with_disk(versions_of(each, known, blob), blob, seen)
                else:
                    paths[each.path] = versions_of(each, known)
            path, *others = paths.values()
            beside = sha256(b"".join(other.versions[-1].key for other in others)).digest()
            remembered = partial(self._known_of, beside)
            sources = Sources(paths, _reader(blobs, blob, seen.data), remembered)
            return self._walked(path.path, sources, beside)

    def _known_of(self, beside: bytes, key: bytes) -> list[Writer] | None:
        return self._known.get(key + beside)

    def _walked(self, path: bytes, sources: Sources, beside: bytes) -> list[Writer]:
        """The writers of the last version's lines; those of the last recorded one are kept.

        `beside` stands for the histories of the files that it was moved from.
        """
        versions = sources.paths[path].versions
        last = len(versions) - 1
        recorded = last - 1 if versions[last].number == _NOW else last
        version = versions[recorded]
        writers = self._known_of(beside, version.key)
        if writers is None and _can_read(version, sources.read):
            writers = writers_of(path, recorded, sources)
            self._known.put(version.key + beside, writers, len(writers) + 1)
        if writers is None or recorded != last:
            writers = writers_of(path, last, sources)
        return writers

    async def _shown(self, path: bytes, lines: Sequence[bytes], writers: list[Writer]) -> Blame:
        places: dict[Writer, int] = {}
        for writer in writers:
            places.setdefault(writer, len(places))
        origins = await self._origins(list(places))
        return Blame(
            path=_shown(path),
            pathBase64=_base64(path),
            origins=origins,
            lines=[
                BlameLine(
                    text=line.removesuffix(b"\n").decode(errors="replace"), origin=places[writer]
                )
                for line, writer in zip(lines, writers, strict=True)
            ],
        )

    async def _origins(self, writers: Sequence[Writer]) -> list[LineOrigin]:
        calls = [
            (each.session_id, each.message_id, each.pos, each.part_id)
            for each in writers
            if each.kind == "session"
        ]
        infos = iter(await self._engine.store.scan(partial(call_infos, calls)))
        return [
            _of_session(each, next(infos))
            if each.kind == "session"
            else LineOrigin(kind=each.kind, time=each.time)
            for each in writers
        ]


def _of_session(writer: Writer, info: CallInfo) -> LineOrigin:
    return LineOrigin(
        kind="session",
        sessionID=writer.session_id,
        title=info.title,
        promptID=info.prompt_id,
        messageID=info.message_id,
        partID=writer.part_id,
        tool=info.tool,
        time=info.time if writer.time is None else writer.time,
    )


def _real_path(path: AnyPath, directory: str, root: str) -> bytes:
    """Where the file is from the root of its worktree: symlinks on the way to it are followed, as a
    tool that writes it would, and the file itself may be none."""
    if not isinstance(path, str | bytes | os.PathLike):
        raise InvalidInput("path must be a string, bytes or a Path", field="path")
    below = find_path(path, directory=directory, root=root)
    if not below:
        raise InvalidPath(f"{_shown(os.fsencode(path))} is a folder, not a file")
    folder, name = os.path.split(os.path.join(os.fsencode(root), below))
    real = os.path.join(os.path.realpath(folder), name)
    inside = find_path(real, directory=directory, root=root)
    try:
        writable_components(inside)
    except PathRefused:
        raise PathRefused(
            f"{_shown(inside)} is git's own, and not protected", field="path"
        ) from None
    return inside


def _read(root: bytes, below: bytes) -> bytes:
    folder, _, name = below.rpartition(b"/")
    shown = _shown(below)
    try:
        with Root(root) as opened, opened.folder(folder) as fd:
            found = read_file(fd, name, MOST_BYTES)
    except (FolderAbsent, FolderBlocked):
        raise PathNotFound(shown) from None
    except OSError as error:
        raise PathRefused(f"{shown} cannot be opened: {error.strerror}", field="path") from error
    match found:
        case ReadFailure.ABSENT:
            raise PathNotFound(shown)
        case ReadFailure.TOO_LARGE:
            raise TooLarge(f"{shown} is larger than {MOST_BYTES // 2**20} MiB", field="path")
        case ReadFailure.UNREADABLE:
            raise PathRefused(f"{shown} cannot be read: permission denied", field="path")
        case ReadFailure():
            raise InvalidPath(f"{shown} {_FAILURES[found]}")
    return _text(shown, found)


def _text(shown: str, found: Content) -> bytes:
    if stat.S_ISLNK(found.mode):
        raise InvalidPath(f"{shown} is a symlink to {_shown(found.data)}; name that file")
    if b"\0" in found.data:
        raise InvalidPath(f"{shown} is binary; it has no lines")
    if not _has_few_lines(found.data):
        raise TooLarge(f"{shown} has more than {_MOST_LINES:,} lines", field="path")
    return found.data


def _has_few_lines(content: bytes) -> bool:
    return content.count(b"\n") <= _MOST_LINES


def _files(store: ObjectStore, opening: Opening) -> View | None:
    """The files before the first change, if that snapshot is still kept."""
    with suppress(SnapshotError, SnapshotRefused):
        return View(lambda each: store.read(each)[1], take.find(store, opening.snapshot))
    return None


def _state(files: View | None, root: bytes, path: bytes) -> State | None:
    top = root.rstrip(b"/") + b"/"
    if files is None or not path.startswith(top):
        return None
    with suppress(SnapshotError):
        return files.state(path.removeprefix(top))
    return None


def _with_disk(versions: Versions, blob: str, seen: _Seen) -> Versions:
    """The versions, with what is on disk as the last one if it is another."""
    if versions.versions[-1].blob == blob:
        return versions
    writer = UNKNOWN if versions.is_unseen else Writer("outside")
    now = Version(_NOW, blob, writer if seen.is_steady else Writer("unrecorded"), b"")
    return replace(versions, versions=(*versions.versions, now))


def _reader(blobs: Callable[[str], bytes], own: str, data: bytes) -> Read:
    def read(blob: str) -> bytes | None:
        if blob == own:
            return data
        try:
            found = blobs(blob)
        except SnapshotError:
            # It was collected, or is damaged: what is known of other versions still holds.
            return None
        return found if len(found) <= MOST_BYTES and _has_few_lines(found) else None

    return read


def _can_read(version: Version, read: Read) -> bool:
    return version.blob is None or read(version.blob) is not None


def _shown(path: bytes) -> str:
    return path.decode(errors="replace")


def _base64(path: bytes) -> str | None:
    try:
        path.decode()
    except UnicodeDecodeError:
        return base64.b64encode(path).decode()
    return None
