"""The tool `read`: reads lines of a text file, a picture, or the entries of a folder."""

import asyncio
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate, islice
from typing import Annotated, BinaryIO

import msgspec

from kedge.agent.folder_instructions import Told, told_of
from kedge.agent.output_limit import DEFAULT
from kedge.agent.tools.call import Call
from kedge.agent.tools.images import data_url, mime_of, most_bytes
from kedge.agent.tools.paths import FilePlace, place_of
from kedge.agent.tools.text_file import is_binary
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.config.values import ToolOutputConfig
from kedge.domain.text import printable
from kedge.engine.files.browse import open_folder

LONGEST_LINE = 2000

_CHUNK = 1 << 20
_FARTHEST = 256 * _CHUNK
"""The farthest position that pages can start from; a command is better beyond that."""
_MOST_COUNTED = 16 * _CHUNK
"""How much is read after the page to count all lines."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FilePage:
    """Some lines of a file."""

    lines: list[str]
    total: int | None
    """How many there are in all; None if counting would take long."""
    is_full: bool
    """Whether it ends because of the size limit, not because enough lines were read."""


@contextmanager
def opened(place: FilePlace) -> Iterator[BinaryIO]:
    """The file at a place, if it is a regular one; never blocks."""
    folder, _, name = place.below.rpartition(b"/")
    shown = printable(place.path)
    try:
        with open_folder(place.root, folder) as dir_fd:
            fd = os.open(name or b".", _OPEN, dir_fd=dir_fd)
    except OSError as error:
        raise ToolFailure(f"{shown} cannot be opened: {error.strerror}.") from error
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ToolFailure(f"{shown} is not a regular file.")
        try:
            yield file
        except OSError as error:
            raise ToolFailure(f"{shown} cannot be read: {error.strerror}.") from error


def numbered(number: int, line: str) -> str:
    """A line in the form that models see."""
    return f"{number}: {line}"


def read_page(file: BinaryIO, first: int, limit: int, room: int) -> FilePage:
    """At most so many lines, from the first one on (counted from 1), that fit into so many bytes
    with their numbers."""
    skipped = _skip(file, first - 1)
    if skipped < first - 1:
        raise ToolFailure(f"The file has only {skipped} lines; offset {first} is after its end.")
    lines: list[str] = []
    while len(lines) < limit:
        start = file.tell()
        line = _line(file)
        if line is None:
            return FilePage(lines, skipped + len(lines), is_full=False)
        room -= len(numbered(first + len(lines), line).encode()) + 1
        if room < 0 and lines:
            file.seek(start)
            break
        lines.append(line)
    rest = _count(file)
    total = None if rest is None else skipped + len(lines) + rest
    return FilePage(lines, total, is_full=room < 0)


def _skip(file: BinaryIO, lines: int) -> int:
    """Skip so many lines; return how many there were."""
    seen = 0
    while seen < lines:
        start = file.tell()
        if start >= _FARTHEST:
            raise ToolFailure(
                f"Line {lines + 1} is too far into a large file. Show it with a command, sed say."
            )
        chunk = file.read(_CHUNK)
        if not chunk:
            return seen
        ends = chunk.count(b"\n")
        if seen + ends < lines:
            seen += ends
            # A last line without an end is a line too.
            if len(chunk) < _CHUNK and not chunk.endswith(b"\n"):
                return seen + 1
            continue
        at = -1
        while seen < lines:
            at = chunk.index(b"\n", at + 1)
            seen += 1
        file.seek(start + at + 1)
    return seen


def _line(file: BinaryIO) -> str | None:
    """The next line without its end, cut if it is long."""
    is_first = file.tell() == 0
    # A character takes four bytes at most.
    data = file.readline(4 * LONGEST_LINE)
    if not data:
        return None
    if not data.endswith(b"\n"):
        _skip_rest(file)
    text = data.rstrip(b"\r\n").decode(errors="replace")
    if is_first:
        text = text.removeprefix("\ufeff")
    if len(text) > LONGEST_LINE:
        return f"{text[:LONGEST_LINE]}... (cut after {LONGEST_LINE} characters)"
    return text


def _skip_rest(file: BinaryIO) -> None:
    while piece := file.readline(_CHUNK):
        if piece.endswith(b"\n") or file.tell() > _FARTHEST:
            return


def _count(file: BinaryIO) -> int | None:
    """How many lines follow; None if there is too much to count."""
    count, last, read = 0, b"\n", 0
    while chunk := file.read(_CHUNK):
        read += len(chunk)
        if read > _MOST_COUNTED:
            return None
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")


_MOST_NAMES = 50_000
_SUGGESTED = 3


def entries(place: FilePlace) -> list[str]:
    """The names in a folder, sorted; those of folders end with a slash."""
    try:
        with open_folder(place.root, place.below) as fd:
            return sorted(islice(_names(fd), _MOST_NAMES))
    except OSError as error:
        raise ToolFailure(f"{printable(place.path)} cannot be listed: {error.strerror}.") from error


def near_names(place: FilePlace) -> list[str]:
    """Paths with names similar to a missing one."""
    try:
        names = [entry.name for entry in islice(os.scandir(place.real.parent), _MOST_NAMES)]
    except OSError:
        # The folder is missing too: nothing can be suggested.
        return []
    wanted = place.real.name.lower()
    holding = [name for name in names if wanted in name.lower() or name.lower() in wanted]
    close = get_close_matches(place.real.name, names, n=_SUGGESTED)
    found = list(dict.fromkeys([*close, *sorted(holding)]))[:_SUGGESTED]
    return [printable(place.path.parent / name) for name in found]


def _names(fd: int) -> Iterator[str]:
    with os.scandir(fd) as found:
        for entry in found:
            yield printable(entry.name) + ("/" if entry.is_dir() else "")


_SAMPLE = 8192
_PREVIEWED = 20

LineNumber = Annotated[int, msgspec.Meta(ge=0)]


@tool(
    "read",
    description=f"""
    Reads a file, or lists a folder. Use it before you change a file: edits are made of lines that
    you have seen.

    - At most {DEFAULT.max_lines:,} lines or {DEFAULT.max_bytes // 1024} KiB at once, each line cut
      after {LONGEST_LINE:,} characters. The end of the answer says how to go on with `offset`. Read
      whole files if they fit, not many small pieces of them.
    - Each line begins with its number and a colon, as in `12: text`. They are not part of the file.
    - Use grep to find a place in a large file and read from there; use glob to find a file whose
      path you do not know. Do not read files with cat, head, tail or sed in bash.
    - Read files that belong together with several calls in one step.
    - Pictures (PNG, JPEG, GIF, WebP) and PDF files are shown to you. Other binary files are
      refused.
    - A folder is listed, the folders in it with a slash at the end.
    """,
)
async def read(
    call: Call,
    filePath: Annotated[
        str, "The file or folder: an absolute path, or one from the working directory"
    ],
    offset: Annotated[
        LineNumber | None,
        "The line to begin with, counted from 1; leave it out to begin at the first",
    ] = None,
    limit: Annotated[
        LineNumber | None, "How many lines to read at most; leave it out for as many as fit"
    ] = None,
) -> Output:
    place = place_of(call, filePath)
    mode = await asyncio.to_thread(_mode, place)
    is_folder = mode is not None and stat.S_ISDIR(mode)
    await call.ask_outside(place.path, is_folder=is_folder)
    await call.ask("read", place.patterns, always=place.plain_patterns)
    if mode is None:
        raise ToolFailure(await asyncio.to_thread(_missing, place))
    first, most = offset or 1, min(limit or call.limit.max_lines, call.limit.max_lines)
    if is_folder:
        return await asyncio.to_thread(_listed, place, first, most, call.limit.max_bytes)
    sample = await asyncio.to_thread(_sample, place)
    mime = mime_of(sample)
    if mime is None and is_binary(sample):
        raise ToolFailure(
            f"{printable(place.path)} is binary, and only text, pictures and PDF can be read. Look "
            "at it with a command."
        )
    await call.reads(place.real)
    if mime is not None:
        return await _attached(call, place, mime)
    return await _with_instructions(call, place, first, most)


async def _with_instructions(call: Call, place: FilePlace, first: int, most: int) -> Output:
    """A page of the file, and the instructions for its folder."""
    files = [] if call.folders is None else await call.folders.new(call, place.real)
    if call.folders is None or not files:
        return await asyncio.to_thread(_page, place, first, most, call.limit, Told())
    with call.folders.claimed(files):
        told = await asyncio.to_thread(told_of, files, call.limit)
        return await asyncio.to_thread(_page, place, first, most, call.limit, told)


def _mode(place: FilePlace) -> int | None:
    try:
        return os.lstat(place.real).st_mode
    except OSError:
        return None


def _missing(place: FilePlace) -> str:
    near = near_names(place)
    text = f"{printable(place.path)} does not exist."
    return f"{text} Did you mean one of these?\n" + "\n".join(near) if near else text


def _listed(place: FilePlace, first: int, most: int, room: int) -> Output:
    names = entries(place)
    shown = _fitting(names[first - 1 : first - 1 + most], room)
    more = first - 1 + len(shown) < len(names)
    note = (
        f"(Entries {first} to {first - 1 + len(shown)} of {len(names)}. "
        f"Go on with offset={first + len(shown)}.)"
        if more
        else f"({len(names)} entries)"
    )
    text = _framed(place, "directory", "entries", "\n".join(shown), note)
    return _output(place, text, shown, is_cut=more)


def _fitting(names: list[str], room: int) -> list[str]:
    """As many of the first as fit into so many bytes, but at least one."""
    ends = accumulate(len(name.encode()) + 1 for name in names)
    return names[: max(1, sum(end <= room for end in ends))]


def _sample(place: FilePlace) -> bytes:
    with opened(place) as file:
        return file.read(_SAMPLE)


async def _attached(call: Call, place: FilePlace, mime: str) -> Output:
    data = await asyncio.to_thread(_whole, place, most_bytes(mime))
    url = data_url(mime, data)
    name = printable(place.path.name)
    kind = "PDF" if mime == "application/pdf" else "picture"
    return Output(
        f"The {kind} is attached.",
        title=place.shown,
        metadata={"preview": f"{kind} {name}", "truncated": False, "loaded": []},
        attachments=[call.attachment(mime=mime, url=url, filename=name)],
    )


def _whole(place: FilePlace, most: int) -> bytes:
    with opened(place) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ToolFailure(
            f"{printable(place.path)} is larger than the {most} bytes that can be shown. Make it "
            "smaller with a command first."
        )
    return data


def _page(place: FilePlace, first: int, most: int, limit: ToolOutputConfig, told: Told) -> Output:
    with opened(place) as file:
        # At least one line: otherwise the model would never get to the end.
        lines = max(1, min(most, limit.max_lines - told.lines))
        page = read_page(file, first, lines, limit.max_bytes - len(told.text.encode()))
    body = "\n".join(numbered(number, line) for number, line in enumerate(page.lines, first))
    note = _note(page, first)
    text = _framed(place, "file", "content", body, note)
    is_cut = not note.startswith("(End")
    return _output(place, text + told.text, page.lines, is_cut=is_cut, loaded=told.files)


def _note(page: FilePage, first: int) -> str:
    last = first - 1 + len(page.lines)
    if last == page.total:
        return f"(End of file - total {page.total} lines)"
    total = f" of {page.total}" if page.total is not None else ""
    why = "No more fit here. " if page.is_full else ""
    return f"(Lines {first} to {last}{total}. {why}Go on with offset={last + 1}.)"


def _framed(place: FilePlace, kind: str, element: str, body: str, note: str) -> str:
    path = printable(place.path)
    return f"<path>{path}</path>\n<type>{kind}</type>\n<{element}>\n{body}\n\n{note}\n</{element}>"


def _output(
    place: FilePlace, text: str, lines: list[str], *, is_cut: bool, loaded: Sequence[str] = ()
) -> Output:
    preview = "\n".join(lines[:_PREVIEWED])
    return Output(
        text,
        title=place.shown,
        metadata={"preview": preview, "truncated": is_cut, "loaded": list(loaded)},
    )
