"""What is at a place, read whole; and new contents put there, all of them or none."""

import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from kedge.agent.tools.places import Place, printable
from kedge.agent.tools.tool import ToolFailure
from kedge.snapshot.files.folders import remove_if_empty
from kedge.snapshot.files.opening import FolderAbsent, FolderBlocked, Root
from kedge.snapshot.files.reading import Failure, read_file
from kedge.snapshot.files.steps import (
    FileWork,
    MayWrite,
    RootedStep,
    Step,
    always,
    taking_back,
)
from kedge.snapshot.files.writing import Writer
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Absent, Outcome, Present, Result

MOST_BYTES = 16 * 1024 * 1024
"""A file above this is not changed by a tool: undoing it would cost too much."""

_FAILURES = {
    Failure.FOLDER: "is a folder, not a file",
    Failure.SPECIAL: "is a pipe, a socket or a device, which cannot be read or written as a file",
    Failure.TOO_LARGE: f"is larger than {MOST_BYTES} bytes; change it with a command",
    Failure.UNREADABLE: "cannot be read: permission denied",
    Failure.UNSTABLE: "keeps changing; try again when nobody writes it",
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

    place: Place
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


def look(place: Place) -> Found:
    """The file at a place, or that there is none; `ToolFailure` for anything else."""
    folder, _, name = place.below.rpartition(b"/")
    shown = printable(place.path)
    if not name:
        raise ToolFailure(f"{shown} {_FAILURES[Failure.FOLDER]}.")
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
    if content is Failure.ABSENT:
        return Found(Absent())
    if isinstance(content, Failure):
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


def _step(number: int, wanted: Replacement, contents: dict[str, bytes]) -> Step:
    before = wanted.before.state
    want: Present | Absent = Absent()
    if isinstance(before, Present):
        contents[before.blob] = wanted.before.data
    if wanted.after is not None:
        kept = before.mode if isinstance(before, Present) else None
        mode = wanted.mode or kept or stat.S_IFREG | 0o600
        want = Present(blob_id(wanted.after).hex(), mode)
        contents[want.blob] = wanted.after
    return Step(number=number, path=wanted.place.below, expect=before, want=want)


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
