"""The tool `edit`: replaces a piece of a file, found exactly or, where the model got blanks wrong,
nearly."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

from kedge.agent.tools.call import Call
from kedge.agent.tools.file_changes import Replacement, change, new_file
from kedge.agent.tools.paths import FilePlace, place_of
from kedge.agent.tools.text_file import FileText, is_binary
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.text import mend_text
from kedge.engine.files.edits import Found

MOST_PLACES = 1000
"""Places are counted up to this number."""


def _without_blanks(line: str) -> str:
    return " ".join(line.split())


KEYS: tuple[Callable[[str], str], ...] = (str.rstrip, str.strip, _without_blanks)
"""The keys by which lines are compared that differ, the strictest first."""


def places_of(
    text: str, wanted: str, *, everywhere: bool = False, shared: int = 0
) -> Iterator[int]:
    """The positions of a text: `everywhere` for all places that have at most so many `shared`
    letters; else the first ones, including overlapping ones, to be counted."""
    step = len(wanted) - shared if everywhere else 1
    count = 0
    at = text.find(wanted)
    while at >= 0 and (everywhere or count < MOST_PLACES):
        yield at
        count += 1
        at = text.find(wanted, at + step)


def places_of_lines(
    lines: Sequence[str],
    wanted: Sequence[str],
    key: Callable[[str], str],
    *,
    everywhere: bool = False,
) -> Iterator[int]:
    """The numbers of the lines, from 0, at which lines begin that match the wanted ones by the
    key."""
    keys = [key(line) for line in lines]
    starts = [0, *accumulate(len(line) + 1 for line in keys)]
    haystack = "\n" + "\n".join(keys) + "\n"
    needle = "\n" + "\n".join(map(key, wanted)) + "\n"
    for at in places_of(haystack, needle, everywhere=everywhere, shared=1):
        yield bisect_right(starts, at) - 1


def indented(new: Sequence[str], wanted: Sequence[str], present: Sequence[str]) -> list[str]:
    """The new lines, indented for the actual lines instead of those the model assumed."""
    known: dict[str, str] = {}
    for old, line in zip(wanted, present, strict=True):
        if old.strip() and known.setdefault(_indent(old), _indent(line)) != _indent(line):
            return list(new)
    return [_moved(line, known) for line in new]


def _moved(line: str, known: Mapping[str, str]) -> str:
    if not line.strip() or not known:
        return line
    own = _indent(line)
    fitting = [indent for indent in known if own.startswith(indent)]
    if not fitting:
        given = max(known, key=len)
        return _converted(own, given, known[given]) + line[len(own) :]
    given = max(fitting, key=len)
    # The indentation of one step may be used at another depth.
    step = given or max(known, key=len)
    deeper = _converted(own[len(given) :], step, known[step])
    return known[given] + deeper + line[len(own) :]


def _converted(indent: str, given: str, present: str) -> str:
    """An indent with tabs instead of blanks or the other way round, as in the file."""
    if set(given) == {" "} and set(present) == {"\t"} and len(given) % len(present) == 0:
        return indent.replace(" " * (len(given) // len(present)), "\t")
    if set(given) == {"\t"} and set(present) == {" "} and len(present) % len(given) == 0:
        return indent.replace("\t", " " * (len(present) // len(given)))
    return indent


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Match:
    start: int
    end: int
    new: str


def edited(text: FileText, old: str, new: str, *, everywhere: bool = False) -> FileText:
    """The text with `old` replaced by `new`; raises `ToolFailure` unless the place is
    unambiguous."""
    if old == new:
        raise ToolFailure("oldString and newString are the same: there is nothing to change.")
    old = old.replace("\r\n", "\n")
    matches = _matches(text.plain, old, new, everywhere)
    if not matches:
        raise ToolFailure(
            "oldString was not found in the file, also not with other blanks. Read the file again "
            "and copy the lines as they are there."
        )
    if len(matches) > 1 and not everywhere:
        raise ToolFailure(_ambiguous(text.plain, matches))
    return text.replaced([(m.start, m.end, m.new) for m in matches])


def _matches(text: str, old: str, new: str, everywhere: bool) -> list[_Match]:
    exact = [_Match(at, at + len(old), new) for at in places_of(text, old, everywhere=everywhere)]
    if exact or not old.strip():
        return exact
    for key in KEYS:
        nearly = list(_line_matches(text, old, new, key, everywhere))
        if nearly:
            return nearly
    return []


def _ambiguous(text: str, matches: list[_Match]) -> str:
    count = len(matches)
    first = ", ".join(str(text.count("\n", 0, m.start) + 1) for m in matches[:_NAMED])
    more = ", ..." if count > _NAMED else ""
    many = f"at least {MOST_PLACES}" if count >= MOST_PLACES else str(count)
    return (
        f"oldString was found {many} times (at lines {first}{more}). Give more of the lines around "
        "it so that it is found once, or set replaceAll to change them all."
    )


def _line_matches(
    text: str, old: str, new: str, key: Callable[[str], str], everywhere: bool
) -> Iterator[_Match]:
    """The places of whole lines that match those of `old` by the key."""
    lines, wanted = text.split("\n"), old.removesuffix("\n").split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    for first in places_of_lines(lines, wanted, key, everywhere=everywhere):
        after = first + len(wanted)
        # The last line's end is replaced too if both `old` and the file have one.
        end = min(starts[after], len(text)) if old.endswith("\n") else starts[after] - 1
        moved = indented(new.split("\n"), wanted, lines[first:after])
        yield _Match(starts[first], end, "\n".join(moved))


@tool(
    "edit",
    description="""
    Replaces a piece of a file by another one. This is the way to change a file that exists: use
    write only for a new file or a wholly new content, and do not change files with sed, perl or
    echo in bash.

    - oldString has to be in the file exactly once, with its blanks and its indentation. Copy it
      from what read showed you, without the line numbers that read shows. If it is there several
      times, add a few lines around it, or set replaceAll to change every occurrence, for example to
      rename something.
    - Give whole lines, and as few as make the place clear. Make one call for each place; several
      calls in one step are made one after the other.
    - An edit is refused if the file is not as you last saw it. Then read it again and try anew.
    - To delete a piece, give an empty newString. With an empty oldString, a new file is made.

    Example: oldString "    return a - b", newString "    return a + b".
    """,
)
async def edit(
    call: Call,
    filePath: Annotated[str, "The file: an absolute path, or one from the working directory"],
    oldString: Annotated[str, "The lines as they are in the file now"],
    newString: Annotated[str, "The lines that should be there instead; not the same as oldString"],
    replaceAll: Annotated[
        bool | None, "Replace every occurrence; without it there must be exactly one"
    ] = None,
) -> Output:
    place = place_of(call, filePath)
    old, new = mend_text(oldString), mend_text(newString)

    def plan(found: Mapping[FilePlace, Found]) -> Sequence[Replacement]:
        before = found[place]
        after = _created(before, new) if not old else _changed(before, old, new, bool(replaceAll))
        return [new_file(place, before, after)]

    (changed,) = await change(call, [place], plan, unseen=True)
    return Output(
        "Edit applied successfully.",
        title=place.shown,
        metadata={
            "diff": changed.diff.text,
            "filediff": changed.filediff,
            "diagnostics": {},
            "truncated": False,
        },
    )


def _created(before: Found, new: str) -> bytes:
    if before.exists:
        raise ToolFailure(
            "The file exists already, and an empty oldString is nowhere in it. Give the lines to "
            "replace, or replace the whole file with write."
        )
    return FileText(new).encode()


def _changed(before: Found, old: str, new: str, everywhere: bool) -> bytes:
    if not before.exists:
        raise ToolFailure("The file does not exist. Look for it with glob, or make it with write.")
    if is_binary(before.data):
        raise ToolFailure("The file is binary, and edit changes text only.")
    return edited(FileText.decode(before.data), old, new, everywhere=everywhere).encode()
