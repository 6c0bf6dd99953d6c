"""References in a prompt's text: `@path` attaches a file or a folder, `@name` mentions an agent."""

import asyncio
import os
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kedge.agent.tools.paths import place_of

if TYPE_CHECKING:
    from kedge.agent.tools.call import Call

_REFERENCE = re.compile(r"(?<![\w`])@([^\s,`]+)")
_CLOSING = ".;:!?)]}>'\""
"""What may follow a reference in a sentence."""
_MOST = 100
"""How many references of a text count."""
_MOST_WORDS = 1000
"""How many words that look like one are looked up: each is a look at the disk."""

Span = tuple[int, int]


def references(
    text: str,
    *,
    worktree: str,
    home: str,
    agents: Collection[str] = (),
    without: Sequence[Span] = (),
) -> list[dict[str, Any]]:
    """The parts for what a text refers to, each once, in the order of the text. It looks at the
    disk.

    A path starts in the worktree, or with `~/` in the home directory. A word that is no path but
    the name of an agent mentions it; any other word is only text. What touches one of the spans
    `without` is not looked at: a text that no person wrote must not attach files.
    """
    found: dict[str, dict[str, Any]] = {}
    for word in _words(text, without):
        for name in dict.fromkeys((word, word.rstrip(_CLOSING))):
            part = _file(name, worktree, home) or _agent(name, agents)
            if part is not None:
                found.setdefault(name, part)
                break
        if len(found) == _MOST:
            break
    return list(found.values())


async def references_of_model(
    call: "Call", text: str, *, agents: Collection[str] = ()
) -> list[dict[str, Any]]:
    """What a text that a model wrote refers to: only files that it may read without asking."""
    look = partial(
        references, text, worktree=str(call.worktree), home=str(Path.home()), agents=agents
    )
    found = await asyncio.to_thread(look)
    return [each for each in found if each["type"] == "agent" or await _is_readable(call, each)]


async def _is_readable(call: "Call", part: dict[str, Any]) -> bool:
    place = place_of(call, unquote(urlsplit(part["url"]).path))
    patterns = set(place.patterns)
    return call.is_inside(place.path) and await call.unasked("read", patterns) == patterns


def _words(text: str, without: Sequence[Span]) -> Iterator[str]:
    words = [
        found[1]
        for found in _REFERENCE.finditer(text)
        if not any(found.start() < end and start < found.end() for start, end in without)
    ]
    return iter(list(dict.fromkeys(words))[:_MOST_WORDS])


def _path(name: str, worktree: str, home: str) -> Path:
    return Path(home, name[2:]) if name.startswith("~/") else Path(worktree, name)


def _file(name: str, worktree: str, home: str) -> dict[str, Any] | None:
    if not name or "\0" in name:
        return None
    path = os.path.normpath(_path(name, worktree, home))
    if os.path.isdir(path):
        mime = "application/x-directory"
    elif os.path.isfile(path):
        mime = "text/plain"
    else:
        return None
    return {"type": "file", "url": Path(path).as_uri(), "filename": name, "mime": mime}


def _agent(name: str, agents: Collection[str]) -> dict[str, Any] | None:
    return {"type": "agent", "name": name} if name in agents else None
