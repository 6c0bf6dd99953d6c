"""The tool `write`: writes a file's whole content."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from kedge.agent.tools.call import Call
from kedge.agent.tools.file_changes import Replacement, change, new_file
from kedge.agent.tools.paths import FilePlace, place_of
from kedge.agent.tools.tool import Output, tool
from kedge.domain.text import printable, utf8
from kedge.engine.files.edits import Found


@tool(
    "write",
    permission="edit",
    description="""
    Writes a whole file: makes a new one, with the folders that it needs, or replaces all that is in
    one.

    - To change a part of a file that exists, use edit: it is shorter, and leaves the rest alone.
    - A file that exists has to be read first. All of it is replaced: what you leave out is lost.
    - Do not write files with echo, cat or heredocs in bash.
    - Make no new files that nobody needs: no documentation, no summaries and no notes unless asked.
    """,
)
async def write(
    call: Call,
    content: Annotated[str, "All that the file should hold, from its first line to its last"],
    filePath: Annotated[str, "The file: an absolute path, or one from the working directory"],
) -> Output:
    place = place_of(call, filePath)
    data = utf8(content)

    def plan(found: Mapping[FilePlace, Found]) -> Sequence[Replacement]:
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
