"""Instruction files of folders, sent to the model with the first file that is read there.

The system prompt has those above the session's directory. The others are sent where they apply,
once in a session: the metadata of the call that sent one names it.
"""

import asyncio
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kedge.agent.output_limit import first_lines
from kedge.agent.system_prompt import CUT, INSTRUCTION_FILES, may_be_told, read_instructions
from kedge.config.values import ToolOutputConfig
from kedge.domain.text import printable
from kedge.engine.conversation import Conversations

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call

_MAX_BYTES = 16 * 1024
"""How much is sent with one file."""
_MARKS = 4
"""Lines around the text of a file."""
_OF_OTHERS = {".git", "node_modules"}
"""Folders whose instructions are not meant for work on this project."""


@dataclass(slots=True)
class Told:
    """The instructions that are sent with a file."""

    files: list[str] = field(default_factory=list)
    """Their paths, for the call's metadata."""
    text: str = ""

    @property
    def lines(self) -> int:
        """How many lines they take."""
        return self.text.count("\n")


class FolderInstructions:
    """The instructions that one run of a session sends."""

    def __init__(self, conversations: Conversations, session_id: str) -> None:
        self._conversations = conversations
        self._session_id = session_id
        self._looking = asyncio.Lock()
        self._told: set[str] | None = None
        """What was sent in this session, in this run and before; None until it is needed."""
        self.in_system: Collection[str] = ()
        """The real paths of the files that the system prompt has."""

    @contextmanager
    def claimed(self, files: Sequence[Path]) -> Iterator[None]:
        """Mark these as sent, if the block ends normally: calls of one step read at the same
        time."""
        assert self._told is not None
        names = {printable(file) for file in files}
        self._told |= names
        try:
            yield
        except BaseException:
            self._told -= names
            raise

    async def new(self, call: "Call", real: Path) -> list[Path]:
        """The files that apply to a file at a real path and were not sent yet, the outermost
        first."""
        directory, worktree = call.session.info.directory, call.session.worktree
        found = await asyncio.to_thread(_files, real, directory, worktree, self.in_system)
        if not found:
            return []
        shown = {each: call.shown(each) for each in found}
        unasked = await call.unasked("read", shown.values())
        told = await self._known()
        return [each for each in found if shown[each] in unasked and printable(each) not in told]

    async def _known(self) -> set[str]:
        # One call does the look-up for all that read at the same time.
        async with self._looking:
            if self._told is None:
                self._told = await self._conversations.loaded_files(self._session_id)
            return self._told


def told_of(files: Sequence[Path], limit: ToolOutputConfig) -> Told:
    """The texts of files, within half of an output's limit."""
    told = Told()
    for number, file in enumerate(files):
        text = read_instructions(file)
        if not text:
            continue
        share = len(files) - number
        size = min(_MAX_BYTES, limit.max_bytes // 2) - len(told.text.encode())
        lines = limit.max_lines // 2 - told.lines
        room = ToolOutputConfig(
            max_bytes=max(0, size // share), max_lines=max(0, lines // share - _MARKS)
        )
        told.text += _marked(file, text, room)
        told.files.append(printable(file))
    return told


def _marked(file: Path, text: str, room: ToolOutputConfig) -> str:
    data = text.encode("utf-8", "replace")
    shown = first_lines(data, room)
    cut = f"\n{CUT}" if len(shown) < len(data) else ""
    name = printable(file)
    return f'\n\n<instructions file="{name}">\n{shown.decode().rstrip()}{cut}\n</instructions>'


def _files(real: Path, directory: str, worktree: str, in_system: Collection[str]) -> list[Path]:
    root = Path(os.path.realpath(worktree))
    here = Path(os.path.realpath(directory))
    above = {here, *here.parents}
    if not real.is_relative_to(root) or _OF_OTHERS & set(real.relative_to(root).parts):
        return []
    folders = [each for each in real.parents if each.is_relative_to(root)]
    found = []
    for folder in reversed(folders):
        file = None if folder in above else _file_in(folder)
        if file is None or file == real or os.path.realpath(file) in in_system:
            continue
        if may_be_told(file, root):
            found.append(file)
    return found


def _file_in(folder: Path) -> Path | None:
    return next((each for name in INSTRUCTION_FILES if (each := folder / name).is_file()), None)
