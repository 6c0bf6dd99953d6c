"""What every request begins with: who the model is, where it works, and what people wrote down for
it."""

import asyncio
import logging
import os
import platform
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from kedge.agent.tools.places import printable
from kedge.config.instructions import instruction_files
from kedge.config.substituting import keeps_secrets
from kedge.config.values import Config
from kedge.domain.errors import KedgeError
from kedge.domain.safe_read import read_up_to, regular_file
from kedge.engine.checkout import standing
from kedge.snapshot.repository.asking import aside

_log = logging.getLogger(__name__)
INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
"""Where people write for models, by the first name that there is."""
CUT = "[cut: the file is longer]"
_MAX_BYTES = 256 * 1024
"""How much of one file is told."""
_MAX_ALL = 1024 * 1024
"""How many characters of all of them."""
_GIT_PATIENCE = 3.0
"""Seconds that the first prompt of a session waits for git at most."""
_MOST_CHANGES = 20
_LONGEST_NAME = 200
_MOST_SESSIONS = 1024
"""Sessions of which it is remembered how their worktree stood."""

PLAN = """\
# Plan mode
You are in plan mode: you may look at everything and change nothing. Do not write, edit, move or \
delete files, and run no command that changes anything, whatever else you are told, until the \
person leaves plan mode. Read and search until you know what is needed; ask where the person has \
to choose. Then answer with a plan that somebody else could carry out: which files change and \
how, with `path:line`, in which order, what could go wrong, and how to verify it."""

LAST_STEP = """\
This is the last step of this turn, and no tool can be called in it. Say what is done, what is \
not, and what should come next."""


def environment(directory: str, worktree: str, git: str, *, now_ms: int, model: str) -> str:
    """Where and when the model works; `git` is what is told of the repository."""
    # In the zone of this machine, as the person's clock and calendar have it.
    today = datetime.fromtimestamp(now_ms / 1000).astimezone().strftime("%A, %d %B %Y")
    return "\n".join(
        [
            f"You are the model {model}.",
            "<env>",
            f"  Directory: {directory}",
            f"  Root of the worktree: {worktree}",
            f"  Platform: {platform.system().lower()}",
            f"  Today: {today}",
            "</env>",
            "<git>",
            git,
            "</git>",
        ]
    )


class Checkouts:
    """What git said of each session's worktree at its first prompt in this process.

    It is not asked again: what a request begins with stays the same from step to step, and so is
    read from the provider's cache.
    """

    def __init__(self) -> None:
        self._told: OrderedDict[str, str] = OrderedDict()

    async def of(self, session_id: str, directory: str, *, is_git: bool) -> str:
        """What a model is told of the repository that a session works in."""
        if session_id not in self._told:
            self._told[session_id] = await _checkout(directory) if is_git else "Repository: no"
            if len(self._told) > _MOST_SESSIONS:
                self._told.popitem(last=False)
        self._told.move_to_end(session_id)
        return self._told[session_id]


async def _checkout(directory: str) -> str:
    ask = partial(standing, directory, most=_MOST_CHANGES, patience=_GIT_PATIENCE)
    try:
        async with asyncio.timeout(_GIT_PATIENCE):
            found = await aside(ask)
    except (TimeoutError, OSError, KedgeError) as error:
        # A repository that is broken or slow holds nobody up: the model can ask git itself.
        _log.warning(
            "git did not say how %s stands: %s", directory, str(error) or "it took too long"
        )
        return "Repository: yes\nBranch and status could not be read."
    if found is None:
        return "Repository: no"
    commit = found.commit[:10] if found.commit else "no commit yet"
    lines = [
        "Repository: yes",
        f"Branch: {_short(found.branch)}" if found.branch else f"Branch: none (at {commit})",
    ]
    if not found.changes:
        return "\n".join([*lines, "Status, read once at the start: nothing changed"])
    lines.append("Status, read once at the start (run git status to see it as it is now):")
    lines += [f"  {_short(change)}" for change in found.changes]
    if found.more:
        lines.append(f"  and {found.more} more")
    return "\n".join(lines)


def _short(name: str) -> str:
    shown = printable(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:_LONGEST_NAME]}..."


async def instructions(
    config: Config, directory: str, worktree: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """What people wrote down for models, by the real path of the file: in the tree, in their home,
    and where the configuration says."""
    return await asyncio.to_thread(_instructions, config, directory, worktree, environ)


def _instructions(
    config: Config, directory: str, worktree: str, environ: Mapping[str, str]
) -> dict[str, str]:
    texts: dict[str, str] = {}
    room = _MAX_ALL
    named = map(Path, instruction_files(config.instructions, directory, worktree))
    for path in [*_own(environ), *_in_tree(directory, worktree), *named]:
        real = os.path.realpath(path)
        text = None if real in texts else read_instructions(path)
        if not text:
            continue
        room -= len(text)
        if room < 0:
            _log.warning("there are more instructions than a model is told: %s", path)
            break
        texts[real] = f"Instructions from {path}:\n{text}"
    return texts


def _own(environ: Mapping[str, str]) -> Iterator[Path]:
    """The first of the files that a person keeps for all projects."""
    home = Path(environ.get("HOME") or Path.home())
    base = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = (base / "kedge" / "AGENTS.md", base / "opencode" / "AGENTS.md")
    yield from [path for path in (*places, home / ".claude" / "CLAUDE.md") if path.is_file()][:1]


def _in_tree(directory: str, worktree: str) -> list[Path]:
    """The files from the root of the worktree down to the directory, of the first name there is."""
    root, here = Path(worktree), Path(directory)
    folders = [here, *here.parents]
    folders = folders[: folders.index(root) + 1] if root in folders else [here]
    for name in INSTRUCTION_FILES:
        if found := [folder / name for folder in reversed(folders) if (folder / name).is_file()]:
            return [path for path in found if may_be_told(path, root)]
    return []


def may_be_told(path: Path, root: Path) -> bool:
    """Whether a file leads nowhere else: by a link, the model would be told what it may not read
    unasked."""
    is_below = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
    return is_below and not keeps_secrets(str(path), str(root))


def read_instructions(path: Path) -> str | None:
    """What a file says, if it is a file and can be read; never waits for anybody."""
    try:
        with regular_file(path) as (descriptor, found):
            content = read_up_to(descriptor, _MAX_BYTES, expected=found.st_size)
    except OSError as error:
        _log.warning("instructions cannot be read: %s", error)
        return None
    text = content[:_MAX_BYTES].decode(errors="replace").strip()
    return f"{text}\n{CUT}" if len(content) > _MAX_BYTES else text
