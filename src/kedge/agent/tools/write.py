"""The tool `write`: a file's whole content."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from kedge.agent.tools.call import Call
from kedge.agent.tools.changing import change, new_file
from kedge.agent.tools.contents import Found, Replacement
from kedge.agent.tools.places import Place, place_of, printable
from kedge.agent.tools.tool import Output, tool
from kedge.domain.text import utf8


@tool(
    "write",
    permission="edit",
    description="""
    Writes a file: creates it with its folders, or replaces all of what is in it.

    A file that exists has to be read first. To change a part of one, use edit.
    """,
)
async def write(
    call: Call,
    content: Annotated[str, "All that the file should hold"],
    filePath: Annotated[str, "The file, absolute or from the working directory"],
) -> Output:
    place = place_of(call, filePath)
    data = utf8(content)

    def plan(found: Mapping[Place, Found]) -> Sequence[Replacement]:
        return [new_file(place, found[place], data)]

    (changed,) = await change(call, [place], plan, unseen=False)
    return Output(
        "Wrote file successfully.",
        title=place.shown,
        metadata={
            "filepath": printable(place.path),
            "exists": changed.before.exists,
            "diagnostics": {},
            "truncated": False,
        },
    )
