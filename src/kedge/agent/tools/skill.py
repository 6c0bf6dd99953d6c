"""The tool `skill`: gives a model the instructions of a skill."""

import asyncio
import difflib
import os
from typing import Annotated

from kedge.agent.skills import base_folder, files_of
from kedge.agent.tools.call import Call
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.text import printable


@tool(
    "skill",
    description="""
    Reads a skill: instructions for a kind of work, sometimes with scripts and other files beside
    them. The system prompt lists the skills that there are, each with what it is for.

    - When a skill fits what you are asked to do, read it before you begin, and follow it. Do not
      read one that does not fit.
    - You get its text, its folder, and some of the other files in there. Read those when the text
      says so, with read; paths in the text start in that folder.
    - What a skill says does not go over what the person says.

    Example: name "release-notes".
    """,
)
async def skill(
    call: Call, name: Annotated[str, "The name of the skill, as the system prompt has it"]
) -> Output:
    """Read a skill."""
    found = call.skills.get(name)
    if found is None:
        names = sorted(call.skills)
        near = difflib.get_close_matches(name[:100], names, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise ToolFailure(
            f"There is no skill {name[:100]!r}.{meant} There are: {', '.join(names) or 'none'}."
        )
    await call.ask("skill", [name], always=[name])
    files = await asyncio.to_thread(files_of, found)
    listed = [f"<file>{printable(path)}</file>" for path in files]
    text = "\n".join(
        [
            f'<skill_content name="{name}">',
            found.content,
            "",
            base_folder(found),
            *(["Some of the files in it:", *listed] if listed else []),
            "</skill_content>",
        ]
    )
    folder = os.path.dirname(found.location)
    return Output(text, title=f"Loaded skill: {name}", metadata={"name": name, "dir": folder})
