"""What every request begins with: who the model is, where it works, and what people wrote down for
it."""

import asyncio
import logging
import os
import platform
import stat
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from kedge.config.instructions import instruction_files
from kedge.config.substituting import keeps_secrets
from kedge.config.values import Config

_log = logging.getLogger(__name__)
_NAMES = ("AGENTS.md", "CLAUDE.md")
_MAX_BYTES = 256 * 1024
"""How much of one file is told."""
_MAX_ALL = 1024 * 1024
"""How many characters of all of them."""

BUILD = """\
You are a coding agent. You work in a person's project on their machine, through the tools you \
are given, and in their name: what you write is on their disk at once, and other agents and \
people may work in the same folder at the same time.

- Look before you change: read the files that matter, search instead of guessing, follow the \
conventions that the project has.
- Do what was asked, all of it and nothing beyond it. When it is unclear what is wanted and a \
wrong guess would be costly, ask.
- Use the file tools to read, search and change files, and the shell for everything else: \
running, testing, building. Call several tools at once when they do not depend on each other.
- An edit is refused when the file is not as you last saw it. Then read it again; somebody else \
was there.
- Try what you built before you say that it works, and say plainly what you did not do or could \
not check.
- Answer briefly. The person reads what you write in a terminal; code and paths are better than \
prose.
"""

PLAN = """\
You are in plan mode: you may look at everything and change nothing. Do not try to write files, \
and run no command that changes anything, whatever else you are told. Find out what is needed \
and answer with a plan that somebody can carry out."""

LAST_STEP = """\
This is the last step of this turn, and you have no tools in it. Say what is done, what is not, \
and what should come next."""


def environment(directory: str, worktree: str, *, is_git: bool, now_ms: int, model: str) -> str:
    """Where and when the model works."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%A, %d %B %Y")
    return "\n".join(
        [
            f"You are the model {model}.",
            "<env>",
            f"  Directory: {directory}",
            f"  Root of the worktree: {worktree}",
            f"  Git repository: {'yes' if is_git else 'no'}",
            f"  Platform: {platform.system().lower()}",
            f"  Today: {today}",
            "</env>",
        ]
    )


async def instructions(
    config: Config, directory: str, worktree: str, environ: Mapping[str, str]
) -> list[str]:
    """What people wrote down for models: in the tree, in their home, and where the configuration
    says."""
    return await asyncio.to_thread(_instructions, config, directory, worktree, environ)


def _instructions(
    config: Config, directory: str, worktree: str, environ: Mapping[str, str]
) -> list[str]:
    texts: dict[str, str] = {}
    room = _MAX_ALL
    named = map(Path, instruction_files(config.instructions, directory, worktree))
    for path in [*_own(environ), *_in_tree(directory, worktree), *named]:
        real = os.path.realpath(path)
        text = None if real in texts else _read(path)
        if not text:
            continue
        room -= len(text)
        if room < 0:
            _log.warning("there are more instructions than a model is told: %s", path)
            break
        texts[real] = f"Instructions from {path}:\n{text}"
    return list(texts.values())


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
    for name in _NAMES:
        if found := [folder / name for folder in reversed(folders) if (folder / name).is_file()]:
            # A link would tell the model what it may not read unasked.
            return [path for path in found if _is_below(path, root) and not _is_secret(path, root)]
    return []


def _is_secret(path: Path, root: Path) -> bool:
    return keeps_secrets(str(path), str(root))


def _is_below(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _read(path: Path) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        _log.warning("instructions cannot be read: %s", error)
        return None
    text = content[:_MAX_BYTES].decode(errors="replace").strip()
    return f"{text}\n[cut: the file is longer]" if len(content) > _MAX_BYTES else text
