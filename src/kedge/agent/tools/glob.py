"""The tool `glob`: finds files by patterns of their names."""

import asyncio
import os
from heapq import nlargest
from pathlib import Path
from typing import Annotated

from kedge.agent.tools.call import Call
from kedge.agent.tools.paths import FilePlace, check_folder, check_same, place_of
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.text import mend_text, printable
from kedge.engine.files.ripgrep import glob_argument, modified, search

MOST_FILES = 100
_MOST_NAMES = 100_000
_SPECIAL = set("*?[]{}\\")
_EVERYTHING = {"**", "**/*", "/**", "/**/*"}


@tool(
    "glob",
    description=f"""
    Finds files by the pattern of their paths, such as **/*.py, src/**/*.{{ts,tsx}} or test_*.

    - Use it when you know something of a name. To look for what is in files, use grep. Do not use
      find or ls in bash for it; to see what is in one folder, use read.
    - A pattern without a slash matches names in any folder.
    - At most {MOST_FILES} files are told, those that changed last first. If there are more, use a
      narrower pattern or `path`.
    - What the project ignores (.gitignore) is left out, unless the pattern names it.
    - If you need several searches, make the calls in one step.
    """,
)
async def glob(
    call: Call,
    pattern: Annotated[str, "The pattern that paths have to match"],
    path: Annotated[
        str | None, "The folder to look in; leave it out for the working directory"
    ] = None,
) -> Output:
    pattern = mend_text(pattern)
    if not pattern.strip() or "\0" in pattern:
        raise ToolFailure("The pattern is empty or cannot be part of a path.")
    start, rest = _split(pattern)
    place = place_of(call, os.path.join(path or ".", start))
    await call.ask_outside(place.path, is_folder=True)
    await call.ask("glob", [pattern], metadata={"path": path, "pattern": pattern})
    await asyncio.to_thread(check_folder, place)
    names, is_cut = await _names(place, rest)
    newest = await asyncio.to_thread(_newest, place.real, names)
    await asyncio.to_thread(check_same, place)
    is_cut = is_cut or len(newest) < len(names)
    found = [printable(place.path / os.fsdecode(name)) for name in newest]
    note = [f"(Only the {len(found)} newest are told. Use a narrower pattern.)"] if is_cut else []
    return Output(
        "\n".join([*found, *note]) or "No files found",
        title=place.shown,
        metadata={"count": len(found), "truncated": is_cut},
    )


def _split(pattern: str) -> tuple[str, str]:
    """The folders at the beginning of a pattern, and the rest of it."""
    names = pattern.split("/")
    count = next((n for n, name in enumerate(names) if _SPECIAL & set(name)), len(names) - 1)
    if not count:
        return "", pattern
    return "/".join(names[:count]) or "/", "/" + "/".join(names[count:])


async def _names(place: FilePlace, pattern: str) -> tuple[list[bytes], bool]:
    globs = [] if pattern in _EVERYTHING else [glob_argument(pattern)]
    names: list[bytes] = []
    async with search(place.real, ["--files", "--null", *globs, "--glob=!.git", "--"]) as found:
        async for name in found.records(b"\0"):
            names.append(name)
            if len(names) >= _MOST_NAMES:
                return names, True
        return names, found.is_cut


def _newest(folder: Path, names: list[bytes]) -> list[bytes]:
    """The most recently changed files; those of the same time by name."""
    return nlargest(MOST_FILES, sorted(names), key=lambda name: modified(folder, name))
