"""What a tool gives back, short enough for a model; the whole is kept aside."""

import asyncio
from dataclasses import dataclass

from kedge.agent.shells.collecting import SHOWN, Collected
from kedge.agent.tools.call import Call
from kedge.engine.outputs import output_path


@dataclass(frozen=True, slots=True)
class Capped:
    """The output as the model gets it."""

    text: str
    truncated: bool


async def capped(text: str, call: Call) -> Capped:
    """The output, or its two ends and where the rest of it is."""
    if len(text) * 4 <= SHOWN:
        return Capped(text, truncated=False)
    data = text.encode("utf-8", "replace")
    if len(data) <= SHOWN:
        return Capped(text, truncated=False)
    return await asyncio.to_thread(_capped, data, call)


def _capped(data: bytes, call: Call) -> Capped:
    output = Collected(output_path(call.engine.data, call.session.id, call.part_id))
    try:
        output.add(data)
    finally:
        output.close()
    where = "and it could not be kept" if output.problem else f"and all of it is in {output.path}"
    note = f"\n\n... (the output has {len(data)} bytes, {where})\n\n"
    return Capped(output.text(note), truncated=True)
