"""The tool `apply_patch`: changes several files at once, or none."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from kedge.agent.tools.call import Call
from kedge.agent.tools.file_changes import Changed, Replacement, change, new_file
from kedge.agent.tools.patch import FilePatch, new_text, parse, patched
from kedge.agent.tools.paths import FilePlace, own_place_of, place_of
from kedge.agent.tools.text_file import FileText, is_binary
from kedge.agent.tools.tool import Output, ToolFailure, tool
from kedge.domain.text import mend_text, printable
from kedge.engine.files.edits import Found


@dataclass(frozen=True, slots=True)
class _File:
    """One file of the patch, and its place."""

    patch: FilePatch
    place: FilePlace
    target: FilePlace | None = None
    """The place it is moved to."""

    @property
    def kind(self) -> str:
        return "move" if self.target else self.patch.kind


@tool(
    "apply_patch",
    permission="edit",
    description="""
    Changes, adds, deletes and moves files. Either all of it is done or nothing. Use it for every
    change of a file; do not change files with sed, echo, heredocs or a script in bash.

    The patch is a text of this form:

    *** Begin Patch
    *** Update File: src/app.py
    *** Move to: src/main.py
    @@ def greet():
         name = "you"
    -    print("hi")
    +    print("hello")
    *** Add File: notes.txt
    +each line begins with a plus
    *** Delete File: old.txt
    *** End Patch

    - Lines that stay begin with a blank, lines that go with a minus, lines that come with a plus;
      what follows is the line with its own indentation.
    - Give about three lines that stay before and after each change. Together they have to be in the
      file once. No line numbers are needed.
    - If they are there more than once, write @@ and a line that stands before the change, such as
      the head of the class or function. "Move to" and @@ are optional.
    - A file is named once in a patch, with all its changes in the order of the file.
    - Paths start at the working directory. Nothing is moved or added over a file that exists.
    - A patch that does not fit is refused, and the answer says where. Then read the file again: it
      may not be as you last saw it.
    """,
)
async def apply_patch(
    call: Call, patchText: Annotated[str, "The whole patch, from *** Begin Patch to *** End Patch"]
) -> Output:
    files = [_located(call, file) for file in parse(mend_text(patchText))]
    places = [place for file in files for place in (file.place, file.target) if place]
    _check_once(places)
    told = await change(call, places, partial(_plan, files), unseen=True)
    shown = [_shown(file) for file in files]
    return Output(
        "The patch was applied:\n" + "\n".join(shown),
        title=f"{len(files)} file" + "s" * (len(files) != 1),
        metadata={
            "diff": "".join(each.diff.text for each in told),
            "files": _files(files, told),
            "diagnostics": {},
            "truncated": False,
        },
    )


def _located(call: Call, file: FilePatch) -> _File:
    if file.kind == "delete":
        return _File(file, own_place_of(call, file.path))
    place = place_of(call, file.path)
    target = None if file.move is None else place_of(call, file.move)
    if target and place.path.is_symlink():
        raise ToolFailure(f"{printable(place.path)} is a symlink. Move it with a command.")
    return _File(file, place, None if target and target.real == place.real else target)


def _check_once(places: Sequence[FilePlace]) -> None:
    counted = Counter(place.real for place in places)
    for real, count in counted.items():
        if count > 1:
            raise ToolFailure(
                f"{printable(real)} is named {count} times in the patch. Put all its changes "
                "under one name."
            )


def _plan(files: Sequence[_File], found: Mapping[FilePlace, Found]) -> list[Replacement]:
    return [each for file in files for each in _replacements(file, found)]


def _replacements(file: _File, found: Mapping[FilePlace, Found]) -> list[Replacement]:
    before = found[file.place]
    name = printable(file.place.path)
    if file.patch.kind == "add":
        if before.exists:
            raise ToolFailure(f"{name} exists already. Update it, or delete it first.")
        return [new_file(file.place, before, new_text(file.patch).encode())]
    if not before.exists:
        raise ToolFailure(f"{name} does not exist. Look for it with glob; nothing was changed.")
    if file.patch.kind == "delete":
        return [Replacement(file.place, before, None)]
    return _updated(file, before, found)


def _updated(file: _File, before: Found, found: Mapping[FilePlace, Found]) -> list[Replacement]:
    after = before.data
    if file.patch.pieces:
        if is_binary(before.data):
            raise ToolFailure(f"{printable(file.place.path)} is binary, and patches change text.")
        after = patched(FileText.decode(before.data), file.patch).encode()
    if file.target is None:
        return [Replacement(file.place, before, after)]
    target = found[file.target]
    if target.exists:
        raise ToolFailure(
            f"{printable(file.target.path)} exists already, and nothing is moved over it."
        )
    return [
        Replacement(file.place, before, None),
        Replacement(file.target, target, after, before.mode),
    ]


def _shown(file: _File) -> str:
    letter = {"add": "A", "update": "M", "delete": "D", "move": "R"}[file.kind]
    moved = f" -> {file.target.shown}" if file.target else ""
    return f"{letter} {file.place.shown}{moved}"


def _files(files: Sequence[_File], told: Sequence[Changed]) -> list[dict[str, Any]]:
    """The outcome of each file, for display by clients."""
    by_place = {each.place: each for each in told}
    return [_file(file, [by_place[p] for p in (file.place, file.target) if p]) for file in files]


def _file(file: _File, told: Sequence[Changed]) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "filePath": printable(file.place.path),
        "relativePath": (file.target or file.place).shown,
        "type": file.kind,
        "patch": told[-1].diff.text,
        "additions": sum(each.diff.additions for each in told),
        "deletions": sum(each.diff.deletions for each in told),
    }
    return drawn | ({"movePath": printable(file.target.path)} if file.target else {})
