"""Finding what a model wants to replace, exactly or, where it misremembers blanks, nearly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from kedge.agent.tools.finding import KEYS, MOST_PLACES, places_of, places_of_lines
from kedge.agent.tools.indenting import indented
from kedge.agent.tools.texts import Text
from kedge.agent.tools.tool import ToolFailure

_NAMED = 5


@dataclass(frozen=True, slots=True)
class _Match:
    start: int
    end: int
    new: str


def edited(text: Text, old: str, new: str, *, everywhere: bool = False) -> Text:
    """The text with `old` replaced by `new`; raises `ToolFailure` unless it is clear where."""
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
    """Whole lines that are the same as those of `old` as far as the key tells."""
    lines, wanted = text.split("\n"), old.removesuffix("\n").split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    for first in places_of_lines(lines, wanted, key, everywhere=everywhere):
        after = first + len(wanted)
        # The line end of the last one is replaced too if `old` has one, and so has the file.
        end = min(starts[after], len(text)) if old.endswith("\n") else starts[after] - 1
        moved = indented(new.split("\n"), wanted, lines[first:after])
        yield _Match(starts[first], end, "\n".join(moved))
