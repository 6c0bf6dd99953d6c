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
