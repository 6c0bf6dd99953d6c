"""The tool `read`: lines of a text, a picture, or what is in a folder."""

import asyncio
import os
import stat
from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

import msgspec

from kedge.agent.folder_instructions import Told, told_of
from kedge.agent.output_limit import DEFAULT
from kedge.agent.tools.call import Call
from kedge.agent.tools.images import data_url, mime_of, most_bytes
from kedge.agent.tools.listing import entries, near_names
from kedge.agent.tools.pages import LONGEST_LINE, Page, numbered, opened, read_page
from kedge.agent.tools.places import Place, place_of, printable
from kedge.agent.tools.texts import is_binary
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.config.values import ToolOutputConfig

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


async def _with_instructions(call: Call, place: Place, first: int, most: int) -> Output:
    """A page of the file, and what people wrote down where it is."""
    files = [] if call.folders is None else await call.folders.new(call, place.real)
    if call.folders is None or not files:
        return await asyncio.to_thread(_page, place, first, most, call.limit, Told())
    with call.folders.claimed(files):
        told = await asyncio.to_thread(told_of, files, call.limit)
        return await asyncio.to_thread(_page, place, first, most, call.limit, told)


def _mode(place: Place) -> int | None:
    try:
        return os.lstat(place.real).st_mode
    except OSError:
        return None


def _missing(place: Place) -> str:
    near = near_names(place)
    text = f"{printable(place.path)} does not exist."
    return f"{text} Did you mean one of these?\n" + "\n".join(near) if near else text


def _listed(place: Place, first: int, most: int, room: int) -> Output:
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
    """As many of the first as there is room for in so many bytes, but one at least."""
    ends = accumulate(len(name.encode()) + 1 for name in names)
    return names[: max(1, sum(end <= room for end in ends))]


def _sample(place: Place) -> bytes:
    with opened(place) as file:
        return file.read(_SAMPLE)


async def _attached(call: Call, place: Place, mime: str) -> Output:
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


def _whole(place: Place, most: int) -> bytes:
    with opened(place) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ToolFailure(
            f"{printable(place.path)} is larger than the {most} bytes that can be shown. Make it "
            "smaller with a command first."
        )
    return data


def _page(place: Place, first: int, most: int, limit: ToolOutputConfig, told: Told) -> Output:
    with opened(place) as file:
        # At least one line: else nobody would ever come to the end.
        lines = max(1, min(most, limit.max_lines - told.lines))
        page = read_page(file, first, lines, limit.max_bytes - len(told.text.encode()))
    body = "\n".join(numbered(number, line) for number, line in enumerate(page.lines, first))
    note = _note(page, first)
    text = _framed(place, "file", "content", body, note)
    is_cut = not note.startswith("(End")
    return _output(place, text + told.text, page.lines, is_cut=is_cut, loaded=told.files)


def _note(page: Page, first: int) -> str:
    last = first - 1 + len(page.lines)
    if last == page.total:
        return f"(End of file - total {page.total} lines)"
    total = f" of {page.total}" if page.total is not None else ""
    why = "No more fit here. " if page.is_full else ""
    return f"(Lines {first} to {last}{total}. {why}Go on with offset={last + 1}.)"


def _framed(place: Place, kind: str, element: str, body: str, note: str) -> str:
    path = printable(place.path)
    return f"<path>{path}</path>\n<type>{kind}</type>\n<{element}>\n{body}\n\n{note}\n</{element}>"


def _output(
    place: Place, text: str, lines: list[str], *, is_cut: bool, loaded: Sequence[str] = ()
) -> Output:
    preview = "\n".join(lines[:_PREVIEWED])
    return Output(
        text,
        title=place.shown,
        metadata={"preview": preview, "truncated": is_cut, "loaded": list(loaded)},
    )
