"""A patch fitted to the text of a file: each of its pieces where it stands, or a reason why not."""

from collections.abc import Sequence

from kedge.agent.tools.anchoring import after, anchored, scopes, within
from kedge.agent.tools.finding import KEYS, places_of_lines
from kedge.agent.tools.indenting import indented
from kedge.agent.tools.patching import FilePatch, Piece
from kedge.agent.tools.texts import Text
from kedge.agent.tools.tool import ToolFailure

_BOM = "\ufeff"
_SHOWN = 3


def _exactly(line: str) -> str:
    return line


_KEYS = (_exactly, *KEYS)


def patched(text: Text, file: FilePatch) -> Text:
    """The text with all pieces of a patch applied; raises `ToolFailure` if one does not fit."""
    mark = _BOM if text.whole.startswith(_BOM) else ""
    raw = text.whole.removeprefix(_BOM).split("\n")
    had_end = raw[-1] == ""
    if had_end:
        raw.pop()
    lines = [line.removesuffix("\r") for line in raw]
    ends = ["\r\n" if line.endswith("\r") else "\n" for line in raw]
    if not had_end:
        lines[-1], ends[-1] = raw[-1], text.line_end
    made: list[str] = []
    cursor = 0
    for piece in file.pieces:
        at = _place(lines, piece, cursor, file.path)
        made += _joined(lines, ends, cursor, at)
        cursor = _apply(piece, lines, ends, at, text.line_end, made)
    made += _joined(lines, ends, cursor, len(lines))
    keeps_end = had_end if file.line_end is None else file.line_end
    return Text(mark + _finished("".join(made), text.line_end, keeps_end))


def new_text(file: FilePatch) -> Text:
    """The content of a file that a patch adds."""
    lines = [line for piece in file.pieces for _, line in piece.lines]
    return Text("\n".join(lines) + ("\n" if lines and file.line_end is not False else ""))


def _joined(lines: Sequence[str], ends: Sequence[str], first: int, after: int) -> list[str]:
    return [line + end for line, end in zip(lines[first:after], ends[first:after], strict=True)]


def _apply(
    piece: Piece, lines: Sequence[str], ends: Sequence[str], at: int, end: str, made: list[str]
) -> int:
    """Add what the piece makes of its lines; lines that stay are kept as the file has them."""
    old = piece.old
    new = iter(indented(piece.new, old, lines[at : at + len(old)]))
    for kind, _ in piece.lines:
        if kind == "+":
            made.append(next(new) + end)
            continue
        if kind == " ":
            made.append(lines[at] + ends[at])
        at += 1
    return at


def _finished(text: str, line_end: str, keeps_end: bool) -> str:
    if keeps_end or not text.endswith("\n"):
        return text
    return text.removesuffix("\n").removesuffix("\r") if line_end == "\r\n" else text[:-1]


def _place(lines: Sequence[str], piece: Piece, cursor: int, path: str) -> int:
    """The number of the line, from 0, at which a piece belongs."""
    starts = anchored(lines, piece.anchors, cursor, path)
    if not piece.old:
        return _of_new_lines(lines, piece, starts, cursor, path)
    first = starts[0] + 1 if starts else cursor
    by_key = [
        [first + at for at in places_of_lines(lines[first:], piece.old, key)] for key in _KEYS
    ]
    where = list(scopes(lines, starts, cursor))
    # The end of the file and a number say more than the block of an anchor does.
    for scope in where[-1:] if piece.at_end or piece.line is not None else where:
        for places in by_key:
            if found := within(scope, places):
                return _chosen(found, lines, piece, path)
    raise ToolFailure(
        f"The patch does not fit {path}: these lines are not there{after(first)}:\n"
        + "\n".join(piece.old[:_SHOWN])
        + "\nRead the file again; nothing was changed."
    )


def _of_new_lines(
    lines: Sequence[str], piece: Piece, starts: list[int], cursor: int, path: str
) -> int:
    """Lines with none around them go after their anchor, to their number, or to the end."""
    if starts:
        return _chosen([start + 1 for start in starts], lines, piece, path)
    if piece.line is not None and cursor <= piece.line <= len(lines):
        return piece.line
    return len(lines)


def _chosen(found: list[int], lines: Sequence[str], piece: Piece, path: str) -> int:
    last = len(lines) - len(piece.old)
    if piece.at_end and last in found:
        return last
    if piece.line is not None and piece.line - 1 in found:
        return piece.line - 1
    if len(found) == 1:
        return found[0]
    numbers = ", ".join(str(at + 1) for at in found[:_SHOWN])
    more = ", ..." if len(found) > _SHOWN else ""
    raise ToolFailure(
        f"The patch does not say clearly where to change {path}: its lines are there {len(found)} "
        f"times (at lines {numbers}{more}). Give more lines around them, or lines that stand "
        "before them after @@, from the outside in; nothing was changed."
    )
