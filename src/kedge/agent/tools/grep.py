"""The tool `grep`: finds lines of files that match a regular expression."""

import asyncio
import os
import re
import stat
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

from kedge.agent.tools.call import Call
from kedge.agent.tools.paths import FilePlace, check_same, place_of
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.text import mend_text, printable
from kedge.engine.files.ripgrep import glob_argument, modified, search

MOST_LINES = 100
LONGEST_LINE = 500
_MOST_FOUND = 5000
_LARGEST_FILE = "64M"
_NUMBERED = re.compile(rb"(\d+):(.*)", re.DOTALL)
_WARNINGS = re.compile(
    rb"(?:\./[^\0]*?: (?:WARNING: stopped searching binary file after match|binary file matches)"
    rb' \(found "\\0" byte around offset \d+\)\n)*'
)


@dataclass(frozen=True, slots=True)
class _Line:
    name: bytes
    number: int
    text: str


@tool(
    "grep",
    description=f"""
    Searches the contents of files for a regular expression and tells the lines that match, with
    their numbers.

    - Use it to find where something is defined or used. To find files by their names, use glob. Do
      not use grep or rg in bash for it.
    - The syntax is that of ripgrep. Escape what is special to mean it literally. Examples:
      `def \\w+_test`, `foo\\(`, `TODO|FIXME`, `(?i)error`. A match is within one line.
    - At most {MOST_LINES} lines are told, by file, those of the file that changed last first, each
      cut after {LONGEST_LINE} characters. If there are more, narrow it with `path` or `include`.
    - What the project ignores (.gitignore) and binary files are left out. Name an ignored file in
      `path` to search it all the same.
    - To see what stands around a match, use read with the number of its line as offset.
    """,
)
async def grep(
    call: Call,
    pattern: Annotated[str, "The regular expression to look for"],
    path: Annotated[
        str | None, "The folder or file to look in; leave it out for the working directory"
    ] = None,
    include: Annotated[
        str | None, "Only look into files whose names match this, such as *.{ts,tsx}"
    ] = None,
) -> Output:
    pattern = mend_text(pattern)
    if not pattern or "\0" in pattern + (include or ""):
        raise ToolFailure("The pattern is empty or holds a NUL character.")
    place = place_of(call, path or ".")
    is_folder = await asyncio.to_thread(_is_folder, place)
    await call.ask_outside(place.path, is_folder=is_folder)
    asked = {"pattern": pattern, "path": path, "include": include}
    await call.ask("grep", [pattern], metadata=asked)
    if not is_folder:
        await call.ask("read", place.patterns, always=place.plain_patterns)
    await asyncio.to_thread(check_same, place)
    lines, is_cut = await _lines(place, pattern, include, is_folder)
    # It may have been replaced just before it was searched.
    await asyncio.to_thread(check_same, place)
    folder = place.real if is_folder else place.real.parent
    if is_folder:
        lines, hidden = await _readable(call, folder, lines)
    else:
        hidden = 0
    ordered = await asyncio.to_thread(_ordered, folder, lines)
    shown = ordered[:MOST_LINES]
    is_cut = is_cut or len(shown) < len(ordered)
    base = place.path if is_folder else place.path.parent
    return Output(
        _told(base, shown, is_cut, hidden),
        title=pattern,
        metadata={"matches": len(shown), "truncated": is_cut},
    )


def _is_folder(place: FilePlace) -> bool:
    try:
        mode = os.lstat(place.real).st_mode
    except OSError as error:
        raise ToolFailure(
            f"{printable(place.path)} cannot be searched: {error.strerror}."
        ) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise ToolFailure(f"{printable(place.path)} is neither a file nor a folder.")
    return stat.S_ISDIR(mode)


async def _lines(
    place: FilePlace, pattern: str, include: str | None, is_folder: bool
) -> tuple[list[_Line], bool]:
    arguments = ["--no-heading", "--with-filename", "--line-number", "--null"]
    arguments += [f"--max-count={MOST_LINES}", f"--max-filesize={_LARGEST_FILE}"]
    # In bytes, of which a character has at most four.
    arguments += [f"--max-columns={4 * LONGEST_LINE + 1}", "--max-columns-preview"]
    if include:
        arguments.append(glob_argument(mend_text(include)))
    arguments += ["--glob=!.git", f"--regexp={pattern}", "--"]
    arguments.append("." if is_folder else f"./{place.real.name}")
    folder = place.real if is_folder else place.real.parent
    lines: list[_Line] = []
    name = b""
    async with search(folder, arguments) as found:
        # A name ends with a NUL, its line with a line end, and then the next name follows.
        async for record in found.records(b"\0"):
            text, _, rest = record.partition(b"\n")
            numbered = _NUMBERED.fullmatch(text) if name else None
            if numbered is not None:
                lines.append(_line(name, numbered))
            name = _name(record if numbered is None else rest)
            if len(lines) >= _MOST_FOUND:
                return lines, True
        return lines, found.is_cut


def _name(text: bytes) -> bytes:
    """The name of a file, without ripgrep's note on binary files before it."""
    return _WARNINGS.sub(b"", text, count=1).removeprefix(b"./")


def _line(name: bytes, numbered: re.Match[bytes]) -> _Line:
    found = numbered[2].decode(errors="replace").rstrip("\r")
    if len(found) > LONGEST_LINE:
        found = found[:LONGEST_LINE] + "..."
    return _Line(name, int(numbered[1]), found)


def _ordered(folder: Path, lines: list[_Line]) -> list[_Line]:
    """By file, the newest first, then in the order of the file."""
    times = {line.name: modified(folder, line.name) for line in lines}
    return sorted(lines, key=lambda line: (-times[line.name], line.name, line.number))


async def _readable(call: Call, folder: Path, lines: list[_Line]) -> tuple[list[_Line], int]:
    """The lines of files that may be read without asking, and the number of other files."""
    names = {line.name for line in lines}
    shown = await asyncio.to_thread(
        lambda: {name: call.shown(folder / os.fsdecode(name)) for name in names}
    )
    unasked = await call.unasked("read", shown.values())
    may = {name for name in names if shown[name] in unasked}
    return [line for line in lines if line.name in may], len(names) - len(may)


def _told(folder: Path, lines: list[_Line], is_cut: bool, hidden: int) -> str:
    note = f"(Left out: {hidden} files that need a permission to be read.)" if hidden else ""
    if not lines:
        none = "No lines found" if not is_cut else "Too much was found. Use a narrower pattern."
        return f"{none}\n{note}".rstrip()
    text = [f"Found {len(lines)} line{'s' * (len(lines) != 1)}"]
    for name, of_file in groupby(lines, key=lambda line: line.name):
        text += ["", f"{printable(folder / os.fsdecode(name))}:"]
        text += [f"  Line {line.number}: {line.text}" for line in of_file]
    if is_cut:
        text += ["", "(There are more. Use a narrower pattern, path or include.)"]
    if note:
        text += ["", note]
    return "\n".join(text)
