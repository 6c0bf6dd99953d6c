"""The tool `edit`: a piece of a file exchanged for another one."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from kedge.agent.tools.call import Call
from kedge.agent.tools.changing import change, new_file
from kedge.agent.tools.contents import Found, Replacement
from kedge.agent.tools.editing import edited
from kedge.agent.tools.places import Place, place_of
from kedge.agent.tools.texts import Text, is_binary
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.text import mend_text


@tool(
    "edit",
    description="""
    Replaces one piece of a file by another.

    oldString has to be in the file exactly once, blanks and indentation included; give some lines
    around it to make it so. With replaceAll every occurrence is replaced. If it is not there as
    given, lines that differ from it in blanks only are taken. Leave out the line numbers that read
    shows. With an empty oldString, a file is made that does not exist yet.
    """,
)
async def edit(
    call: Call,
    filePath: Annotated[str, "The file, absolute or from the working directory"],
    oldString: Annotated[str, "What is there now"],
    newString: Annotated[str, "What should be there instead"],
    replaceAll: Annotated[bool | None, "Replace every occurrence, not only one"] = None,
) -> Output:
    place = place_of(call, filePath)
    old, new = mend_text(oldString), mend_text(newString)

    def plan(found: Mapping[Place, Found]) -> Sequence[Replacement]:
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
    return Text(new).encode()


def _changed(before: Found, old: str, new: str, everywhere: bool) -> bytes:
    if not before.exists:
        raise ToolFailure("The file does not exist. Look for it with glob, or make it with write.")
    if is_binary(before.data):
        raise ToolFailure("The file is binary, and edit changes text only.")
    return edited(Text.decode(before.data), old, new, everywhere=everywhere).encode()
