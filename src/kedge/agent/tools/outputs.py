"""What a call gives back, short enough to be stored and sent; the whole is kept in a file."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from kedge.agent.output_limit import count_lines, first_lines, fits, left_out, with_notes
from kedge.agent.shells.collecting import Collected
from kedge.agent.tools.call import Call
from kedge.engine.outputs import output_path


@dataclass(frozen=True, slots=True)
class Limited:
    """An output as it is stored."""

    text: str
    is_cut: bool = False
    path: Path | None = None
    """Where all of it is, if something was left out and could be kept."""


async def limited(text: str, call: Call, *, has_notes: bool = False) -> Limited:
    """The output, or its beginning and where the rest of it is.

    `has_notes` is for tools that see to the limit themselves: their own words about that have room
    beside it.
    """
    if fits(text, with_notes(call.limit) if has_notes else call.limit):
        return Limited(text)
    return await asyncio.to_thread(_limited, text.encode("utf-8", "replace"), call)


def _limited(data: bytes, call: Call) -> Limited:
    kept = Collected(output_path(call.engine.data, call.session.id, call.part_id))
    try:
        kept.keep()
        kept.add(data)
    finally:
        kept.close()
    shown = first_lines(data, call.limit)
    note = left_out(lines=count_lines(data) - count_lines(shown), size=len(data) - len(shown))
    text = f"{shown.decode()}\n\n{note}\n\n{kept.whereabouts}"
    return Limited(text, is_cut=True, path=kept.path if kept.has_file else None)
