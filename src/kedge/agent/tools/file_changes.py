"""How tools change files: read, ask with the diff, lock, check again, write all files or none."""

import asyncio
import os
import re
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from kedge._async import to_the_end
from kedge._failpoints import reach
from kedge.agent.tools.paths import FilePlace, is_same_place
from kedge.agent.tools.tool import ToolFailure
from kedge.domain.errors import FileBusy, FileChanged
from kedge.domain.text import printable
from kedge.snapshot.diffs.lines import are_comparable, compare_lines, count
from kedge.snapshot.diffs.patches import quoted
from kedge.snapshot.files.reader import ReadFailure, read_file
from kedge.snapshot.files.root import FolderAbsent, FolderBlocked, Root
from kedge.snapshot.files.steps import FileStep, FileWork, MayWrite, RootedStep, always, taking_back
from kedge.snapshot.files.writer import Writer, remove_if_empty
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Absent, Outcome, Present, Result

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call
    from kedge.engine.turns import Turn

MOST_BYTES = 16 * 1024 * 1024
"""A file above this is not changed by a tool: undoing it would cost too much."""

_FAILURES = {
    ReadFailure.FOLDER: "is a folder, not a file",
    ReadFailure.SPECIAL: "is a pipe, a socket or a device, which is no regular file",
    ReadFailure.TOO_LARGE: f"is larger than {MOST_BYTES} bytes; change it with a command",
    ReadFailure.UNREADABLE: "cannot be read: permission denied",
    ReadFailure.UNSTABLE: "keeps changing; try again when nobody writes it",
}
_DONE = {Outcome.RESTORED, Outcome.RECREATED, Outcome.DELETED, Outcome.UNCHANGED}


@dataclass(frozen=True, slots=True)
class Found:
    """What is at a place."""

    state: Present | Absent
    data: bytes = b""

    @property
    def exists(self) -> bool:
        return isinstance(self.state, Present)

    @property
    def is_link(self) -> bool:
        return isinstance(self.state, Present) and self.state.is_link

    @property
    def content(self) -> bytes | None:
        """The bytes, or None if nothing is there."""
        return self.data if self.exists else None


@dataclass(frozen=True, slots=True)
class Replacement:
    """New content for a place; None deletes what is there."""

    place: FilePlace
    before: Found
    after: bytes | None
    mode: int | None = None
    """Type and permission bits of a new file; one that exists keeps its own."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far the writing came."""

    tag: str
    may_write: MayWrite
    done: list[RootedStep] = field(default_factory=list)
    made: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Folders on the way to files: the root of the step, and the path from there."""
    stays: list[RootedStep] = field(default_factory=list)
    """The steps back that could not be done."""


def look(place: FilePlace) -> Found:
    """The file at a place, or that there is none; `ToolFailure` for anything else."""
    folder, _, name = place.below.rpartition(b"/")
    shown = printable(place.path)
    if not name:
        raise ToolFailure(f"{shown} {_FAILURES[ReadFailure.FOLDER]}.")
    try:
        with Root(os.fsencode(place.root)) as root, root.folder(folder) as fd:
            content = read_file(fd, name, MOST_BYTES)
    except FolderAbsent:
        return Found(Absent())
    except FolderBlocked as error:
        raise ToolFailure(
            f"{shown} cannot be: {printable(error.at)} on its way is not a folder."
        ) from error
    except OSError as error:
        raise ToolFailure(f"{shown} cannot be opened: {error.strerror}.") from error
    if content is ReadFailure.ABSENT:
        return Found(Absent())
    if isinstance(content, ReadFailure):
        raise ToolFailure(f"{shown} {_FAILURES[content]}.")
    if stat.S_ISLNK(content.mode) and not place.is_own:
        raise ToolFailure(f"{shown} is a symlink that leads nowhere.")
    return Found(Present(blob_id(content.data).hex(), content.mode), content.data)


def mode_of_new_file() -> int:
    """Type and permission bits that a new file gets from this process.

    Only Linux tells the umask without changing it for all threads; elsewhere a file is made.
    """
    if (umask := _umask()) is not None:
        return stat.S_IFREG | 0o666 & ~umask
    with tempfile.TemporaryDirectory(prefix="kedge-") as folder:
        fd = os.open(os.path.join(folder, "new"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        try:
            return os.fstat(fd).st_mode
        finally:
            os.close(fd)


def _umask() -> int | None:
    try:
        with open("/proc/self/status", "rb") as lines:
            return next((int(line.split()[1], 8) for line in lines if line[:6] == b"Umask:"), None)
    except FileNotFoundError:
        return None


def work_of(replacements: Sequence[Replacement]) -> FileWork:
    """The steps that lead to replacements."""
    contents: dict[str, bytes] = {}
    steps = [
        RootedStep(os.fsencode(each.place.root), _step(number, each, contents))
        for number, each in enumerate(replacements)
    ]
    # Deletions last: until its new name is there, the old one of a moved file may be the only copy.
    # None of them makes room for a file, as `look` refuses paths through files, and folders.
    steps.sort(key=lambda each: isinstance(each.step.want, Absent))
    return FileWork(steps=tuple(steps), contents=contents)


def put(work: FileWork, *, tag: str, may_write: MayWrite = always) -> None:
    """Write all of it; if one file cannot be written, take back the others and say why.

    If `may_write` raises, nothing more is written and nothing taken back, as after a crash.
    """
    progress = _Progress(tag, may_write)
    with ExitStack() as undoing:
        undoing.callback(_take_back, work, progress)
        failure = _carry_out_all(work, progress)
        if failure is None:
            undoing.pop_all()
    if failure is not None:
        names = ", ".join(printable(each.real) for each in progress.stays)
        changed = f"These could not be taken back: {names}." if names else "No file was changed."
        raise ToolFailure(f"{failure} {changed} Look at it and try again.")
    work.is_done = True


def _carry_out_all(work: FileWork, progress: _Progress) -> str | None:
    """Write until a file cannot be written; why not, if there is one."""
    for each in work.steps:
        result = _carry_out(each, work.contents, progress)
        if result.outcome not in _DONE:
            return f"{printable(each.real)} was not written: {result.reason}."
        if result.outcome is not Outcome.UNCHANGED:
            progress.done.append(each)
    return None


def _carry_out(rooted: RootedStep, contents: Mapping[str, bytes], progress: _Progress) -> Result:
    tag, may_write = progress.tag, progress.may_write
    with (
        Root(rooted.root) as root,
        Writer(root, contents.__getitem__, tag=tag, may_write=may_write) as writer,
    ):
        (result,) = writer.put([rooted.step])
        progress.made.extend((rooted.root, folder) for folder in writer.created)
        return result


def _step(number: int, wanted: Replacement, contents: dict[str, bytes]) -> FileStep:
    before = wanted.before.state
    want: Present | Absent = Absent()
    if isinstance(before, Present):
        contents[before.blob] = wanted.before.data
    if wanted.after is not None:
        kept = before.mode if isinstance(before, Present) else None
        mode = wanted.mode or kept or stat.S_IFREG | 0o600
        want = Present(blob_id(wanted.after).hex(), mode)
        contents[want.blob] = wanted.after
    return FileStep(number=number, path=wanted.place.below, expect=before, want=want)


def _take_back(work: FileWork, progress: _Progress) -> None:
    """Undo what was done; where somebody saved meanwhile, theirs stays.

    If a deleted file cannot be put back, new ones stay as well: one may be the only copy of it.
    """
    paths = {each.real for each in progress.done}
    for each in taking_back(work.steps):
        if each.real not in paths:
            continue
        is_lost = any(isinstance(other.step.expect, Absent) for other in progress.stays)
        is_kept = is_lost and isinstance(each.step.want, Absent)
        if is_kept or _carry_out(each, work.contents, progress).outcome not in _DONE:
            progress.stays.append(each)
    for path, folder in reversed(progress.made):
        progress.may_write()
        with Root(path) as root:
            remove_if_empty(root, folder)


LONGEST_DIFF = 64 * 1024
"""A text above this is cut."""

_RULE = "=" * 67
_CONTEXT = 4
_HUNK = re.compile(rb"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True, slots=True)
class TextDiff:
    """What becomes of one file, in the form that OpenCode's clients draw."""

    text: str
    additions: int
    deletions: int
    omitted: int
    """Lines that did not fit."""


def text_diff(
    path: Path, old: bytes | None, new: bytes | None, room: int = LONGEST_DIFF
) -> TextDiff:
    """The difference between two contents, None being no file; of binary ones the name only."""
    name = quoted(os.fsencode(path)).decode(errors="replace")
    head = f"Index: {name}\n{_RULE}\n--- {name}\n+++ {name}\n"
    before, after = old or b"", new or b""
    if not are_comparable(before, after):
        return TextDiff(head, *count(before, after), omitted=0)
    changed = compare_lines(before, after, _CONTEXT)
    pieces: list[str] = [head]
    left = room - len(head)
    omitted = 0
    for first, lines in _hunks(changed.text):
        kept = _fitting(lines, left if not omitted else 0)
        omitted += sum(not line.startswith(b"\\") for line in lines[len(kept) :])
        if kept:
            text = _hunk(first, kept)
            pieces.append(text)
            left -= len(text.encode())
    return TextDiff("".join(pieces), changed.additions, changed.deletions, omitted)


def _hunks(text: bytes) -> Iterator[tuple[re.Match[bytes], list[bytes]]]:
    """Each hunk: its first line, and the others."""
    first: re.Match[bytes] | None = None
    lines: list[bytes] = []
    for line in text.split(b"\n")[:-1]:
        found = _HUNK.match(line)
        if found is None:
            lines.append(line)
            continue
        if first is not None:
            yield first, lines
        first, lines = found, []
    if first is not None:
        yield first, lines


def _fitting(lines: list[bytes], room: int) -> list[bytes]:
    """The lines from the first on that fit; a replaced byte takes three."""
    for number, line in enumerate(lines):
        room -= len(line.decode(errors="replace").encode()) + 1
        if room < 0:
            return lines[:number]
    return lines


def _hunk(first: re.Match[bytes], lines: list[bytes]) -> str:
    """With its counts always written, and those of the lines that are there."""
    old = sum(line[:1] in (b" ", b"-") for line in lines)
    new = sum(line[:1] in (b" ", b"+") for line in lines)
    place = f"@@ -{int(first[1])},{old} +{int(first[2])},{new} @@\n"
    return place + (b"\n".join(lines) + b"\n").decode(errors="replace")


Plan: TypeAlias = Callable[[Mapping[FilePlace, Found]], Sequence[Replacement]]
"""What should become of files, from what they are now."""

_ALONE: "WeakKeyDictionary[Turn, dict[Path, asyncio.Lock]]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of one file."""

    place: FilePlace
    before: Found
    diff: TextDiff

    @property
    def filediff(self) -> dict[str, Any]:
        """As clients of OpenCode draw it."""
        return {
            "file": printable(self.place.path),
            "patch": self.diff.text,
            "additions": self.diff.additions,
            "deletions": self.diff.deletions,
        }


async def change(
    call: "Call", places: Sequence[FilePlace], plan: Plan, *, unseen: bool
) -> list[Changed]:
    """Change files as planned, if people let it.

    With `unseen`, also what the session has never read: the plan says what it expects to find. What
    changed since the session read it is never written.
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
        work = await asyncio.to_thread(work_of, replacements)
        may_write = call.still_at_work()
        await _declare(call, places, work, unseen)
        reach("steps-stored")
        if await asyncio.to_thread(_look, places) != found or not all(map(is_same_place, places)):
            raise ToolFailure(
                "A file changed after it was looked at, and nothing was written. Read it again, "
                "then try again."
            )
        writing = partial(put, work, tag=call.part_id, may_write=may_write)
        await to_the_end(asyncio.to_thread(writing))
        reach("steps-done")
    for changed in told:
        call.edited(changed.place.path)
    return told


@asynccontextmanager
async def _alone(call: "Call", places: Sequence[FilePlace]) -> AsyncIterator[None]:
    """One call of a turn after the other, so that each is asked about what it will really do."""
    locks = _ALONE.setdefault(call.step.turn, {})
    async with AsyncExitStack() as held:
        for real in sorted({place.real for place in places}):
            await held.enter_async_context(locks.setdefault(real, asyncio.Lock()))
        yield


async def _declare(call: "Call", places: Sequence[FilePlace], work: FileWork, unseen: bool) -> None:
    # The real ones: a symlink on the way to them is not touched.
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
    return {place: look(place) for place in places}


def _told(replacements: Sequence[Replacement]) -> list[Changed]:
    """The differences; all together they have the room of one."""
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
    """New content for a place; a file that exists keeps its permission bits."""
    mode = None if before.exists else mode_of_new_file()
    return Replacement(place, before, after, mode)
