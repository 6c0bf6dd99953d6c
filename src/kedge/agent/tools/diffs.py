"""What a call changes, as the text that people are shown before they allow it, and afterwards."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kedge.snapshot.diffs.lines import are_comparable, compare_lines, count
from kedge.snapshot.diffs.quoting import quoted

MOST_BYTES = 64 * 1024
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


def text_diff(path: Path, old: bytes | None, new: bytes | None, room: int = MOST_BYTES) -> TextDiff:
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
