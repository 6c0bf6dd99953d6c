"""Finds files by name and lines by pattern below a folder, in bounded time and memory.

ripgrep does the walking: it follows no symlink and leaves out what the project ignores.
"""

import asyncio
import base64
import os
from collections.abc import Collection, Iterable
from heapq import nsmallest
from pathlib import Path
from typing import Any, Literal

import msgspec

from kedge.engine.files.file_names import FileNames
from kedge.engine.files.ripgrep import search

Kind = Literal["file", "directory"]

MOST_LINES = 100
_MOST_NAMES = 100_000
_LONGEST_LINE = 2000
_MOST_SUBMATCHES = 100
_LARGEST_FILE = "64M"
_PATIENCE = 20.0
"""Seconds."""


class MatchText(msgspec.Struct, frozen=True):
    """A piece of text."""

    text: str


class Submatch(msgspec.Struct, frozen=True):
    """Where in a line the pattern was found, counted in bytes."""

    match: MatchText
    start: int
    end: int


class Match(msgspec.Struct, frozen=True):
    """A line in which the pattern was found."""

    path: MatchText
    lines: MatchText
    line_number: int
    absolute_offset: int
    submatches: list[Submatch]


async def find_files(
    known: FileNames, root: str, query: str, limit: int, kinds: Collection[Kind]
) -> list[str]:
    """Paths below a folder that are like the query, the best first; those of folders end with a
    slash. Below a folder that does not exist there are none."""

    async def listing() -> list[bytes]:
        return await _records(root, ["--files", "--null"], b"\0", _MOST_NAMES)

    names = await known.below(root, listing)
    wanted = "".join(query.split()).removeprefix("./").lower()
    return await asyncio.to_thread(_best, names, wanted, limit, kinds)


async def find_text(root: str, pattern: str) -> list[Match]:
    """Lines of files below a folder that match a regular expression, by file."""
    arguments = ["--json", f"--max-count={MOST_LINES}", f"--max-filesize={_LARGEST_FILE}"]
    arguments.append(f"--regexp={pattern}")
    records = await _records(root, arguments, b"\n", MOST_LINES, beginning=b'{"type":"match"')
    matches = [_match(msgspec.json.decode(record)["data"]) for record in records]
    return sorted(matches, key=lambda match: (match.path.text, match.line_number))


async def _records(
    root: str, arguments: list[str], separator: bytes, most: int, *, beginning: bytes = b""
) -> list[bytes]:
    """What ripgrep says, up to so many pieces that begin like this."""
    if not await asyncio.to_thread(os.path.isdir, root):
        return []
    records: list[bytes] = []
    arguments = [*arguments, "--glob=!.git", "--"]
    async with search(Path(root), arguments, patience=_PATIENCE) as running:
        async for record in running.records(separator):
            if record.startswith(beginning):
                records.append(record)
            if len(records) >= most:
                break
    return records


def _match(data: dict[str, Any]) -> Match:
    return Match(
        path=MatchText(_text(data["path"])),
        lines=MatchText(_text(data["lines"])[:_LONGEST_LINE]),
        line_number=data["line_number"],
        absolute_offset=data["absolute_offset"],
        submatches=[
            Submatch(MatchText(_text(each["match"])[:_LONGEST_LINE]), each["start"], each["end"])
            for each in data["submatches"][:_MOST_SUBMATCHES]
        ],
    )


def _text(said: dict[str, str]) -> str:
    """What ripgrep says in text if it is UTF-8, and in base64 if not."""
    if "text" in said:
        return said["text"]
    return base64.b64decode(said["bytes"]).decode(errors="replace")


def _best(names: Iterable[bytes], wanted: str, limit: int, kinds: Collection[Kind]) -> list[str]:
    files = [name.decode(errors="replace") for name in names]
    candidates = files if "file" in kinds else []
    if "directory" in kinds:
        candidates = [*candidates, *_folders(files)]
    # Where the letters stand side by side is always better than where they do not.
    close = [path for path in candidates if wanted in path.lower()]
    ranked = (
        (_rank(path, wanted), path) for path in (close if len(close) >= limit else candidates)
    )
    return [path for _, path in nsmallest(limit, (each for each in ranked if each[0]))]


def _folders(files: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in files:
        folder = path.rpartition("/")[0]
        while folder and folder + "/" not in found:
            found.add(folder + "/")
            folder = folder.rpartition("/")[0]
    return found


def _rank(path: str, wanted: str) -> tuple[int, int] | None:
    """How far a path is from what is wanted; None if it has nothing to do with it."""
    lower = path.lower()
    name = lower.rstrip("/").rpartition("/")[2]
    if wanted in (name, lower, lower.rstrip("/")):
        return (0, len(path))
    if name.startswith(wanted):
        return (1, len(path))
    if wanted in name:
        return (2, len(path))
    if wanted in lower:
        return (3, len(path))
    span = _span(lower, wanted)
    return None if span is None else (4 + span, len(path))


def _span(text: str, letters: str) -> int | None:
    """How long the piece of a text is that holds these letters in order."""
    first = at = text.find(letters[0])
    for letter in letters[1:]:
        if at < 0:
            return None
        at = text.find(letter, at + 1)
    return None if at < 0 else at - first
