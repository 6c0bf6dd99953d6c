"""Changes of files that are told beforehand: look, make the steps, write all files or none.

Whether a file may be changed, and who is asked, is not decided here.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kedge.domain.errors import InvalidPath, WriteFailed
from kedge.domain.file_states import Absent, FileStep, Outcome, Present
from kedge.domain.text import printable
from kedge.engine.files.browse import open_folder
from kedge.snapshot.diffs.lines import are_comparable, compare_lines, count
from kedge.snapshot.diffs.patches import quoted
from kedge.snapshot.files.reader import ReadFailure, read_file
from kedge.snapshot.files.root import FolderAbsent, FolderBlocked, Root
from kedge.snapshot.files.steps import FileWork as FileWork
from kedge.snapshot.files.steps import MayWrite, RootedStep, always, taking_back
from kedge.snapshot.files.writer import Writer, remove_if_empty
from kedge.snapshot.objects.formats import blob_id
from kedge.snapshot.values import Result

MOST_BYTES = 16 * 1024 * 1024
"""Larger files are not changed by tools: undoing that would cost too much."""

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
    def mode(self) -> int | None:
        """Type and permission bits; None if nothing is there."""
        return self.state.mode if isinstance(self.state, Present) else None

    @property
    def content(self) -> bytes | None:
        """The content, or None if there is no file."""
        return self.data if self.exists else None


@dataclass(frozen=True, slots=True)
class Edit:
    """What should become of one file."""

    root: Path
    """A folder above it, from which it is opened component by component."""
    path: bytes
    """From there on."""
    before: Found
    after: bytes | None
    """The new content; None deletes what is there."""
    mode: int | None = None
    """Type and permission bits of a new file; an existing one keeps its own."""


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far the writing came."""

    tag: str
    may_write: MayWrite
    done: list[RootedStep] = field(default_factory=list)
    made: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Folders that were created for files: the root of the step, and the path from there."""
    stays: list[RootedStep] = field(default_factory=list)
    """The steps back that could not be done."""


def look(root: Path, below: bytes, *, named: Path, is_own: bool) -> Found:
    """The file at a path below a root, or that there is none; `InvalidPath` for anything else.

    `named` is what errors call it. A symlink there is looked at only if it `is_own`: meant itself.
    """
    folder, _, name = below.rpartition(b"/")
    shown = printable(named)
    if not name:
        raise InvalidPath(f"{shown} {_FAILURES[ReadFailure.FOLDER]}.")
    try:
        with open_folder(root, folder) as fd:
            content = read_file(fd, name, MOST_BYTES)
    except FolderAbsent:
        return Found(Absent())
    except FolderBlocked as error:
        raise InvalidPath(
            f"{shown} cannot be: {printable(error.at)} on its way is not a folder."
        ) from error
    except OSError as error:
        raise InvalidPath(f"{shown} cannot be opened: {error.strerror}.") from error
    if content is ReadFailure.ABSENT:
        return Found(Absent())
    if isinstance(content, ReadFailure):
        raise InvalidPath(f"{shown} {_FAILURES[content]}.")
    if stat.S_ISLNK(content.mode) and not is_own:
        raise InvalidPath(f"{shown} is a symlink that leads nowhere.")
    return Found(Present(blob_id(content.data).hex(), content.mode), content.data)


def mode_of_new_file() -> int:
    """Type and permission bits that a new file gets from this process.

    Only Linux shows the umask without changing it for all threads; elsewhere a file is created for
    this.
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


def work_of(edits: Sequence[Edit]) -> FileWork:
    """The steps that lead to what is wanted."""
    contents: dict[str, bytes] = {}
    steps = [
        RootedStep(os.fsencode(each.root), _step(number, each, contents))
        for number, each in enumerate(edits)
    ]
    # Deletions last: until its new name exists, the old one of a moved file may be the only copy.
    # None of them makes room for a file, as `look` refuses folders and paths through files.
    steps.sort(key=lambda each: isinstance(each.step.want, Absent))
    return FileWork(steps=tuple(steps), contents=contents)


def put(work: FileWork, *, tag: str, may_write: MayWrite = always) -> None:
    """Write all of it; if one file cannot be written, take back the others and raise
    `WriteFailed`.

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
        raise WriteFailed(f"{failure} {changed} Look at it and try again.")
    work.is_done = True


def _carry_out_all(work: FileWork, progress: _Progress) -> str | None:
    """Write until a file cannot be written; return the reason, if there is one."""
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


def _step(number: int, wanted: Edit, contents: dict[str, bytes]) -> FileStep:
    before = wanted.before.state
    want: Present | Absent = Absent()
    if isinstance(before, Present):
        contents[before.blob] = wanted.before.data
    if wanted.after is not None:
        kept = before.mode if isinstance(before, Present) else None
        mode = wanted.mode or kept or stat.S_IFREG | 0o600
        want = Present(blob_id(wanted.after).hex(), mode)
        contents[want.blob] = wanted.after
    return FileStep(number=number, path=wanted.path, expect=before, want=want)


def _take_back(work: FileWork, progress: _Progress) -> None:
    """Undo what was done; a file that was saved meanwhile by another program stays.

    If a deleted file cannot be restored, new ones stay as well: one may be its only copy.
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
    """The change of one file, in the form that OpenCode's clients draw."""

    text: str
    additions: int
    deletions: int
    omitted: int
    """Lines that did not fit."""


def text_diff(
    path: Path, old: bytes | None, new: bytes | None, room: int = LONGEST_DIFF
) -> TextDiff:
    """The difference between two contents, None being no file; for binary ones only the name."""
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
    """The first lines, as far as they fit; a replaced byte takes three."""
    for number, line in enumerate(lines):
        room -= len(line.decode(errors="replace").encode()) + 1
        if room < 0:
            return lines[:number]
    return lines


def _hunk(first: re.Match[bytes], lines: list[bytes]) -> str:
    """A hunk with its counts always written, for the lines that are left."""
    old = sum(line[:1] in (b" ", b"-") for line in lines)
    new = sum(line[:1] in (b" ", b"+") for line in lines)
    place = f"@@ -{int(first[1])},{old} +{int(first[2])},{new} @@\n"
    return place + (b"\n".join(lines) + b"\n").decode(errors="replace")
