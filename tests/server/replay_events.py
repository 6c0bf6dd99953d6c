"""What a stream of events tells of one act, as plain lines, whichever server sent them."""

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from tests.agent.trace_judge import Retelling

Json = Mapping[str, Any]

_NOISE = ("plugin.", "catalog.", "integration.", "reference.", "kedge.", "server.heartbeat")
"""What tells of parts that only one of the two servers has."""
_GLOBAL = ("sync", "project.updated")
"""What is sent on `/global/event` alone, and passed over by every client."""
_UNHEARD: Json = {"time": {"updated": 0}}
_SESSION = {
    *("cost", "directory", "id", "path", "projectID", "slug", "time", "title", "tokens", "version"),
}


class Account:
    """Tells the events of one act, those of each session apart in names and together in order."""

    def __init__(self, root: str, known: dict[str, Json]) -> None:
        self._root = root
        self._known = known
        """The sessions as they were told last; kept up to date."""
        self._tellings: dict[str, Telling] = {}
        self._last = ""
        self._lines: list[tuple[str, str]] = []
        self._kinds: list[str] = []

    def hear(self, event: Json) -> None:
        """Tell one more."""
        kind, of = event["type"], event["properties"]
        if is_noise(kind):
            return
        self._kinds.append(kind)
        # What names no session, as an edited file does, belongs to the session that acts.
        session = self._last = of.get("sessionID", self._last)
        if session not in self._tellings:
            self._tellings[session] = Telling(self._root, self._known.get(session, _UNHEARD))
        telling = self._tellings[session]
        before = len(telling.told)
        telling.hear(event)
        self._lines += [(session, line) for line in telling.told[before:]]
        if kind in ("session.created", "session.updated"):
            self._known[session] = of["info"]

    def lines(self, name: Callable[[str], str]) -> list[str]:
        """All lines; each begins with its session's name if there are several sessions."""
        if len({session for session, _ in self._lines}) == 1:
            return [line for _, line in self._lines]
        return [f"{name(session)} {line}" for session, line in self._lines]

    def kinds(self) -> list[str]:
        """Only the kinds of events, and how often each comes."""
        counted = ((kind, len(list(group))) for kind, group in groupby(self._kinds))
        return [f"{kind} x{count}" if count > 1 else kind for kind, count in counted]


class Telling(Retelling):
    """Tells more kinds of events than those of a prompt."""

    def _line(self, kind: str, of: Json) -> str:
        tell = _TELLERS.get(kind)
        return super()._line(kind, of) if tell is None else " ".join((kind, *tell(self, of)))

    def _updated(self, of: Json) -> list[str]:
        before = self._session
        told = self._session_updated(of)
        info = of["info"]
        more = [
            key for key in ("metadata", "share", "subtasks") if before.get(key) != info.get(key)
        ]
        if before["time"].get("archived") != info["time"].get("archived"):
            more.append("archived")
        return [*told, *more]

    def _whole(self, of: Json) -> list[str]:
        self._session = of["info"]
        keys = set(of["info"])
        return [f"+{key}" for key in sorted(keys - _SESSION)] + [
            f"-{key}" for key in sorted(_SESSION - keys)
        ]

    def _removed(self, of: Json) -> list[str]:
        return [self._named("M", of["messageID"])]


_TELLERS: dict[str, Callable[[Telling, Json], list[str]]] = {
    "session.created": Telling._whole,
    "session.updated": Telling._updated,
    "session.deleted": Telling._whole,
    "message.removed": Telling._removed,
}


def is_noise(kind: str) -> bool:
    """Whether an event tells nothing that both servers could tell."""
    return kind.startswith(_NOISE)


def is_global_only(kind: str) -> bool:
    """Whether an event is for `/global/event` alone."""
    return kind in _GLOBAL or is_noise(kind)
