"""Pieces: text of a growing part, stored beside it in case its process is killed.

They are no events, and readers of messages do not see them: they are joined when the part is
closed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kedge.domain import wire
from kedge.store.queries.fences import Fence
from kedge.store.rows import quoted
from kedge.store.transaction import Script, batch, row, rows, run


class Piece(NamedTuple):
    """Text that follows the stored text of its part, or another piece."""

    fence: Fence
    part_id: str
    start: int
    """The number of characters of the part before it."""
    text: str


def add_pieces(pieces: Iterable[Piece]) -> Script[None]:
    """Store pieces of any number of sessions; those of an owner that lost its lease are ignored.

    Nothing waits for a lock here. A piece that is stored just when another process takes over the
    session belongs to a closed part: it is dropped when the next run ends.
    """
    yield from row("commit_without_sync")
    yield from batch(
        "piece_add",
        [
            {
                "session_id": fence.session_id,
                "generation": fence.generation,
                "part_id": part_id,
                "start": start,
                "data": quoted(text),
            }
            for fence, part_id, start, text in pieces
        ],
    )


def drop_pieces(session_id: str, part_id: str) -> Script[None]:
    """Drop the pieces of a part that is stored with all of its text, or gone."""
    yield from run("piece_drop", session_id=session_id, part_id=part_id)


def take_pieces(session_id: str) -> Script[Mapping[str, Sequence[tuple[int, str]]]]:
    """Return and delete all pieces of a session, by part and in order."""
    taken: dict[str, list[tuple[int, str]]] = {}
    for part_id, start, data in sorted((yield from rows("piece_take", session_id=session_id))):
        taken.setdefault(part_id, []).append((start, wire.decode(data, str)))
    return taken


def joined(text: str, pieces: Sequence[tuple[int, str]]) -> str:
    """A text and the pieces that follow it; some may have been stored with it already."""
    joined, length = [text], len(text)
    for start, piece in pieces:
        if start <= length < start + len(piece):
            joined.append(piece[length - start :])
            length = start + len(piece)
    return "".join(joined)
