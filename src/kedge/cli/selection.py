"""Finds the session and the message that a person means by a few characters.

A session is named by its id or the beginning of it (`ses_` may be left out), or by `last`.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kedge.cli.failure import CommandFailure
from kedge.cli.screen import clip, one_line

if TYPE_CHECKING:
    from kedge.domain.sessions import SessionInfo
    from kedge.engine.engine import Engine
    from kedge.engine.session import Session

LAST = "last"
SHORT = 8
"""Characters of an id that people see: of a session it is the time to 16 ms."""
_CANDIDATES = 8


def add_session(command: argparse._ActionsContainer, *, option: bool = False) -> None:
    """Add the argument for `find_session`."""
    told = "id or beginning of an id, or `last` (default: the last session used here)"
    if option:
        command.add_argument("--session", "-s", metavar="SESSION", help=told)
    else:
        command.add_argument("session", nargs="?", metavar="SESSION", help=told)


async def find_session(engine: "Engine", name: str | None) -> "Session":
    """The session that is meant."""
    if name in (None, LAST):
        return await _last(engine)
    assert name is not None
    if not name:
        raise CommandFailure("a session has an id; `kedge sessions` lists them, `last` is the last")
    found = await engine.sessions.beginning(name, limit=_CANDIDATES)
    exact = [each for each in found if each.id in (name, f"ses_{name}")]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if not found:
        raise CommandFailure(f"there is no session {one_line(name)}; `kedge sessions` lists them")
    raise CommandFailure(ambiguous(name, [each.info for each in found]))


async def _last(engine: "Engine") -> "Session":
    page = await engine.sessions.list(roots=True, archived=False, limit=1)
    if not page.sessions:
        raise CommandFailure(
            f"there is no session in {engine.place.worktree} yet; `kedge run` or `kedge serve`"
            " begins one, `kedge sessions --all` lists those of other projects"
        )
    return page.sessions[0]


async def check_idle(session: "Session") -> None:
    """Refuse a session that runs: a person should know before they say yes to something."""
    from kedge.domain.errors import SessionBusy
    from kedge.domain.sessions import Idle

    if not isinstance(await session.status(), Idle):
        raise SessionBusy(session.id)


def ambiguous(name: str, infos: Sequence["SessionInfo"]) -> str:
    """What to say when a name could mean several sessions."""
    letters = telling_apart([info.id for info in infos])
    shown = ", ".join(
        f"{short(info.id, letters)} ({clip(one_line(info.title), 40)})" for info in infos
    )
    more = ", …" if len(infos) == _CANDIDATES else ""
    return f"{one_line(name)} may be {shown}{more}; type more of the id"


def short(id: str, letters: int = SHORT) -> str:
    """The beginning of an id, long enough to name a session in practice."""
    return id.partition("_")[2][:letters]


def telling_apart(ids: Sequence[str]) -> int:
    """How many characters of these ids are enough to tell them apart: sessions that a program makes
    are made within milliseconds."""
    letters = SHORT
    different = set(ids)
    while len({short(id, letters) for id in different}) < len(different):
        letters += 1
    return letters
