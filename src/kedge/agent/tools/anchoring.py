"""Where in a file the lines lead that a patch names after `@@`."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from kedge.agent.tools.finding import MOST_PLACES
from kedge.agent.tools.tool import ToolFailure

Scope: TypeAlias = list[range]
"""Parts of a file, by the numbers of their lines from 0."""


def anchored(lines: Sequence[str], anchors: Sequence[str], cursor: int, path: str) -> list[int]:
    """The lines that the last of the anchors may mean, each after the ones before it; none if there
    are no anchors. Raises `ToolFailure` if one is not there."""
    starts: list[int] = []
    for anchor in anchors:
        found = _found(lines, starts, cursor, lambda line: line.strip() == anchor)  # noqa: B023
        if not found:
            found = _found(lines, starts, cursor, lambda line: anchor in line)  # noqa: B023
            if len(found) > 1:
                raise _unclear(path, anchor, len(found))
        if not found:
            raise ToolFailure(
                f'The patch does not fit {path}: there is no line "@@ {anchor}"'
                f"{after(starts[0] + 1 if starts else cursor)}. "
                "Read the file again; nothing was changed."
            )
        if len(found) > MOST_PLACES:
            raise _unclear(path, anchor, len(found))
        starts = found
    return starts


def scopes(lines: Sequence[str], starts: Sequence[int], cursor: int) -> Iterator[Scope]:
    """Where to look for what belongs to some lines, the nearest first: in what is indented below
    them, in what follows them in the same block, and in all that comes after."""
    if starts:
        for slack in (1, 0):
            ends = _ends(lines, starts, slack)
            yield [range(start + 1, ends[start]) for start in starts]
    yield [range(starts[0] + 1 if starts else cursor, len(lines))]


def within(scope: Scope, places: Sequence[int]) -> list[int]:
    """Those of some places, which are in order, that lie there."""
    found = {
        at
        for part in scope
        for at in places[bisect_left(places, part.start) : bisect_left(places, part.stop)]
    }
    return sorted(found)


def after(first: int) -> str:
    """Words for where was looked."""
    return f" after line {first}" if first else ""


def _found(
    lines: Sequence[str], starts: Sequence[int], cursor: int, means: Callable[[str], bool]
) -> list[int]:
    places = [at for at in range(cursor, len(lines)) if means(lines[at])]
    return next(
        filter(None, (within(scope, places) for scope in scopes(lines, starts, cursor))), []
    )


def _ends(lines: Sequence[str], starts: Sequence[int], slack: int) -> dict[int, int]:
    """For each of the lines the first after it that is indented less; with slack, not more."""
    ends = dict.fromkeys(starts, len(lines))
    open: list[tuple[int, int]] = []
    for at in range(starts[0], len(lines)):
        bare = lines[at].lstrip()
        if not bare:
            continue
        indent = len(lines[at]) - len(bare)
        while open and indent < open[-1][0] + slack:
            ends[open.pop()[1]] = at
        if at in ends:
            open.append((indent, at))
    return ends


def _unclear(path: str, anchor: str, count: int) -> ToolFailure:
    return ToolFailure(
        f'The patch does not say clearly where to change {path}: "@@ {anchor}" is in {count} '
        "lines. Give a whole line that is there once, or several, from the outside in; nothing was "
        "changed."
    )
